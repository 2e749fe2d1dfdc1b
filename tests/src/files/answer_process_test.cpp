// SPDX-License-Identifier: MIT
// A process that answers questions: whatever becomes of it, the one that asks goes on.
#include "src/files/hdf5_reader.h"
#include "tests/temp_dir.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace weft {
namespace {
std::string answer(const std::string& question) {
  if (question == "refuse") fail("refused\nwith a reason");
  if (question == "crash") abort();
  if (question == "leave") _exit(3);
  if (question == "no memory") throw std::bad_alloc();
  while (question == "hang") continue;
  if (question == "late") sleep(2);  // longer than a busy machine keeps this process waiting
  return question + question;
}

TEST(AnswerProcess, AnswersOfAnyLengthAndErrorsComeBack) {
  AnswerProcess process(answer, 10);
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(process.ask("f", ""), "");
  EXPECT_EQ(process.ask("f", large), large + large);
  EXPECT_EQ(error_of([&] { process.ask("f", "refuse"); }), "refused\nwith a reason");
  EXPECT_EQ(error_of([&] { process.ask("f", "no memory"); }), "out of memory");
  EXPECT_EQ(process.ask("f", "ab"), "abab") << "goes on after an error";
}

TEST(AnswerProcess, ItsEndIsAnError) {
  for (const auto& [question, how] :
       {std::pair{"crash", "Aborted"}, {"leave", "ended"}, {"hang", "took too long"}}) {
    AnswerProcess process(answer, 1);
    for (int twice = 0; twice < 2; ++twice)
      EXPECT_CONTAINS(error_of([&] { process.ask("f.h5", question); }),
                      twice ? "f.h5: is damaged" : how);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "none is left";
}

// A call that fails while the child lives on: it waits for a next question, and this process for
// its end.
TEST(AnswerProcess, AConnectionThatFailsIsItsEnd) {
  // the second child has the first one's socket, too
  AnswerProcess process(answer, 1), later(answer, 1);
  for (int fd = 3; fd < 64; ++fd) {
    const timeval patience{0, 100'000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  alarm(30);
  EXPECT_CONTAINS(error_of([&] { process.ask("f.h5", "late"); }), "f.h5: is damaged");
  alarm(0);
}

TEST(AnswerProcess, LeavesNoDescriptor) {
  const auto next = [] {  // the lowest that is free
    const int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
  };
  const int before = next();
  { AnswerProcess process(answer, 1); }
  EXPECT_EQ(next(), before);
}
}  // namespace
}  // namespace weft
