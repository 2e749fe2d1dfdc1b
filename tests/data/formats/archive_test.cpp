// SPDX-License-Identifier: MIT
// Members of archives: zips stored and deflated, tars plain and compressed, built by hand; damage
// and bombs give an Error.
#include "data/formats/archive.h"

#include "tests/data/formats/archives.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
using Members = std::vector<std::pair<std::string, std::string>>;

class Archive : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_archives()) GTEST_SKIP() << "built without libarchive";
  }

  Members read(const std::string& name, const ArchiveLimits& limits = {}) {
    Members members;
    for_each_member(
        dir_ / name, [](const std::string& member) { return !member.starts_with("skip"); },
        [&](const std::string& member, std::string bytes) {
          members.emplace_back(member, std::move(bytes));
        },
        limits);
    return members;
  }

  std::string error(const std::string& bytes, const ArchiveLimits& limits = {}) {
    write_file(dir_ / "x", bytes);
    return error_of([&] { read("x", limits); });
  }

  TempDir dir_;
};

const Members kMembers = {
    {"a.npy", "hello"}, {"skip.npy", "no"}, {"empty", ""}, {"dir/b", std::string(3000, 'b')}};
const Members kWanted = {kMembers[0], kMembers[2], kMembers[3]};

TEST_F(Archive, ReadsZipsAndTars) {
  write_file(dir_ / "a.zip", zip_of(kMembers));
  EXPECT_EQ(read("a.zip"), kWanted);
  write_file(dir_ / "a.tar", tar_of(kMembers));
  EXPECT_EQ(read("a.tar"), kWanted);
  write_file(dir_ / "a.tar.gz", stored_gzip(tar_of(kMembers)));
  EXPECT_EQ(read("a.tar.gz"), kWanted);
}

TEST_F(Archive, PassesOverLinksAndFolders) {
  write_file(dir_ / "a.tar", tar_member("up", "", '2', "/etc/passwd") +
                                 tar_member("dir/", "", '5') + tar_member("hard", "", '1', "up") +
                                 tar_of(kMembers));
  EXPECT_EQ(read("a.tar"), kWanted);
}

TEST_F(Archive, KnowsThemByTheirBeginning) {
  EXPECT_TRUE(is_archive(zip_of(kMembers)));
  EXPECT_TRUE(is_archive(zip_of({})));
  EXPECT_TRUE(is_archive(tar_of(kMembers)));
  EXPECT_TRUE(is_archive(stored_gzip("x")));
  EXPECT_FALSE(is_archive(""));
  EXPECT_FALSE(is_archive("\x93NUMPY"));
  EXPECT_FALSE(is_archive(std::string(512, '\0')));
}

TEST_F(Archive, TruncatedAnywhereIsAnError) {
  const Members members = {{"a", "some bytes"}, {"b", std::string(700, 'b')}};
  const std::string tar = tar_of(members);
  for (const std::string& whole : {zip_of(members), tar, stored_gzip(tar)}) {
    // a tar's end mark and a gzip's checksum
    const std::size_t end = whole[0] == 'P' ? 0 : 1024 + 8;
    for (std::size_t size = 0; size < whole.size(); size += 1 + size % 31) {
      if (!error(whole.substr(0, size)).empty()) continue;
      EXPECT_EQ(read("x"), members) << size << " of " << whole.size();
      EXPECT_GT(size + end, whole.size()) << "more than the end is missing";
    }
  }
}

TEST_F(Archive, DamagedBytesAreNoticed) {
  std::string zip = zip_of({{"a.npy", "hello world"}});
  zip[zip.find("world")] = 'W';
  EXPECT_CONTAINS(error(zip), "a.npy cannot be read: ");
  const std::string whole = zip_of(kMembers);
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 17) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    error(damaged);
  }
}

TEST_F(Archive, LimitsHold) {
  const std::string bomb = zip_of({{"a", std::string(5000, 'a')}, {"b", std::string(5000, 'b')}});
  EXPECT_EQ(error(bomb, {.member = 5000, .total = 10000, .count = 2}), "");
  EXPECT_CONTAINS(error(bomb, {.member = 4999}), "a is too large: more than 4999 bytes");
  EXPECT_CONTAINS(error(bomb, {.total = 9999}), "b is too large: more than 9999 bytes in all");
  EXPECT_CONTAINS(error(bomb, {.count = 1}), "has more than 1 members");
}

TEST_F(Archive, MoreThanAHundredTimesItsSizeIsABomb) {
  const std::string make =
      "cd " + dir_.path() + " && head -c 3000000 /dev/zero > zeros && tar -czf x zeros";
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string bomb = read_file(dir_ / "x");
  ASSERT_LT(bomb.size(), 10000u);
  EXPECT_EQ(error(bomb), "") << "a small one";
  EXPECT_CONTAINS(error(bomb, {.small = 5}),
                  str("zeros is too large: more than ", 5 + 100 * bomb.size(), " bytes"));
}

TEST_F(Archive, OtherFilesAreNamed) {
  EXPECT_CONTAINS(error("some text"), "x: is no archive; expected zip (npz), tar or tar.gz");
  EXPECT_CONTAINS(error_of([&] { read("missing"); }), "cannot be opened");
  EXPECT_CONTAINS(error_of([&] { read(""); }), "is a folder");
  EXPECT_CONTAINS(error(stored_gzip("some text")), "the archive cannot be read");
}

TEST_F(Archive, ReadsWhatPythonWrites) {
  const char* chosen = std::getenv("WEFT_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  if (std::system((python + " -c 'import zipfile' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no Python";
  write_file(dir_ / "make.py", R"(import io, sys, tarfile, zipfile
members = [("a.npy", b"hello"), ("skip.npy", b"no"), ("empty", b""), ("dir/b", 3000 * b"b")]
for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
  with zipfile.ZipFile(f"{sys.argv[1]}/{name}", "w", method) as z:
    for member, data in members:
      with z.open(member, "w", force_zip64=True) as f:
        f.write(data)
for name, mode in (("tar", "w"), ("gz", "w:gz")):
  for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    with tarfile.open(f"{sys.argv[1]}/{name}{kind}", mode, format=kind) as t:
      for member, data in members:
        info = tarfile.TarInfo(member)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))
)");
  ASSERT_EQ(std::system(str(python, " ", dir_ / "make.py", " ", dir_.path()).c_str()), 0);
  for (const char* name : {"stored", "deflated", "tar0", "tar1", "tar2", "gz0", "gz1", "gz2"})
    EXPECT_EQ(read(name), kWanted) << name;
}

TEST(ArchiveMissing, SaysWhatToInstall) {
  if (has_archives()) GTEST_SKIP() << "built with libarchive";
  const auto nothing = [](const std::string&, std::string) {};
  EXPECT_CONTAINS(error_of([&] {
                    for_each_member(
                        "a.npz", [](const auto&) { return true; }, nothing);
                  }),
                  "install libarchive-dev");
}
}  // namespace
}  // namespace weft
