// SPDX-License-Identifier: MIT
// The commands of `prepare`: raw data in, a token file (data/README.md) out. Each returns lines for people:
// what was read, what was written where. On any Error nothing is written and an earlier file stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct PrepareText {
  std::vector<std::string> files;  // joined in this order; a token is a byte
  std::string out = {};
  std::vector<double> split = {0.9, 0.05, 0.05};
};
std::string prepare_text(const PrepareText&);

struct PrepareEnwik8 {
  std::string from = {};  // the raw file; "": it is downloaded
  std::string out = "enwik8.h5";
  std::string url = "http://mattmahoney.net/dc/enwik8.zip";
  bool allow_prefix = false;  // take the beginning of enwik8 for it
};
std::string prepare_enwik8(const PrepareEnwik8&);

// Token t is token t - distance, or with probability `resample` (and for t < distance) uniform over the
// vocabulary.
struct PrepareCopy {
  std::int64_t distance = 128, length = 1000000, vocab = 16;
  double resample = 0.1;
  std::uint64_t seed = 0;
  std::string out = {};
  std::vector<double> split = {0.9, 0.05, 0.05};
};
std::string prepare_copy(const PrepareCopy&);
// Bits of a token of the copy task given the token `distance` before it.
double copy_entropy(std::int64_t vocab, double resample);

}  // namespace weft
