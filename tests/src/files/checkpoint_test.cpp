// SPDX-License-Identifier: MIT
// Checkpoints: every bit comes back, equal states make equal files, another model's file is refused
// by name and shape, and nothing that goes wrong touches an earlier file or a store half-way.
#include "src/files/checkpoint.h"

#include "src/files/hdf5.h"
#include "tests/src/files/file_limit.h"
#include "tests/temp_dir.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

namespace weft {
namespace {
TrainState sample_state() {
  return {
      .step = 123,
      .updates = 121,
      .loss_scale = 0.1,
      .good_steps = 7,
      .best_valid_bits = 1.0 / 3,
      .seed = 0xfedcba9876543210u,
  };
}

struct Fixture {
  std::unique_ptr<Device> device;
  ParameterStore store;

  explicit Fixture(bool training = true, bool ema = true, int64_t rows = 3,
                   const std::string& last = "blocks.0.bias", DType compute = DType::f32,
                   uint64_t seed = 1, const std::string& device_name = "cpu")
      : device(make_device(device_name)) {
    store.add("embedding.token", {5, 4}, Init::normal(0.1));
    store.add("blocks.0.weight", {rows, 4}, Init::normal(1));
    store.add(last, {3}, Init::constant(0.5));
    store.allocate(*device, compute, seed, training, ema);
  }

  // Different random bits in every block, denormals included; neither infinities nor NaNs, which
  // are refused.
  void scramble(unsigned seed) {
    std::mt19937 random(seed);
    for (int which = 0; const Tensor& block : {store.master(), store.m(), store.v(), store.ema()}) {
      const uint32_t kept = which++ == 2 ? 0x7f7fffffu : 0xff7fffffu;  // v has no sign
      if (!block) continue;
      for (const ParamInfo& p : store.params()) {
        std::vector<uint32_t> bits(static_cast<std::size_t>(p.size));
        for (auto& b : bits) b = random() & kept;
        device->upload(block.slice(p.offset, p.shape), bits.data());
      }
    }
  }

  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& block : {store.master(), store.m(), store.v(), store.ema(), store.compute()})
      if (block)
        for (const ParamInfo& p : store.params())
          all.push_back(to_host(*device, block.slice(p.offset, p.shape)));
    return all;
  }
};

std::string load_error(const std::string& path, Fixture& f, bool use_ema = false) {
  return error_of([&] { load_checkpoint(path, *f.device, f.store, use_ema); });
}

TEST(Checkpoint, EveryBitComesBack) {
  TempDir dir;
  Fixture a;
  a.scramble(1);
  save_checkpoint(dir / "a.h5", *a.device, a.store, sample_state(), "name: x\n");
  Fixture b;
  EXPECT_NE(a.values(), b.values());
  const TrainState state = load_checkpoint(dir / "a.h5", *b.device, b.store);
  EXPECT_EQ(a.values(), b.values());
  EXPECT_EQ(state.step, 123);
  EXPECT_EQ(state.updates, 121);
  EXPECT_EQ(state.loss_scale, 0.1);
  EXPECT_EQ(state.good_steps, 7);
  EXPECT_EQ(state.best_valid_bits, 1.0 / 3);
  EXPECT_EQ(state.seed, 0xfedcba9876543210u);
  EXPECT_EQ(checkpoint_config(dir / "a.h5"), "name: x\n");
  save_checkpoint(dir / "b.h5", *b.device, b.store, state, "name: x\n");
  EXPECT_EQ(read_file(dir / "a.h5"), read_file(dir / "b.h5"));
  b.scramble(2);
  save_checkpoint(dir / "b.h5", *b.device, b.store, state, "name: x\n");
  EXPECT_NE(read_file(dir / "a.h5"), read_file(dir / "b.h5"));
}

TEST(Checkpoint, LoadingRefreshesTheComputeCopy) {
  TempDir dir;
  Fixture a(true, false, 3, "blocks.0.bias", DType::bf16, 1),
      b(true, false, 3, "blocks.0.bias", DType::bf16, 2);
  save_checkpoint(dir / "a.h5", *a.device, a.store, {}, "");
  load_checkpoint(dir / "a.h5", *b.device, b.store);
  EXPECT_EQ(a.values(), b.values());
}

TEST(Checkpoint, WeightsAloneAndTheMovingAverage) {
  TempDir dir;
  Fixture a;
  a.scramble(1);
  save_checkpoint(dir / "a.h5", *a.device, a.store, {}, "");
  Fixture plain(false, false), averaged(false, false);
  load_checkpoint(dir / "a.h5", *plain.device, plain.store);
  load_checkpoint(dir / "a.h5", *averaged.device, averaged.store, true);
  const ParamInfo& p = a.store.params()[1];
  const auto of = [&](const Fixture& f, const Tensor& block) {
    return to_host(*f.device, block.slice(p.offset, p.shape));
  };
  EXPECT_EQ(of(plain, plain.store.master()), of(a, a.store.master()));
  EXPECT_EQ(of(averaged, averaged.store.master()), of(a, a.store.ema()));
  EXPECT_NE(of(a, a.store.ema()), of(a, a.store.master()));
}

TEST(Checkpoint, DoublesStayDoubles) {
  TempDir dir;
  Fixture a(true, false, 3, "blocks.0.bias", DType::f64, 1),
      b(true, false, 3, "blocks.0.bias", DType::f64, 2);
  save_checkpoint(dir / "a.h5", *a.device, a.store, {}, "");
  load_checkpoint(dir / "a.h5", *b.device, b.store);
  EXPECT_EQ(a.values(), b.values());
}

TEST(Checkpoint, OfAnotherModel) {
  TempDir dir;
  const std::string path = dir / "a.h5";
  {
    Fixture a;
    save_checkpoint(path, *a.device, a.store, {}, "");
  }
  Fixture wider(true, true, 6), renamed(true, true, 3, "blocks.0.bias2");
  const auto before = wider.values();
  EXPECT_EQ(load_error(path, wider), path +
                                         ": checkpoint of another model: blocks.0.weight is (6, 4) "
                                         "here and (3, 4) there (/params)");
  EXPECT_EQ(wider.values(), before) << "refused before a weight changed";
  EXPECT_EQ(
      load_error(path, renamed),
      path +
          ": checkpoint of another model: blocks.0.bias2 is (3) here and missing there (/params)");
  Fixture fewer(true, true);
  ParameterStore small;
  small.add("embedding.token", {5, 4}, Init::normal(0.1));
  small.add("blocks.0.weight", {3, 4}, Init::normal(1));
  small.allocate(*fewer.device, DType::f32, 1, false, false);
  EXPECT_EQ(
      error_of([&] { load_checkpoint(path, *fewer.device, small); }),
      path +
          ": checkpoint of another model: blocks.0.bias is missing here and (3) there (/params)");
}

TEST(Checkpoint, LackingWhatIsAskedFor) {
  TempDir dir;
  const std::string path = dir / "a.h5";
  Fixture weights(false, false), training(true, false), averaging(false, true);
  save_checkpoint(path, *weights.device, weights.store, {}, "");
  EXPECT_CONTAINS(load_error(path, training), path + ": holds no optimizer state");
  EXPECT_CONTAINS(load_error(path, averaging), path + ": holds no moving average");
  EXPECT_CONTAINS(load_error(path, weights, true), path + ": holds no moving average");
}

TEST(Checkpoint, ThatIsNone) {
  TempDir dir;
  Fixture f(false, false);
  EXPECT_CONTAINS(load_error(dir / "missing.h5", f), "missing.h5: cannot be opened: No such file");
  write_file(dir / "text.h5", "text");
  EXPECT_CONTAINS(load_error(dir / "text.h5", f), "is not an HDF5 file");
  const std::vector<uint8_t> tokens = {1, 2, 3};
  Hdf5File data = Hdf5File::create(dir / "data.h5");
  data.write("/train", StoredType::u8, {3}, tokens.data());
  data.commit();
  EXPECT_CONTAINS(load_error(dir / "data.h5", f),
                  "is not a checkpoint (it has no group /params); it looks like a data file");
  EXPECT_CONTAINS(error_of([&] { checkpoint_config(dir / "data.h5"); }), "is not a checkpoint");
  Hdf5File later = Hdf5File::create(dir / "later.h5");
  later.write("/params/a", StoredType::u8, {3}, tokens.data());
  later.set_attribute("format", int64_t{2});
  later.commit();
  EXPECT_CONTAINS(load_error(dir / "later.h5", f),
                  "is of checkpoint format 2; this program reads format 1");
  Hdf5File bare = Hdf5File::create(dir / "bare.h5");
  bare.write("/params/a", StoredType::u8, {3}, tokens.data());
  bare.set_attribute("format", int64_t{1});
  bare.commit();
  EXPECT_CONTAINS(load_error(dir / "bare.h5", f), "has no attribute step");
}

TEST(Checkpoint, DamagedFilesNeverCrash) {
  TempDir dir;
  Fixture f;
  save_checkpoint(dir / "a.h5", *f.device, f.store, {}, "name: x\n");
  const std::string whole = read_file(dir / "a.h5");
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 8) {
    write_file(dir / "cut.h5", whole.substr(0, length));
    EXPECT_NE(load_error(dir / "cut.h5", f), "") << length;
  }
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file(dir / "damaged.h5", bytes);
    load_error(dir / "damaged.h5", f);
  }
}

TEST(Checkpoint, EveryFlippedBitIsRefusedOrHarmless) {
  TempDir dir;
  Fixture f;
  save_checkpoint(dir / "a.h5", *f.device, f.store, sample_state(), "name: x\n");
  const std::string whole = read_file(dir / "a.h5");
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = whole;
    const std::size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
    write_file(dir / "bad.h5", bytes);
    if (at >= 512)
      EXPECT_CONTAINS(load_error(dir / "bad.h5", f), "bad.h5: is damaged (its hash") << at;
    else
      load_error(dir / "bad.h5", f);
  }
}

TEST(Checkpoint, NonsensicalValuesAreRefusedByName) {
  TempDir dir;
  Fixture f;
  const auto error_with = [&](TrainState state) {
    save_checkpoint(dir / "a.h5", *f.device, f.store, state, "");
    return load_error(dir / "a.h5", f);
  };
  EXPECT_CONTAINS(error_with({.step = -1}), "attribute step is -1");
  EXPECT_CONTAINS(error_with({.updates = -5}), "attribute updates is -5");
  EXPECT_CONTAINS(error_with({.best_valid_bits = std::nan("")}),
                  "attribute best_valid_bits is nan");
  EXPECT_CONTAINS(error_with({.loss_scale = 0}), "attribute loss_scale is 0");
  const std::vector<float> bad(12, std::nanf(""));
  const ParamInfo p = f.store.params()[1];
  for (const bool ema : {false, true}) {
    Fixture g;
    g.device->upload((ema ? g.store.ema() : g.store.master()).slice(p.offset, p.shape), bad.data());
    save_checkpoint(dir / "a.h5", *g.device, g.store, {}, "");
    EXPECT_CONTAINS(load_error(dir / "a.h5", f),
                    ema ? "/ema/blocks.0.weight holds nan" : "/params/blocks.0.weight holds nan");
    EXPECT_EQ(f.values(), Fixture().values()) << "refused before a weight changed";
  }
  Fixture g;
  const std::vector<float> negative(12, -1e-9f);
  g.device->upload(g.store.v().slice(p.offset, p.shape), negative.data());
  save_checkpoint(dir / "a.h5", *g.device, g.store, {}, "");
  EXPECT_CONTAINS(load_error(dir / "a.h5", f), "/optimizer/v/blocks.0.weight holds -1e-09");
}

TEST(Checkpoint, FullDiskLeavesTheEarlierOne) {
  TempDir dir;
  Fixture f;
  save_checkpoint(dir / "a.h5", *f.device, f.store, {}, "");
  const std::string before = read_file(dir / "a.h5");
  const std::string error = error_of([&] {
    const FileLimit full(before.size() / 2);
    save_checkpoint(dir / "a.h5", *f.device, f.store, sample_state(), "");
  });
  EXPECT_CONTAINS(error, "could not be written");
  EXPECT_EQ(read_file(dir / "a.h5"), before);
  EXPECT_FALSE(std::filesystem::exists(dir / "a.h5.tmp"));
}

// A process that saves without pause is killed at many moments: the file is always a whole
// checkpoint.
TEST(Checkpoint, SurvivesBeingKilledWhileItIsWritten) {
  TempDir dir;
  Fixture f;
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < 3; ++k) save_checkpoint(dir / "a.h5", *f.device, f.store, {.step = 0}, "");
  const auto one = (std::chrono::steady_clock::now() - start) / 3;  // the time of one
  const auto inode = [&] {                                          // each checkpoint is a new file
    struct stat info {};
    return stat((dir / "a.h5").c_str(), &info) == 0 ? info.st_ino : 0;
  };
  int64_t latest = 0;
  for (int round = 0; round < 20; ++round) {
    const ino_t before = inode();
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = latest + 1;; ++step)
        save_checkpoint(dir / "a.h5", *f.device, f.store, {.step = step}, "");
    }
    // Before the first one of the child is complete, or at some moment after it.
    if (round % 2 == 0) {
      std::this_thread::sleep_for(one / 2 + one * round / 10);
    } else {
      while (inode() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(one * round / 10);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const TrainState state = load_checkpoint(dir / "a.h5", *f.device, f.store);
    EXPECT_GE(state.step, latest);
    latest = state.step;
  }
  EXPECT_GT(latest, 0) << "no checkpoint was completed: the test shows nothing";
}

#ifdef WEFT_CUDA
TEST(CudaCheckpoint, MovesBetweenDevices) {
  TempDir dir;
  Fixture cpu, cuda(true, true, 3, "blocks.0.bias", DType::f32, 2, "cuda"),
      back(true, true, 3, "blocks.0.bias", DType::f32, 3);
  cpu.scramble(1);
  save_checkpoint(dir / "a.h5", *cpu.device, cpu.store, sample_state(), "");
  load_checkpoint(dir / "a.h5", *cuda.device, cuda.store);
  EXPECT_EQ(cpu.values(), cuda.values());
  save_checkpoint(dir / "b.h5", *cuda.device, cuda.store, sample_state(), "");
  EXPECT_EQ(read_file(dir / "a.h5"), read_file(dir / "b.h5"));
  load_checkpoint(dir / "b.h5", *back.device, back.store);
  EXPECT_EQ(cpu.values(), back.values());
}
#endif
}  // namespace
}  // namespace weft
