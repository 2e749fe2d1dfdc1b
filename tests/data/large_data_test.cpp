// SPDX-License-Identifier: MIT
// Data larger than memory: what is written and read takes memory that does not grow with the file,
// and a file is read whole once. tests/tools/large_data.sh shows it with 20 GB.
#include "data/batch_source.h"
#include "data/dataset.h"
#include "data/prepare/prepare.h"
#include "src/files/hdf5.h"
#include "src/files/stored_bytes.h"
#include "tests/run_python.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <span>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kTokens = 150'000'000;  // 300 MB

// While it lives, this process may have `more` bytes of memory above what it has.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t more) {
    getrlimit(RLIMIT_DATA, &before_);
    int64_t has = 0;
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (word == "VmData:") status >> has;
    const rlimit limit{static_cast<rlim_t>(has * 1024 + more), before_.rlim_max};
    setrlimit(RLIMIT_DATA, &limit);
  }

  ~MemoryLimit() { setrlimit(RLIMIT_DATA, &before_); }

  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

uint16_t token_at(int64_t i) { return static_cast<uint16_t>(i * 40503 % 50257); }

// The tokens of a file of 300 MB, and where notes of checks go.
class LargeData : public testing::Test {
 protected:
  LargeData() { setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1); }

  ~LargeData() override { unsetenv("XDG_CACHE_HOME"); }

  std::string prepare() const {
    std::ofstream out(dir_ / "raw.bin", std::ios::binary);
    std::vector<uint16_t> piece(1'000'000);
    for (int64_t at = 0; at < kTokens; at += std::ssize(piece)) {
      for (std::size_t i = 0; i < piece.size(); ++i)
        piece[i] = token_at(at + static_cast<int64_t>(i));
      out.write(reinterpret_cast<const char*>(piece.data()), std::ssize(piece) * 2);
    }
    out.close();
    const MemoryLimit small(32 << 20);
    return prepare_tokens(
        {.file = dir_ / "raw.bin", .out = dir_ / "o.h5", .vocab = 50257, .split = {1, 0, 0}});
  }

  TempDir dir_;
};

// How often check_once calls its check in a process of its own.
int checks_of(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    int calls = 0;
    const int file = open(path.c_str(), O_RDONLY);
    for (int i = 0; i < 2; ++i) check_once(file, "test", [&] { ++calls; });
    _exit(calls);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(LargeData, TakesNoMemoryAndIsReadWholeOnce) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer takes memory of its own";
#endif
  EXPECT_CONTAINS(prepare(), "150000000 tokens, vocabulary 50257");
  {
    const MemoryLimit small(32 << 20);
    const TokenDataset data(dir_ / "o.h5", "train", 50257);
    ASSERT_EQ(data.size(), kTokens);
    std::vector<int32_t> window(100'000);
    for (int64_t first = 0; first < kTokens; first += 14'990'001) {
      const auto part = std::span(window).first(std::min(std::ssize(window), kTokens - first));
      data.read(first, part);
      for (std::size_t i = 0; i < part.size(); i += 997)
        ASSERT_EQ(part[i], token_at(first + static_cast<int64_t>(i))) << first;
    }
  }
  std::size_t notes = 0;
  for ([[maybe_unused]] const auto& note :
       std::filesystem::directory_iterator(dir_ / "cache/weft/checked"))
    ++notes;
  EXPECT_EQ(notes, 2u);  // of the seal, of tokens below the vocabulary
  EXPECT_EQ(checks_of(dir_ / "o.h5"), 1);
  EXPECT_EQ(checks_of(dir_ / "o.h5"), 0);  // another process
  std::fstream(dir_ / "o.h5", std::ios::in | std::ios::out | std::ios::binary).seekp(1000).put('x');
  EXPECT_EQ(checks_of(dir_ / "o.h5"), 1);  // another time
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir_ / "o.h5", "train", 50257); }), "is damaged");
}

// A file that shrinks below what is open: an error in the middle of a run, not other tokens.
TEST(StoredData, ThatShrinksIsAnError) {
  const TempDir dir;
  write_token_file(dir / "a.h5", std::vector<uint16_t>(1000, 7), 256, {1, 0, 0}, "");
  const TokenDataset data(dir / "a.h5", "train", 8);
  std::filesystem::resize_file(dir / "a.h5", 600);
  std::vector<int32_t> all(1000);
  EXPECT_CONTAINS(error_of([&] { data.read(0, all); }), "a.h5: is truncated in /train");
}

TEST(StoredData, OfALargeVocabularyComesBack) {
  const TempDir dir;
  std::vector<uint32_t> tokens(70'000);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<uint32_t>(i * 1237 % kMostVocab);
  tokens.back() = kMostVocab - 1;
  write_token_file(dir / "a.h5", tokens, kMostVocab, {1, 0, 0}, "");
  const TokenDataset data(dir / "a.h5", "train", kMostVocab);
  std::vector<int32_t> all(tokens.size());
  data.read(0, all);
  EXPECT_TRUE(std::equal(all.begin(), all.end(), tokens.begin()));
  EXPECT_CONTAINS(error_of([&] { TokenDataset(dir / "a.h5", "train", 1000); }),
                  "token 1 of train is 1237, outside the vocabulary of 1000 (model.vocab)");
}

// Chunks of which a piece of rows needs several, and others that hold several pieces.
TEST(StoredData, CompressedByH5pyIsUnpacked) {
  if (python("-c 'import h5py'").first != 0)
    GTEST_SKIP() << "no h5py; name a Python that has it in WEFT_PYTHON";
  const TempDir dir;
  write_file(dir / "write.py",
             "import h5py, numpy, sys\n"
             "f = h5py.File(sys.argv[1], 'w')\n"
             "a = (numpy.arange(9000000) * 31 % 70001).astype('u4')\n"
             "f.create_dataset('train', data=a, chunks=(100001,), compression='gzip', "
             "compression_opts=1)\n"
             "f.create_dataset('valid', data=a, chunks=(8000000,), compression='gzip', "
             "compression_opts=1)\n"
             "f.create_dataset('test', data=a[:24].reshape(2, 2, 2, 3), compression='gzip')\n");
  ASSERT_EQ(python((dir / "write.py") + " " + (dir / "a.h5")).first, 0);
  for (const char* split : {"train", "valid", "test"}) {
    const TokenDataset data(dir / "a.h5", split, 70001);
    std::vector<int32_t> all(static_cast<std::size_t>(data.size()));
    data.read(0, all);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      wrong += all[i] != static_cast<int32_t>(i * 31 % 70001);
    EXPECT_EQ(wrong, 0u) << split;
  }
}
}  // namespace
}  // namespace weft
