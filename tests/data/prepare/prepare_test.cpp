// SPDX-License-Identifier: MIT
// The commands of `prepare` on small files: what they write, what they refuse, and that a refusal
// leaves nothing behind.
#include "data/prepare/prepare.h"

#include "data/dataset.h"
#include "data/prepare/raw_file.h"
#include "src/files/hdf5.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::vector<int32_t> split_of(const std::string& path, const std::string& split,
                              int64_t vocab = 256) {
  const TokenDataset data(path, split, vocab);
  std::vector<int32_t> tokens(static_cast<std::size_t>(data.size()));
  data.read(0, tokens);
  return tokens;
}

TEST(Md5, VectorsOfRfc1321) {
  const auto sum = [](const std::string& s) { return md5(s); };
  EXPECT_EQ(sum(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(sum("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(sum("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(sum("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(sum("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(sum("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f");
  std::string digits;
  for (int i = 0; i < 8; ++i) digits += "1234567890";
  EXPECT_EQ(sum(digits), "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(PrepareText, JoinsFilesInTheOrderGiven) {
  TempDir dir;
  write_file(dir / "b.txt", std::string("hello\0\xff", 7));
  write_file(dir / "a.txt", "abc");
  const std::string lines =
      prepare_text({{dir / "b.txt", dir / "a.txt"}, dir / "o.h5", {0.5, 0.3, 0.2}});
  EXPECT_EQ(lines, "read " + (dir / "b.txt") + ": 7 bytes\nread " + (dir / "a.txt") +
                       ": 3 bytes\nwrote " + (dir / "o.h5") +
                       ": 10 tokens, vocabulary 256 (train 5, valid 3, test 2)");
  EXPECT_EQ(split_of(dir / "o.h5", "train"), (std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(split_of(dir / "o.h5", "valid"), (std::vector<int32_t>{0, 255, 'a'}));
  EXPECT_EQ(split_of(dir / "o.h5", "test"), (std::vector<int32_t>{'b', 'c'}));
  EXPECT_EQ(Hdf5File::open(dir / "o.h5").text_attribute("sources"), "b.txt, a.txt");
}

TEST(PrepareText, SplitsThatGetNothingAreNamed) {
  TempDir dir;
  const auto lines = [&](const std::string& text, const std::vector<double>& split) {
    write_file(dir / "a.txt", text);
    return prepare_text({{dir / "a.txt"}, dir / "o.h5", split});
  };
  EXPECT_CONTAINS(lines("ab", {0.9, 0.05, 0.05}),
                  "(train 2, valid 0, test 0)\nwarning: valid and test are empty: 2 tokens are too "
                  "few for --split 0.9,0.05,0.05; training evaluates nothing without valid; give "
                  "more data or other shares");
  EXPECT_CONTAINS(lines("abcd", {0.75, 0.2, 0.05}), "\nwarning: test is empty: 4 tokens");
  EXPECT_EQ(lines("ab", {1, 0, 0}).find("warning"), std::string::npos) << "as it was asked for";
}

TEST(PrepareText, ErrorsLeaveTheEarlierFile) {
  TempDir dir;
  write_file(dir / "a.txt", "abc");
  write_file(dir / "empty.txt", "");
  prepare_text({{dir / "a.txt"}, dir / "o.h5"});
  const std::string before = read_file(dir / "o.h5");
  const auto error = [&](std::vector<std::string> files, const std::string& out) {
    return error_of([&] { prepare_text({std::move(files), out}); });
  };
  EXPECT_EQ(error({dir / "a.txt", dir / "none.txt"}, dir / "o.h5"),
            dir / "none.txt: cannot be opened: No such file or directory");
  EXPECT_EQ(error({dir / "empty.txt"}, dir / "o.h5"), dir / "empty.txt: is empty");
  EXPECT_EQ(error({dir.path()}, dir / "o.h5"), dir.path() + ": is a folder, expected a file");
  EXPECT_CONTAINS(error({dir / "o.h5"}, dir / "o.h5"), "is both read and written");
  EXPECT_CONTAINS(error({dir / "a.txt"}, dir / "none/o.h5"),
                  "there is no folder " + (dir / "none"));
  EXPECT_CONTAINS(error({}, dir / "o.h5"), "at least one file");
  EXPECT_CONTAINS(error_of([&] {
                    prepare_text({{dir / "a.txt"}, dir / "o.h5", {1, 1, 1}});
                  }),
                  "split 1,1,1: expected three");
  EXPECT_EQ(read_file(dir / "o.h5"), before);
  EXPECT_FALSE(std::filesystem::exists(dir / "o.h5.tmp"));
}

const std::string kBeginning = "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.3/\" ...";

TEST(PrepareEnwik8, ErrorsAndPrefixes) {
  TempDir dir;
  PrepareEnwik8 o{.from = dir / "raw", .out = dir / "o.h5"};
  const auto error = [&] { return error_of([&] { prepare_enwik8(o); }); };
  EXPECT_CONTAINS(error(), "raw: cannot be opened");
  write_file(o.from, "PK\3\4...");
  EXPECT_CONTAINS(error(), "is a zip file; unzip it");
  write_file(o.from, "something else");
  EXPECT_CONTAINS(error(), "does not begin as enwik8 does");
  write_file(o.from, kBeginning);
  EXPECT_CONTAINS(
      error(), str("raw: has ", kBeginning.size(), " bytes, enwik8 has 100000000; --allow-prefix"));
  o.allow_prefix = true;
  EXPECT_CONTAINS(prepare_enwik8(o),
                  str("the first ", kBeginning.size(), " bytes of enwik8 (not checked further)"));
  EXPECT_CONTAINS(*Hdf5File::open(o.out).text_attribute("description"), "the first ");
}

TEST(PrepareNovels, FilesAreJoinedInTheOrderOfTheirNames) {
  TempDir dir;
  std::filesystem::create_directories(dir / "clone/corpus");
  write_file(dir / "clone/corpus/b.txt", "\n\nSecond\r\n\r\nbook\n");
  write_file(dir / "clone/corpus/a.txt",
             "\xef\xbb\xbf"
             "First\r\n");
  write_file(dir / "clone/corpus/B.txt", "Zeroth");
  write_file(dir / "clone/corpus/notes.csv", "no novel");
  const std::string joined = "Zeroth\n\n\nFirst\n\n\nSecond\n\nbook\n\n\n";
  PrepareNovels o{.from = dir / "clone", .out = dir / "o.h5"};
  const std::string error = error_of([&] { prepare_novels(o); });
  EXPECT_CONTAINS(error, str("3 files give ", joined.size(), " bytes with md5 "));
  EXPECT_CONTAINS(error, "expected 214fdd4851a0200f829aa510687baff3");
  EXPECT_FALSE(std::filesystem::exists(o.out));
  o.md5 = md5(joined);
  EXPECT_CONTAINS(prepare_novels(o), "3 English novels");
  o.from = dir / "clone/corpus";
  prepare_novels(o);
  std::string read;
  for (const char* split : {"train", "valid", "test"})
    for (const int32_t token : split_of(o.out, split)) read += static_cast<char>(token);
  EXPECT_EQ(read, joined);
}

TEST(PrepareNovels, ErrorsSayWhatIsMissing) {
  TempDir dir;
  const auto error = [&](const std::string& from) {
    return error_of([&] { prepare_novels({.from = from, .out = dir / "o.h5"}); });
  };
  EXPECT_CONTAINS(error(dir / "none"), "is no folder, expected a clone");
  EXPECT_CONTAINS(error(dir.path()), "has no .txt files");
  testing::internal::CaptureStderr();
  const std::string offline = error_of(
      [&] { prepare_novels({.out = dir / "o.h5", .repository = "http://127.0.0.1:9/none"}); });
  testing::internal::GetCapturedStderr();
  EXPECT_CONTAINS(offline, "--from DIR");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PrepareEnwik8, WithoutNetworkSaysTheWayOut) {
  TempDir dir;
  const PrepareEnwik8 o{.out = dir / "o.h5", .url = "http://127.0.0.1:9/enwik8.zip"};
  testing::internal::CaptureStderr();
  const std::string error = error_of([&] { prepare_enwik8(o); });
  testing::internal::GetCapturedStderr();
  EXPECT_CONTAINS(error, "give the file with --from");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(PrepareCopy, RepeatsAtTheDistanceWithKnownEntropy) {
  TempDir dir;
  const PrepareCopy o{
      .distance = 37,
      .length = 200000,
      .vocab = 10,
      .resample = 0.2,
      .seed = 5,
      .out = dir / "o.h5",
      .split = {1, 0, 0},
  };
  const std::string lines = prepare_copy(o);
  EXPECT_CONTAINS(lines, "bits a token when the token 37 before is seen, else 3.32193");
  const auto tokens = split_of(o.out, "train", 10);
  // Entropy of t given t - 37, from counts: the plug-in estimate is within 0.01 of the truth for so
  // many tokens.
  std::map<std::pair<int, int>, double> pairs;
  std::map<int, double> firsts;
  for (std::size_t t = 37; t < tokens.size(); ++t)
    ++pairs[{tokens[t - 37], tokens[t]}], ++firsts[tokens[t - 37]];
  double bits = 0;
  for (const auto& [pair, n] : pairs) bits -= n * std::log2(n / firsts[pair.first]);
  bits /= static_cast<double>(tokens.size() - 37);
  EXPECT_NEAR(bits, copy_entropy(10, 0.2), 0.01);
  for (const auto& [token, n] : firsts) EXPECT_NEAR(n, 20000, 1500) << token;
  prepare_copy(o);
  const std::string same = read_file(o.out);
  PrepareCopy other = o;
  other.seed = 6;
  prepare_copy(other);
  EXPECT_NE(read_file(o.out), same);
}

TEST(PrepareCopy, EntropyInClosedForm) {
  EXPECT_DOUBLE_EQ(copy_entropy(16, 1), 4);
  EXPECT_DOUBLE_EQ(copy_entropy(2, 0.5), -0.75 * std::log2(0.75) - 0.25 * std::log2(0.25));
}

TEST(PrepareCopy, Errors) {
  const auto error = [](PrepareCopy o) { return error_of([&] { prepare_copy(o); }); };
  EXPECT_CONTAINS(error({.distance = 5, .length = 5}),
                  "--distance: expected 1 to less than --length 5, got 5");
  EXPECT_CONTAINS(error({.distance = 0}), "--distance");
  EXPECT_CONTAINS(error({.length = int64_t{1} << 40}), "--length: expected at most 4294967296");
  EXPECT_CONTAINS(error({.vocab = 1}), "--vocab: expected 2 to 65536, got 1");
  EXPECT_CONTAINS(error({.resample = 0}), "--resample: expected more than 0 and at most 1, got 0");
}

// Runs the program; returns its exit code, and what it says on either channel in `said`.
int run_program(const std::string& arguments, const TempDir& dir, std::string& said) {
  const int status = std::system(
      (WEFT_TEST_BIN "/prepare " + arguments + " >" + (dir / "said") + " 2>&1").c_str());
  said = read_file(dir / "said");
  return WEXITSTATUS(status);
}

TEST(PrepareProgram, WritesOrSaysOneLineAndExitsWithOne) {
  TempDir dir;
  std::string said;
  write_file(dir / "a.txt", std::string(1000, 'a'));
  EXPECT_EQ(
      run_program("text " + (dir / "a.txt") + " --split 0.5,0.25,0.25 --out " + (dir / "o.h5"), dir,
                  said),
      0)
      << said;
  EXPECT_CONTAINS(said, "(train 500, valid 250, test 250)");
  EXPECT_EQ(run_program("copy --distance 3 --length 100 --vocab 4 --seed 1 --out " + (dir / "c.h5"),
                        dir, said),
            0)
      << said;
  EXPECT_EQ(run_program("--help", dir, said), 0);
  for (const char* command : {"text", "tokens", "enwik8", "novels", "copy"})
    EXPECT_CONTAINS(said, command);
  const std::vector<std::string> mistakes = {"",
                                             "txet a",
                                             "text a",
                                             "text --out b.h5",
                                             "text /none --out " + (dir / "o.h5"),
                                             "copy --distance x --out " + (dir / "o.h5"),
                                             "enwik8 --from /none --out " + (dir / "o.h5")};
  for (const std::string& wrong : mistakes) {
    EXPECT_EQ(run_program(wrong, dir, said), 1) << wrong;
    EXPECT_TRUE(said.starts_with("error: ")) << wrong << ": " << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << wrong << ": " << said;
  }
}
}  // namespace
}  // namespace weft
