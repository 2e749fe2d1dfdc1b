// SPDX-License-Identifier: MIT
// Files that go to the disk: what is in them, and what goes wrong.
#include "src/files/descriptor.h"
#include "src/files/files.h"
#include "tests/src/files/failing_calls.h"
#include "tests/src/files/file_limit.h"
#include "tests/src/files/hung_thread.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
// Bytes of which no two pieces have the same ones.
std::string long_text(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 2654435761u >> 17);
  return text;
}

struct OpenFile {
  int fd;

  OpenFile(const std::string& path, int how)
      : fd(open(path.c_str(), how | O_CREAT, 0600)) {}

  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  ~OpenFile() { close(fd); }
};

TEST(DiskWriter, WritesAll) {
  const TempDir dir;
  const std::string text = long_text((std::size_t{5} << 20) + 12345);
  for (const std::size_t at_once : {text.size(), text.size() / 3}) {
    const OpenFile file(dir / "file", O_WRONLY | O_TRUNC);
    for (std::size_t first = 0; first < text.size(); first += at_once)
      ASSERT_EQ(write_all(file.fd, text.data() + first, std::min(at_once, text.size() - first)), 0);
    ASSERT_EQ(sync_to_disk(file.fd), 0);
    EXPECT_TRUE(read_file(dir / "file") == text);
  }
}

TEST(DiskWriter, SaysWhatWentWrong) {
  const TempDir dir;
  const OpenFile file(dir / "file", O_RDONLY);
  EXPECT_EQ(write_all(file.fd, "x", 1), EBADF);
  EXPECT_EQ(sync_to_disk(-1), EBADF);
  EXPECT_EQ(disk_error(EBADF), "Bad file descriptor");
  for (const int full : {ENOSPC, EDQUOT, EFBIG})
    EXPECT_CONTAINS(disk_error(full), "; free some space there or write to another disk");
}

// A system call may take a part of what it is given, and only then say why it takes no more.
TEST(DiskWriter, AFullDiskIsFoundAfterAPart) {
  const TempDir dir;
  const std::size_t room = (std::size_t{1} << 20) + 123;
  const std::string text = long_text(room + 4096);
  const OpenFile file(dir / "file", O_WRONLY);
  {
    const FileLimit full(room);
    EXPECT_EQ(write_all(file.fd, text.data(), text.size()), EFBIG);
  }
  EXPECT_TRUE(read_file(dir / "file") == text.substr(0, room));
}

TEST(DiskWriter, ACallThatASignalInterruptsIsMadeAgain) {
  int calls = 0;
  const auto returns = [&](int result, int error) {
    calls = 0;
    return uninterrupted([&, result, error] {
      errno = ++calls < 3 ? EINTR : error;
      return calls < 3 ? -1 : result;
    });
  };
  EXPECT_EQ(returns(7, 0), 7);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(returns(-1, EIO), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(uninterrupted([&] { return errno = EINTR, 0; }), 0)
      << "errno counts after a failure alone";
}

// A file whose sync failed may have lost any of its bytes.
TEST(DiskWriter, AFailedSyncIsNoSuccess) {
  const TempDir dir;
  write_file(dir / "file", "earlier");
  for (const int error : {EIO, ENOSPC}) {
    std::string said;
    with_failing_calls({SYS_fsync, SYS_fdatasync}, error, [&] {
      said = error_of(
          [&] { write_whole_file(dir / "file", [](std::ostream& out) { out << "new"; }); });
    });
    EXPECT_EQ(said, str(dir / "file", ": could not be written: ", disk_error(error),
                        " (the earlier file is unchanged)"));
    EXPECT_EQ(read_file(dir / "file"), "earlier");
    EXPECT_EQ(dir.names(), (std::vector<std::string>{"file"}));
  }
}

// Bytes first, then the name, then the folder, without which the name is not on the disk.
TEST(DiskWriter, TheFolderIsSyncedBehindTheName) {
  const TempDir dir;
  const pid_t writer = fork();
  if (writer == 0) {
    raise(SIGSTOP);
    write_whole_file(dir / "file", [](std::ostream& out) { out << "text"; });
    _exit(0);
  }
  waitpid(writer, nullptr, WUNTRACED);
  HungThread thread(writer);
  if (!thread) GTEST_SKIP() << "this process may not trace others";
  kill(writer, SIGCONT);
  EXPECT_TRUE(thread.runs_to_disk_call(" (deleted)")) << "bytes";
  EXPECT_FALSE(fs::exists(dir / "file"));
  ASSERT_TRUE(thread.runs_to_disk_call(dir.path())) << "the folder is not synced";
  EXPECT_EQ(read_file(dir / "file"), "text");
  thread.let_go();
  int status = -1;
  waitpid(writer, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Files, CopiesAppearWhole) {
  const TempDir dir;
  const std::string text = long_text((std::size_t{2} << 20) + 7);
  write_file(dir / "from", text);
  write_file(dir / "to", "what was there before");
  copy_whole_file(dir / "from", dir / "to");
  EXPECT_TRUE(read_file(dir / "to") == text);
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"from", "to"}));
  write_file(dir / "to", "kept");
  EXPECT_CONTAINS(error_of([&] { copy_whole_file(dir / "none", dir / "to"); }),
                  dir / "none: cannot be opened: No such file or directory");
  EXPECT_CONTAINS(error_of([&] { copy_whole_file(dir / "from", dir / "no/folder"); }),
                  dir / "no/folder: cannot be written: there is no folder " + (dir / "no"));
  const std::string full = error_of([&] {
    const FileLimit limit(std::size_t{1} << 20);
    copy_whole_file(dir / "from", dir / "to");
  });
  EXPECT_CONTAINS(full, dir / "to: could not be written: File too large; free some space there");
  EXPECT_EQ(read_file(dir / "to"), "kept");
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"from", "to"}));
}

TEST(Files, AppearWholeOrNotAtAll) {
  const TempDir dir;
  const auto write = [&](const std::string& path, const std::string& text) {
    return error_of([&] { write_whole_file(path, [&](std::ostream& out) { out << text; }); });
  };
  EXPECT_EQ(write(dir / "file", "first"), "");
  EXPECT_EQ(write(dir / "file", "second"), "");
  EXPECT_EQ(read_file(dir / "file"), "second");
  EXPECT_CONTAINS(write(dir / "no/folder", "x"),
                  dir / "no/folder: cannot be written: there is no folder " + (dir / "no"));
  std::string error;
  {
    const FileLimit limit(100);
    error = write(dir / "file", std::string(100000, 'x'));
  }
  EXPECT_CONTAINS(error, dir / "file: could not be written: ");
  EXPECT_CONTAINS(error, "free some space there");
  const auto stops = [](std::ostream& out) {
    out << "half";
    fail("the writer stops");
  };
  EXPECT_EQ(error_of([&] { write_whole_file(dir / "file", stops); }), "the writer stops");
  EXPECT_EQ(read_file(dir / "file"), "second");
  EXPECT_EQ(dir.names(), (std::vector<std::string>{"file"}));
}
}  // namespace
}  // namespace weft
