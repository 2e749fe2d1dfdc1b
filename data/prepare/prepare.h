// SPDX-License-Identifier: MIT
// The commands of `prepare`: raw data in, a token file (data/README.md) out. Each returns lines for
// people: what was read, what was written where. On any Error nothing is written and an earlier
// file stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
inline constexpr int64_t kMostTokens = int64_t{1} << 32;  // 8 GiB of memory

struct PrepareText {
  std::vector<std::string> files;  // joined in this order; a token is a byte
  std::string out = {};
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_text(const PrepareText&);

// The numbers of any tokenizer: a .npy file of whole numbers with one axis, or the bare numbers of
// a type.
struct PrepareTokens {
  std::string file, out;
  // of bare numbers, "u16" or "u32"; "": u16 up to a vocabulary of 65,536
  std::string dtype = {};
  int64_t vocab = 0, bytes = 0;  // bytes: of the text that the tokens stand for; 0: not known
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_tokens(const PrepareTokens&);

struct PrepareEnwik8 {
  std::string from = {};  // the raw file; "": it is downloaded
  std::string out = "enwik8.h5";
  std::string url = "http://mattmahoney.net/dc/enwik8.zip";
  bool allow_prefix = false;  // take the beginning of enwik8 for it
};

std::string prepare_enwik8(const PrepareEnwik8&);

// 100 English novels in the public domain, 77 MB: the corpus of the published text results.
struct PrepareNovels {
  std::string from = {};  // a clone of `repository`; "": it is downloaded
  std::string out = "novels.h5";
  std::string repository = "https://github.com/computationalstylistics/100_english_novels";
  std::string commit = "143e601875d70e195f2cc5ebd8b034609271194d";
  std::string md5 = "214fdd4851a0200f829aa510687baff3";  // of the joined text
};

std::string prepare_novels(const PrepareNovels&);

// Token t is token t - distance, or with probability `resample` (always for t < distance) uniform.
struct PrepareCopy {
  int64_t distance = 128, length = 1000000, vocab = 16;
  double resample = 0.1;
  uint64_t seed = 0;
  std::string out = {};
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_copy(const PrepareCopy&);
// Bits of a token of the copy task given the token `distance` before it.
double copy_entropy(int64_t vocab, double resample);
}  // namespace weft
