// SPDX-License-Identifier: MIT
// What the tests of the exercises share: checks that say what is wrong, in words for a reader, and
// the loop over the parts of a test.
#pragma once

#include <exception>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace exercise {
// Joins its arguments into one string.
template <class... Args>
std::string text(const Args&... args) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << args);
  return out.str();
}

// Ends this part of the test with the text, unless the condition holds.
template <class... Args>
void expect(bool condition, const Args&... what) {
  if (!condition) throw std::runtime_error(text(what...));
}

struct Part {
  const char* what;  // what holds when it passes
  void (*test)();
};

// Runs the parts in order up to the first that fails. Returns the exit code of the program.
inline int run(std::initializer_list<Part> parts) {
  std::cout << std::unitbuf;  // what has passed is said before a crash
  for (const Part& part : parts) {
    try {
      part.test();
    } catch (const std::exception& error) {
      std::cout << "FAILED: " << part.what << ": " << error.what() << '\n';
      return 1;
    }
    std::cout << "passed: " << part.what << '\n';
  }
  return 0;
}
}  // namespace exercise
