// SPDX-License-Identifier: MIT
// One case of `selftest`, a random pattern with random sizes, and its checks. All of it follows
// from a number, so that a case that fails can be run again alone.
#pragma once

#include "src/patterns/more/layout.h"
#include "train/attention/oracle.h"

namespace weft {

class Device;

struct SelftestCase {
  std::uint32_t seed = 0;
  std::string kind;  // of the pattern
  std::unique_ptr<AttentionPattern> pattern;
  attention_oracle::Sizes size;
  DType dtype = DType::f32;
  int edge = attention_oracle::kBest;
  bool segments = false;

  Lengths lengths() const { return size.lengths(); }
  int heads() const { return static_cast<int>(size.heads); }
  int first_head(int group) const;  // of a group of the pattern; Error when it has none
  std::string text() const;
};

// `cuda`: no f64.
SelftestCase make_selftest_case(std::uint32_t seed, bool cuda);

// ---- checks without a kernel: tables and pictures agree with the predicate of the pattern ----
// Each throws an Error that names the first disagreement.

// key_runs() and keys_of() name the keys of attends(), each once; causal patterns no later ones; heads of a
// group are equal.
void check_enumeration(const SelftestCase&);
// The tile maps, as a kernel reads them, hold each attended pair once, in both directions, over all passes.
void check_tile_maps(const SelftestCase&);
// The rows of the sampling cache: every key is where it is looked for when it is read.
void check_cache_rows(const SelftestCase&);
// The connectivity matrix that `inspect` draws.
void check_picture(const SelftestCase&);

// ---- checks of the kernels, on any device ----

// Forward and backward of every form that covers the case, against the definition in f64: an error of at most
// twice that of the plain computation in the same type, plus a floor; rows that see nothing; equal bits of
// two runs; no writes out of bounds. Decoding against the forward pass where the pattern is causal. `only`,
// if not automatic: that form and no decoding. Returns the forms that ran, none where `only` does not cover
// the case; throws an Error that names the first disagreement.
std::vector<AttentionForm> check_kernels(Device&, const SelftestCase&,
                                         AttentionForm only = AttentionForm::automatic);

}  // namespace weft
