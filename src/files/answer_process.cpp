// SPDX-License-Identifier: MIT
#include "src/files/answer_process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>

#include "kernels/view.h"

namespace weft {
namespace {

// Every message is its length, then its bytes. False: the other process is gone.
bool send_message(int socket, const std::string& text) {
  const std::uint64_t size = text.size();
  return send_all(socket, &size, sizeof size) && send_all(socket, text.data(), text.size());
}

bool receive_message(int socket, std::string& text) {
  std::uint64_t size = 0;
  if (!receive_all(socket, &size, sizeof size)) return false;
  text.resize(size);
  return receive_all(socket, text.data(), size);
}

[[noreturn]] void answer_all(int socket, const AnswerProcess::Answer& answer, std::int64_t cpu_seconds) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(signal, SIG_DFL);
  const rlimit none{0, 0}, time{static_cast<rlim_t>(cpu_seconds), static_cast<rlim_t>(cpu_seconds)};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_CPU, &time);
  dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);  // last words of the C library
  for (std::string question; receive_message(socket, question);) {
    std::string reply;
    try {
      reply = "+" + answer(question);
    } catch (const std::bad_alloc&) { reply = "-out of memory"; } catch (const std::exception& e) {
      reply = str("-", e.what());
    }
    if (!send_message(socket, reply)) break;
  }
  _exit(0);
}

}  // namespace

AnswerProcess::AnswerProcess(const Answer& answer, std::int64_t cpu_seconds) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail("no socket for a new process: ", std::strerror(errno));
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    answer_all(ends[1], answer, cpu_seconds);
  }
  const int error = errno;
  close(ends[1]);
  socket_ = Descriptor(ends[0]);
  if (child_ < 0) fail("no new process: ", std::strerror(error));
}

AnswerProcess::~AnswerProcess() {
  socket_.close();
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  uninterrupted([&] { return waitpid(child_, nullptr, 0); });
}

std::string AnswerProcess::ask(const std::string& name, const std::string& question) {
  std::string reply;
  if (child_ > 0 && send_message(socket_.get(), question) && receive_message(socket_.get(), reply)) {
    if (reply[0] == '-') fail(reply.substr(1));
    return reply.substr(1);
  }
  int status = 0;
  shutdown(socket_.get(), SHUT_RDWR);  // so that a child that still waits ends, too
  if (child_ > 0) uninterrupted([&] { return waitpid(child_, &status, 0); });
  child_ = -1;
  const char* how = !WIFSIGNALED(status)          ? "ended"
                    : WTERMSIG(status) == SIGKILL ? "took too long or was killed"
                    : WTERMSIG(status) == SIGXCPU ? "took too long"
                                                  : strsignal(WTERMSIG(status));
  fail(name, ": is damaged, or memory is out (the process that read it: ", how, ")");
}

}  // namespace weft
