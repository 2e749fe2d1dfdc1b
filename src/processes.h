// SPDX-License-Identifier: MIT
// Processes that do one task together, as the core sees them. What is here is a process alone;
// several come with a part (src/parts/parts.cmake).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace weft {
class Processes {
 public:
  virtual ~Processes() = default;

  virtual int rank() const { return 0; }

  virtual int size() const { return 1; }

  // Collective: every process calls them in the same order. Bytes, by rank.
  virtual std::vector<std::string> all_gather(const std::string& mine) { return {mine}; }

  // The same for rank 0; the others get an empty list.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }

  virtual void barrier() {}

  // Progress, for those who watch this process. take_time() announces work outside of steps.
  virtual void report_step(int64_t /*step*/) {}

  virtual void report_progress() {}

  virtual void take_time() {}

  // The device of this process, where `asked` was asked for (--device).
  virtual std::string device(const std::string& asked) const { return asked; }
};

// Numbers as a message, and back: all processes are the same program on the same kind of machine.
template <class T>
std::string message_of(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

template <class T>
void append_numbers(std::vector<T>& numbers, const std::string& message) {
  const std::size_t before = numbers.size();
  numbers.resize(before + message.size() / sizeof(T));
  if (!message.empty()) std::memcpy(numbers.data() + before, message.data(), message.size());
}
}  // namespace weft
