// SPDX-License-Identifier: MIT
// A copy of this process that answers questions, so that answering cannot bring this process down.
#pragma once

#include <sys/types.h>

#include "src/files/files.h"

namespace weft {

class AnswerProcess {
 public:
  using Answer = std::function<std::string(const std::string& question)>;
  // `answer` runs in the child only, for at most so many seconds of CPU time in all.
  AnswerProcess(const Answer& answer, std::int64_t cpu_seconds);
  AnswerProcess& operator=(AnswerProcess&&) = delete;  // nor copied
  ~AnswerProcess();
  // Throws Error with the text of what `answer` throws, or, after `name`, with the end of the child.
  std::string ask(const std::string& name, const std::string& question);

 private:
  pid_t child_ = -1;
  Descriptor socket_;
};

}  // namespace weft
