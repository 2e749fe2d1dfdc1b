// SPDX-License-Identifier: MIT
// Sampling: draws the next token from the distribution that logits and a Choice describe.
//   1. Rank tokens by logit, equal ones by number. w_r = exp((logit_r - logit_1) / temperature).
//   2. Keep the first top_k, and of these the fewest whose sum reaches top_p of the sum of all.
//   3. Take the first rank whose running sum exceeds u times the sum of those kept.
// Sums and exponentials are f64 whatever type the logits have. The forms may differ where u lies
// within a rounding (1e-13) of a border.
#pragma once

#include "kernels/philox.h"
#include "kernels/queue.h"

#include <span>

namespace weft {
struct Choice {
  double temperature = 1;  // 0: always the most likely token
  int64_t top_k = 0;       // only the k most likely tokens; 0: all
  double top_p = 1;        // only the most likely tokens that together reach this probability
};

// Separates these Philox counters from those of dropout and initial values under the same seed.
inline constexpr uint32_t kSampleStream = 0x53414d50;  // "SAMP"

// Counter for one token of one sample; 53 bits as a number in [0, 1).
constexpr Philox4 sample_counter(int64_t sample, int64_t position) {
  const auto s = static_cast<uint64_t>(sample);
  return {static_cast<uint32_t>(position), static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32),
          kSampleStream};
}

constexpr double uniform_of(uint32_t first, uint32_t second) {
  return static_cast<double>((uint64_t{first} << 32 | second) >> 11) * 0x1p-53;
}

inline double sample_uniform(uint64_t seed, int64_t sample, int64_t position) {
  const Philox4 bits = philox4x32(sample_counter(sample, position), seed);
  return uniform_of(bits[0], bits[1]);
}

// The definition for one row of logits; -1 when one of them is not finite.
int32_t choose_token(std::span<const double> logits, const Choice&, double uniform);

// For each of B samples: u = sample_uniform(seed, *first_sample + b, *position).
struct ChooseToken {
  static constexpr const char* kName = "choose_token";
  TensorView tokens;  // (B, n)  i32: column *position is written; 0 where no token can be chosen
  TensorView drawn;   // (n, B)  i32: row *position is written; -1 there
  TensorView logits;  // (B, V)  T, V <= 2^31 - 1
  const int32_t* position = nullptr;      // in the queue's memory, 0 .. n - 1
  const int32_t* first_sample = nullptr;  // in the queue's memory
  Choice choice;
  uint64_t seed = 0;
};

WEFT_KERNEL(ChooseToken);
}  // namespace weft
