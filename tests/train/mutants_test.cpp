// SPDX-License-Identifier: MIT
// Damaged files and hostile configs against the code of the programs, each in a process of its own:
// an error or a result, never a crash, never a hang. WEFT_MUTANTS and WEFT_SEED set how many and
// which.
#include "data/dataset.h"
#include "models/model.h"
#include "src/config/fields.h"
#include "src/patterns/spec.h"
#include "tests/train/training.h"
#include "train/evaluation/evaluate_run.h"
#include "train/sampling/sample_run.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <iostream>
#include <map>
#include <omp.h>
#include <random>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
constexpr std::size_t kSealed = 512;  // bytes of the seal

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

struct Outcome {
  enum Kind { accepted, refused, hung, crashed } kind;

  std::string what;  // the text of the error, or the signal
};

// What becomes of a process that does `work`.
Outcome outcome_of(const std::function<void()>& work) {
  int ends[2];
  if (pipe(ends) != 0) fail("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0}, seconds{60, 60};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &seconds);
    alarm(300);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    std::string error;
    try {
      work();
      _exit(0);
    } catch (const std::bad_alloc&) {
      error = "out of memory";
    } catch (const Error& e) {
      error = e.what();
    }
    static_cast<void>(!write(ends[1], error.data(), std::min<std::size_t>(error.size(), 4000)));
    _exit(1);
  }
  close(ends[1]);
  std::string error(4096, '\0');
  const ssize_t size = read(ends[0], error.data(), error.size());
  close(ends[0]);
  error.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {Outcome::accepted, ""};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return {Outcome::refused, error};
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const bool late = signal == SIGALRM || signal == SIGXCPU || signal == SIGKILL;
  return {late ? Outcome::hung : Outcome::crashed, str("signal ", signal, ", status ", status)};
}

// What a file holds beside the values of its datasets.
std::vector<std::size_t> metadata_of(const std::string& path) {
  std::string bytes = read_file(path);
  std::vector<bool> values(bytes.size());
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const auto visit = [](hid_t root, const char* name, const H5O_info_t* info, void* out) -> herr_t {
    if (info->type != H5O_TYPE_DATASET) return 0;
    auto& all = *static_cast<std::vector<bool>*>(out);
    const hid_t set = H5Dopen2(root, name, H5P_DEFAULT);
    const haddr_t first = H5Dget_offset(set);
    if (first != HADDR_UNDEF)
      std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(first), H5Dget_storage_size(set), true);
    return H5Dclose(set);
  };
  H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &values);
  H5Fclose(file);
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < bytes.size(); ++at)
    if (!values[at]) places.push_back(at);
  return places;
}

struct Source {
  std::string name, bytes;
  std::vector<std::size_t> metadata;
  bool sealed = false, checkpoint = false;
};

using Random = std::mt19937;
constexpr const char* kDamages[] = {"bit of metadata", "bit", "zeroed sector", "truncation",
                                    "random bytes"};

std::string damaged(const Source& source, std::size_t how, Random& random) {
  std::string bytes = source.bytes;
  const auto flip = [&](std::size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
  };
  const std::size_t at = random() % bytes.size();
  switch (how) {
    case 0: flip(source.metadata[random() % source.metadata.size()]); break;
    case 1: flip(at); break;
    case 2:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at / 512 * 512),
                  std::min<std::size_t>(512, bytes.size() - at / 512 * 512), '\0');
      break;
    case 3: bytes.resize(at); break;
    default:
      for (int k = 0; k < 4; ++k)
        bytes[source.metadata[random() % source.metadata.size()]] = static_cast<char>(random());
  }
  return bytes;
}

class SlowMutants : public testing::Test {
 protected:
  SlowMutants() {
    omp_set_num_threads(1);  // a pool of threads does not survive fork()
    write_corpus(dir / "corpus.h5", 3000, 32);
    train(small_config(dir.path(), {"train.steps=2", "train.eval_every=0", "train.save_every=0"}),
          {.out = dir / "run", .device = "cpu"});
  }

  Source source(const std::string& name, const std::string& path, bool sealed,
                bool checkpoint) const {
    Source s{name, read_file(path), metadata_of(path), sealed, checkpoint};
    if (!sealed && s.bytes[0] == 'w') s.bytes.replace(0, kSealed, kSealed, '-');  // as files of old
    return s;
  }

  // What the programs do with a file of this kind.
  std::vector<std::pair<std::string, std::function<void()>>> uses(bool checkpoint) const {
    const std::string path = dir / "mutant.h5";
    const auto evaluate = [=, this](const std::string& from, const std::string& data) {
      std::ostringstream out;
      Progress progress(out, false);
      Processes alone;
      EvaluateArguments a;
      a.checkpoint = from, a.data = data, a.device = "cpu";
      run_evaluate(a, alone, out, progress);
    };
    if (!checkpoint)
      return {{"train",
               [=] {
                 for (const char* s : {"train", "valid", "test"}) TokenDataset(path, s, 32);
               }},
              {"evaluate", [=, this] { evaluate(dir / "run/latest.h5", path); }},
              {"layout", [=] {
                 for (const char* dataset : {"", "/valid"}) {
                   PatternSpec layout{"layout"};
                   layout.block = 64, layout.file = path, layout.dataset = dataset;
                   make_pattern(layout, 1);
                 }
               }}};
    return {{"evaluate", [=, this] { evaluate(path, dir / "corpus.h5"); }},
            {"sample",
             [=] {
               std::ostringstream out;
               Progress notes(out, false);
               Processes alone;
               SampleArguments a;
               a.checkpoint = path, a.device = "cpu", a.options.length = 3;
               run_sample(a, alone, out, notes);
             }},
            {"train --resume", [=, this] {
               std::filesystem::remove_all(dir / "again");
               train(small_config(dir.path(),
                                  {"train.steps=3", "train.eval_every=0", "train.save_every=0"}),
                     {.resume = path, .out = dir / "again", .device = "cpu"});
             }}};
  }

  TempDir dir;
};

TEST_F(SlowMutants, DamagedFilesAreRefusedOrRead) {
  const std::string golden = WEFT_TEST_SOURCE "/tests/golden/";
  const std::vector<Source> sources{
      source("checkpoint", dir / "run/latest.h5", true, true),
      source("checkpoint without hash", dir / "run/latest.h5", false, true),
      source("data", dir / "corpus.h5", true, false),
      source("data without hash", dir / "corpus.h5", false, false),
      source("file of h5py", golden + "randaugment.h5", false, false)};
  const int count = from_environment("WEFT_MUTANTS", 150);
  Random random(static_cast<unsigned>(from_environment("WEFT_SEED", 1)));
  std::map<std::string, std::array<int, 4>> table;
  int unnoticed = 0;
  for (int i = 0; i < count; ++i) {
    const Source& from = sources[static_cast<std::size_t>(i) % sources.size()];
    const std::size_t how = random() % std::size(kDamages);
    const std::string bytes = damaged(from, how, random);
    write_file(dir / "mutant.h5", bytes);
    const auto all = uses(from.checkpoint);
    const auto& [program, use] = all[random() % all.size()];
    const Outcome outcome = outcome_of(use);
    ++table[from.name + ", " + kDamages[how]][outcome.kind];
    const std::string which =
        str("mutant ", i, ": ", from.name, ", ", kDamages[how], ", ", program);
    EXPECT_LT(outcome.kind, Outcome::hung) << which << ": " << outcome.what;
    EXPECT_EQ(outcome.what.find(".cpp:"), std::string::npos)
        << which << ": " << outcome.what << ": an internal check";
    if (outcome.kind >= Outcome::hung) write_file(str("/tmp/weft_mutant_", i, ".h5"), bytes);
    const bool has_seal = bytes.find_first_not_of('\0') < kSealed;  // no zeroed sector
    if (from.sealed && bytes != from.bytes && outcome.kind == Outcome::accepted && has_seal)
      ++unnoticed;
  }
  EXPECT_EQ(unnoticed, 0) << "a file of which a byte differs";
  for (const auto& [name, n] : table)
    std::printf("%-45s read %5d  refused %5d  hung %d  crashed %d\n", name.c_str(), n[0], n[1],
                n[2], n[3]);
}

std::vector<std::string> hostile_values() {
  return {"-1",
          "0",
          "1",
          "2",
          "3",
          "1e308",
          "-1e308",
          "1e-320",
          "nan",
          "inf",
          "9223372036854775807",
          "-9223372036854775808",
          "18446744073709551615",
          "18446744073709551616",
          "2147483648",
          "4294967296",
          "65537",
          "0.5",
          "''",
          "x",
          "[]",
          "[0]",
          "[-1, 2]",
          "[[1, 2], [3, 4]]",
          "{}",
          "{a: 1}",
          "true",
          "null",
          "~",
          "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
          "[9223372036854775807, 9223372036854775807]",
          "&a [*a]",
          "!!binary x",
          "\"\\0\""};
}

// Every key with values that no one means; what is accepted and small trains a step.
TEST_F(SlowMutants, HostileConfigsAreRefusedOrTrain) {
  std::vector<std::string> keys;
  Config all;
  for_each_field(all, [&](const Field& field) { keys.push_back(field.key); });
  PatternSpec pattern;
  for_each_pattern_field(pattern, [&](const Field& f) {
    keys.push_back("model.attention=[{kind: local, stride: 8, " + f.key + ": ");
  });
  const std::vector<std::string> values = hostile_values();
  const auto count = static_cast<std::size_t>(from_environment("WEFT_CONFIGS", 150));
  Random random(static_cast<unsigned>(from_environment("WEFT_SEED", 1)));
  std::array<int, 4> sum{};
  for (std::size_t i = 0; i < count; ++i) {
    const auto one = [&](std::size_t key, std::size_t value) {
      const bool in_pattern = keys[key].find('{') != std::string::npos;
      return keys[key] + (in_pattern ? "" : "=") + values[value] + (in_pattern ? "}]" : "");
    };
    // Each key with each value, first; then pairs.
    const std::size_t n = i * 7919 % (keys.size() * values.size());
    std::vector<std::string> set{one(n / values.size(), n % values.size())};
    if (i >= keys.size() * values.size())
      set.push_back(one(random() % keys.size(), random() % values.size()));
    const Outcome outcome = outcome_of([&] {
      set.insert(set.begin(), {"train.steps=1", "train.eval_every=0", "train.save_every=0",
                               "train.eval_tokens=64"});
      const Config config = small_config(dir.path(), set);
      const MemoryPlan plan = plan_memory(config, 1, config.model.context, true);
      if (config.train.steps > 1 || config.train.batch > 8 || config.model.layers > 4 ||
          plan.total() > 1 << 24)
        return;
      std::filesystem::remove_all(dir / "hostile");
      train(config, {.out = dir / "hostile", .device = "cpu"});
    });
    ++sum[outcome.kind];
    const std::string which = set.front() + (set.size() > 1 ? " " + set.back() : "");
    EXPECT_LT(outcome.kind, Outcome::hung) << which << ": " << outcome.what;
    EXPECT_LT(outcome.what.size(), 700u) << which << ": " << outcome.what;
    EXPECT_EQ(outcome.what.find(".cpp:"), std::string::npos) << which << ": " << outcome.what;
  }
  std::printf("configs: accepted %d  refused %d  hung %d  crashed %d\n", sum[0], sum[1], sum[2],
              sum[3]);
}
}  // namespace
}  // namespace weft
