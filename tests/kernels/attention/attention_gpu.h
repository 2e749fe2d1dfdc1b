// SPDX-License-Identifier: MIT
// What the attention tests on CUDA share: the same problem on the GPU, and the comparison with the
// CPU.
#pragma once

#include "kernels/layers/pointwise.h"
#include "kernels/linear/linear.h"
#include "tests/cases/attention_check.h"
#include "tests/kernels/attention/attention_case.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace weft::attention_test {
inline Device& gpu() {
  static const std::unique_ptr<Device> device = make_device("cuda");
  return *device;
}

template <class T>
struct Guarded : GuardedMatrix<T> {
  Guarded(int64_t rows, int64_t columns)
      : GuardedMatrix<T>(gpu(), rows, columns) {}
};

template <class T>
struct OnGpu : OnDevice<T> {
  explicit OnGpu(const Data<T>& x)
      : OnDevice<T>(gpu(), x) {}
};

struct GpuMaps {
  DeviceMaps on_gpu;
  AttentionMaps maps = on_gpu.maps();

  GpuMaps(const AttentionPattern& pattern, int heads, Lengths n, int64_t head_size,
          int edge = kBest)
      : on_gpu(gpu(), pattern, heads, n, head_size, edge) {}
};

inline Tensor on_gpu(const std::vector<int32_t>& values) { return on_device(gpu(), values); }

inline std::vector<AttentionForm> forms_for(DType dtype, const Sizes& size,
                                            const AttentionMaps& maps, bool segments) {
  return forms_on(gpu(), dtype, size, maps, segments);
}

// While it lives, the GPU has work from another stream besides: what hangs on who comes first
// shows.
class Load {
 public:
  Load()
      : thread_([this] { run(); }) {}

  ~Load() {
    stop_ = true;
    thread_.join();
  }

  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  void run() const {
    const auto device = make_device("cuda");
    const Tensor x(*device->pool, {1 << 22}, DType::f32), y(*device->pool, {1 << 22}, DType::f32);
    const Tensor a(*device->pool, {1024, 1024}, DType::bf16),
        c(*device->pool, {1024, 1024}, DType::bf16);
    device->zero(x);
    device->zero(a);
    for (; !stop_; device->synchronize())
      for (int i = 0; i < 16; ++i) {
        launch(device->queue, Add{.out = {y, false}, .x = x});
        launch(device->queue, LinearForward{.y = c, .x = a, .w = a, .b = {}});
      }
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;  // the last: it reads the others
};

// How many of a thousand runs leave other bits in these matrices than one before them, under load.
template <class Run, class... Matrices>
int runs_with_other_bits(Run&& run, const Matrices&... matrices) {
  const Load load;
  using Values = std::tuple<std::vector<typename Matrices::Value>...>;
  Values first, again;
  const auto run_into = [&](Values& values) {
    run();
    std::apply([&](auto&... each) { (matrices.fetch(each), ...); }, values);
  };
  run_into(first);
  int others = 0;
  for (int repeat = 0; repeat < 1000; ++repeat) {
    run_into(again);
    others += !std::apply(
        [&](const auto&... a) {
          return std::apply([&](const auto&... b) { return (same_bits(a, b) && ...); }, first);
        },
        again);
  }
  return others;
}

// run_twice() on the GPU, where an Error is a failure of the test.
template <class T>
void run_on_gpu(Data<T>& x, const AttentionMaps& maps, bool scratch = true, bool parted = false) {
  EXPECT_NO_THROW(run_twice(gpu(), x, maps, scratch, parted));
}

// Documents that begin at 0 and at `starts`, in every sequence.
template <class T>
void start_documents(Data<T>& x, const std::vector<int32_t>& starts) {
  x.query_segments.clear();
  for (int64_t b = 0; b < x.size.batch; ++b)
    for (int32_t t = 0, start = 0; t < x.size.time; ++t)
      x.query_segments.push_back(start = std::ranges::count(starts, t) ? t : start);
  x.key_segments = x.query_segments;
}

// How to run a problem: the edge of the tiles, and documents.
struct GpuCase {
  Sizes size;
  int edge = kBest;
  bool documents = false;
};

// y, lse and gradients of each form that covers the case, against f64. `starts`: the first
// positions of documents in place of random ones. parted: maps of each sequence's own in place of
// segments.
template <class T>
void expect_agreement(const AttentionPattern& pattern, const GpuCase& c, const std::string& what,
                      const std::vector<int32_t>& starts = {}, bool parted = false) {
  const int heads = static_cast<int>(c.size.heads);
  Data<T> inputs(c.size);
  if (c.documents) inputs.pack_documents();
  if (!starts.empty()) start_documents(inputs, starts);
  const Expected<T> expected(gpu(), pattern, inputs, c.edge);
  const int64_t head_size = std::max(c.size.qk, c.size.v);
  const GpuMaps maps(pattern, heads, c.size.lengths(), head_size, c.edge);
  const auto forms =
      parted ? forms_for(dtype_of<T>, c.size, SegmentMaps{.maps = maps.maps}.result(), false)
             : forms_for(dtype_of<T>, c.size, maps.maps, c.documents);
  EXPECT_FALSE(forms.empty());
  for (const AttentionForm form : forms)
    for (const bool scratch : {true, false}) {
      const bool takes_scratch =
          form == AttentionForm::hopper && head_size <= 128 && maps.maps.passes == 1;
      if (!scratch && !takes_scratch) continue;
      SCOPED_TRACE(str(what, ", ", name_of(form), scratch ? "" : " without scratch", ", ",
                       name_of(dtype_of<T>), ", n ", c.size.time, ", keys ", c.size.lengths().keys,
                       ", heads of ", c.size.qk, " and ", c.size.v, ", edge ", c.edge,
                       c.documents ? ", documents" : "", parted ? ", parted" : ""));
      Data<T> x = inputs;
      x.form = form;
      run_on_gpu(x, maps.maps, scratch, parted);
      EXPECT_NO_THROW(expected.check(x, floor_of<T>(form)));
    }
}

// The same with tiles of kTile rows, for a case that the kernels under test take: covers(x, maps)
// says so.
template <class T, class Covers>
void expect_agreement(const PatternSpec& spec, const Sizes& size, const Covers& covers) {
  const int heads = static_cast<int>(size.heads);
  const auto pattern = make_pattern(spec, heads);
  const HostMaps host(*pattern, heads, size.lengths(), std::max(size.qk, size.v), kTile);
  Data<T> x(size);
  EXPECT_TRUE(covers(x, host.maps)) << pattern->name();
  expect_agreement<T>(*pattern, {size, kTile}, pattern->name());
}
}  // namespace weft::attention_test
