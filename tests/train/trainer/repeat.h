// SPDX-License-Identifier: MIT
// Rounds of work for as long as WEFT_REPEAT_SECONDS says, and what they count.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace weft {
inline double seconds_to_repeat() {
  const char* text = std::getenv("WEFT_REPEAT_SECONDS");
  return text ? std::strtod(text, nullptr) : 4;
}

// Rounds of work until the time is over.
template <class Round>
void repeat(Round&& round) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_to_repeat());
  do round();
  while (std::chrono::steady_clock::now() < end);
}

inline void report(const char* what, int64_t count, int64_t differences) {
  testing::Test::RecordProperty(what, std::to_string(count));
  testing::Test::RecordProperty("differences", std::to_string(differences));
  EXPECT_EQ(differences, 0) << "in " << count << " " << what;
}
}  // namespace weft
