// SPDX-License-Identifier: MIT
// What stands under a name: links, devices, pipes and folders, as outputs and as inputs.
#include "src/files/files.h"

#include "tests/temp_dir.h"

#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
using Names = std::vector<std::string>;

void write_text(const std::string& path, const std::string& text) {
  write_whole_file(path, [&](std::ostream& out) { out << text; });
}

std::string output_error(const std::string& path, Devices devices = Devices::refused) {
  const std::string early = error_of([&] { check_output(path, devices); });
  EXPECT_EQ(error_of([&] { NewFile(path, devices); }), early)
      << "checked before the work as after it";
  return early;
}

std::string input_error(const std::string& path, int64_t most = 100) {
  return error_of([&] { read_input(path, most); });
}

TEST(Outputs, LinksStayAndWhatTheyLeadToIsReplaced) {
  const TempDir dir;
  fs::create_directory(dir / "inner");
  write_file(dir / "inner/target", "old");
  fs::create_symlink("inner/second", dir / "first");
  fs::create_symlink("target", dir / "inner/second");
  fs::create_symlink(dir / "fresh", dir / "dangling");

  struct stat before {
  }, after{};

  stat((dir / "inner/target").c_str(), &before);
  write_text(dir / "first", "new");
  EXPECT_TRUE(fs::is_symlink(dir / "first") && fs::is_symlink(dir / "inner/second"));
  EXPECT_EQ(read_file(dir / "inner/target"), "new");
  stat((dir / "inner/target").c_str(), &after);
  EXPECT_NE(before.st_ino, after.st_ino) << "a new file, which appears whole";
  write_text(dir / "dangling", "text");
  EXPECT_TRUE(fs::is_symlink(dir / "dangling"));
  EXPECT_EQ(read_file(dir / "fresh"), "text");
  EXPECT_EQ(dir.names(), (Names{"dangling", "first", "fresh", "inner"}));
  fs::create_symlink("circle", dir / "circle");
  EXPECT_CONTAINS(output_error(dir / "circle"),
                  "circle: cannot be written: Too many levels of symbolic");
  fs::create_symlink("no/folder", dir / "lost");
  EXPECT_CONTAINS(error_of([&] { write_text(dir / "lost", "x"); }),
                  "there is no folder " + (dir / "no"));
}

TEST(Outputs, DevicesAndPipesAreWrittenOrRefusedButNeverReplaced) {
  const TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", dir / "link");
  std::string got;
  std::thread reader([&] { got = read_file(dir / "pipe"); });
  write_text(dir / "link", "through the pipe");
  reader.join();
  EXPECT_EQ(got, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(dir / "pipe"));
  EXPECT_CONTAINS(output_error(dir / "pipe"),
                  "pipe: is a device or pipe, expected the name of a regular file");
  EXPECT_CONTAINS(output_error("/dev/null"), "/dev/null: is a device or pipe");
  write_text("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_CONTAINS(error_of([] { write_text("/dev/full", "x"); }),
                  "/dev/full: could not be written: No space left on device; free some space");
  EXPECT_EQ(dir.names(), (Names{"link", "pipe"}));
}

// What a shell opened is written to, also when it is a file: it stays the one that the shell has.
TEST(Outputs, OpenFilesGoOn) {
  const TempDir dir;
  write_file(dir / "file", "first, ");
  const int file = open((dir / "file").c_str(), O_WRONLY);
  write_text(str("/dev/fd/", file), "second");
  close(file);
  EXPECT_EQ(read_file(dir / "file"), "first, second");
}

TEST(Outputs, NamesThatNoFileCanHave) {
  const TempDir dir;
  write_file(dir / "file", "");
  EXPECT_EQ(output_error(""), "expected the name of a file to write, got an empty one");
  EXPECT_CONTAINS(output_error(dir.path()), "is a folder, expected the name of a file to write");
  EXPECT_CONTAINS(output_error(dir / "file/inner"), "Not a directory");
  const std::string longest = dir / std::string(255, 'x'), endless(5000, 'y');
  EXPECT_EQ(output_error(longest), "");
  write_text(longest, "fits");
  EXPECT_EQ(read_file(longest), "fits");
  EXPECT_CONTAINS(output_error(longest + "x"), "File name too long");
  EXPECT_CONTAINS(output_error(endless), "...: cannot be written: File name too long");
  EXPECT_LT(output_error(endless).size(), 200u);
}

TEST(Outputs, WritersOfOneNameDoNotMeet) {
  const TempDir dir;
  {
    NewFile one(dir / "file"), two(dir / "file"), dropped(dir / "file");
    one.write("one", 3), two.write("two, longer", 11), dropped.write("x", 1);
    two.commit();
    EXPECT_EQ(read_file(dir / "file"), "two, longer");
    one.commit();
    EXPECT_EQ(read_file(dir / "file"), "one");
  }
  EXPECT_EQ(dir.names(), (Names{"file"}));

  struct stat info {};

  stat((dir / "file").c_str(), &info);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST(Inputs, AreFilesAndPipesOfAShellUpToALimit) {
  const TempDir dir;
  write_file(dir / "file", std::string(100, 'x'));
  EXPECT_EQ(read_input(dir / "file", 100), std::vector<char>(100, 'x'));
  EXPECT_CONTAINS(input_error(dir / "file", 99), "file: has 100 bytes; at most 99 are read");
  EXPECT_CONTAINS(input_error(dir.path()), "is a folder, expected a file");
  EXPECT_CONTAINS(input_error(dir / "none"), "cannot be opened: No such file");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", dir / "a.png");
  for (const std::string& path : {dir / "pipe", dir / "a.png", std::string("/dev/zero")})
    EXPECT_CONTAINS(input_error(path), path + ": is a device or named pipe, expected a file");
  for (const std::size_t size : {100, 101}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], std::string(size, 'y').data(), size), static_cast<ssize_t>(size));
    close(ends[1]);
    const std::string path = str("/dev/fd/", ends[0]);
    if (size == 100)
      EXPECT_EQ(read_input(path, 100), std::vector<char>(100, 'y'));
    else
      EXPECT_CONTAINS(input_error(path), path + ": has more than 100 bytes");
    close(ends[0]);
  }
}
}  // namespace
}  // namespace weft
