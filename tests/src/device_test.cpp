// SPDX-License-Identifier: MIT
// Names of devices and what is said of wrong ones, copies, the measured GEMM rate.
#include "src/device.h"

#include "kernels/layers/pointwise.h"
#include "tests/src/gate.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {
TEST(Device, NamesThatCannotWorkSayWhatCan) {
  for (const char* name : {"gpu", "", "cuda:x", "cuda:-1", "cuda:", "cuda0", "CPU"}) {
    try {
      make_device(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("cuda:N"), std::string::npos) << error.what();
    }
  }
}

#ifndef WEFT_CUDA
TEST(Device, WithoutCudaTheErrorSaysHowToGetIt) {
  for (const char* name : {"cuda", "cuda:1"}) {
    try {
      make_device(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("--preset cuda"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("--device cpu"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(make_device("auto")->name, "cpu");
}
#endif

void check_copies(Device& device) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), -500.0f);
  const Tensor a(*device.pool, {10, 100}, DType::f32);
  device.upload(a, values.data());
  std::vector<float> back(1000);
  device.download(back.data(), a);
  EXPECT_EQ(back, values);
  device.zero(a.slice(100, {800}));
  std::vector<double> want(values.begin(), values.end());
  std::fill(want.begin() + 100, want.begin() + 900, 0.0);
  EXPECT_EQ(to_host(device, a), want);

  // The source may be changed at once, more copies being under way than there are buffers to stage
  // them.
  const int copies = 100;
  const Tensor b(*device.pool, {copies, 1000}, DType::f32);
  std::vector<float> source(1000);
  for (int i = 0; i < copies; ++i) {
    std::fill(source.begin(), source.end(), static_cast<float>(i));
    device.upload_async(b.slice(i * 1000, {1000}).view().data, source.data(), 4000);
  }
  std::fill(source.begin(), source.end(), -1.0f);
  const std::vector<double> all = to_host(device, b);
  for (int i = 0; i < copies; ++i) {
    ASSERT_EQ(all[static_cast<std::size_t>(i) * 1000], i);
    ASSERT_EQ(all[static_cast<std::size_t>(i) * 1000 + 999], i);
  }
  device.upload_async(nullptr, nullptr, 0);
}

TEST(Device, Copies) { check_copies(*make_device("cpu")); }

// What kernels write to the host's memory is there behind a mark, whatever is enqueued after it.
void check_marks(Device& device) {
  constexpr int64_t count = 40;
  const Tensor values(*device.pool, {count}, DType::f32),
      seen(*device.host_pool, {count}, DType::f32), large(*device.pool, {1 << 22}, DType::f32),
      copy(*device.pool, {1 << 22}, DType::f32);
  std::vector<float> host(count);
  std::iota(host.begin(), host.end(), 1.0f);
  device.upload(values, host.data());
  device.zero(large);
  std::vector<std::unique_ptr<QueueMark>> marks;
  for (int64_t i = 0; i < count; ++i) {
    launch(device.queue, Add{{seen.slice(i, {1}), false}, values.slice(i, {1})});
    marks.push_back(device.make_mark());
    marks.back()->wait();  // never recorded
    marks.back()->record();
    launch(device.queue, Add{{copy, false}, large});
  }
  const volatile float* numbers = seen.view().as<float>();
  for (int64_t i = 0; i < count; ++i) {
    marks[static_cast<std::size_t>(i)]->wait();
    EXPECT_EQ(numbers[i], static_cast<float>(i + 1));
  }
  device.synchronize();
}

TEST(Device, Marks) { check_marks(*make_device("cpu")); }

TEST(Device, ToHostConvertsEveryType) {
  const auto device = make_device("cpu");
  const auto check = [&](DType dtype, const void* data, const std::vector<double>& want) {
    const Tensor t(*device->pool, {2}, dtype);
    device->upload(t, data);
    EXPECT_EQ(to_host(*device, t), want) << name_of(dtype);
  };
  const double f64[] = {1.5, -2};
  const float f32[] = {1.5, -2};
  const uint16_t half[] = {f16::encode(1.5), f16::encode(-2)},
                 brain[] = {bf16::encode(1.5), bf16::encode(-2)};
  const int32_t i32[] = {7, -2};
  const uint8_t u8[] = {7, 255};
  check(DType::f64, f64, {1.5, -2});
  check(DType::f32, f32, {1.5, -2});
  check(DType::f16, half, {1.5, -2});
  check(DType::bf16, brain, {1.5, -2});
  check(DType::i32, i32, {7, -2});
  check(DType::u8, u8, {7, 255});
}

TEST(Device, DescribesItself) {
  const auto device = make_device("cpu");
  EXPECT_EQ(device->description().rfind("CPU, ", 0), 0u);
  EXPECT_FALSE(device->is_cuda());
  EXPECT_GT(device->memory_free(), std::size_t{1} << 20);
}

TEST(Device, MatrixRateIsMeasuredOnce) {
  const auto device = make_device("cpu");
  const double rate = device->peak_flops(DType::f32);
  EXPECT_GT(rate, 1e8);
  EXPECT_EQ(device->peak_flops(DType::f32), rate);
  EXPECT_THROW(device->peak_flops(DType::i32), Error);
}

#ifdef WEFT_CUDA
TEST(Device, CopyRateIsMeasuredOnce) {
  const auto device = make_device("cpu");
  const double rate = device->copy_bandwidth();
  EXPECT_GT(rate, 1e8);
  EXPECT_EQ(device->copy_bandwidth(), rate);
  EXPECT_EQ(device->pool->in_use(), 0u);
}

TEST(CudaDevice, CopiesAndDescribesItself) {
  const auto device = make_device("cuda");
  EXPECT_EQ(device->name, "cuda:0");
  check_copies(*device);
  EXPECT_NE(device->description().find("sm_"), std::string::npos) << device->description();
  EXPECT_GT(device->memory_free(), std::size_t{1} << 28);
  EXPECT_GT(device->peak_flops(DType::bf16), 1e12);
}

TEST(CudaDevice, Marks) { check_marks(*make_device("cuda")); }

TEST(CudaDevice, AMarkWaitsForWhatIsAheadOfIt) {
  const auto device = make_device("cuda");
  const Tensor one(*device->pool, {1}, DType::f32), seen(*device->host_pool, {1}, DType::f32);
  const float value = 1;
  device->upload(one, &value);
  volatile float* const number = seen.view().as<float>();
  *number = 0;
  const auto ahead = device->make_mark(), behind = device->make_mark();
  ahead->record();
  Gate gate;
  gate.close(std::get<CudaQueue>(device->queue).stream);
  launch(device->queue, Add{{seen, false}, one});
  behind->record();
  ahead->wait();
  EXPECT_EQ(*number, 0);
  const std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(gate.open()) << "a mark waited for what is behind it";
  });
  behind->wait();
  EXPECT_EQ(*number, 1);
}

TEST(CudaDevice, RunningOutOfMemorySaysWhatToLower) {
  const auto device = make_device("cuda");
  try {
    const Tensor t(*device->pool, {int64_t{1} << 42}, DType::f32);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("out of memory on cuda:0"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("train.batch"), std::string::npos) << error.what();
  }
  check_copies(*device);
}

TEST(CudaDevice, AGpuThatIsNotThere) { EXPECT_THROW(make_device("cuda:99"), Error); }
#endif
}  // namespace
}  // namespace weft
