// SPDX-License-Identifier: MIT
// One case of `selftest`: a random pattern with random sizes, both from a seed, and its checks.
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

// ---- checks of tables and pictures against the pattern's predicate; Error names the first disagreement ----

// keys_of() lists the keys of attends(), each once, no later ones if causal; heads of a group are equal.
void check_enumeration(const SelftestCase&);
// The tile maps, as a kernel reads them, hold each attended pair once, in both directions, over all passes.
void check_tile_maps(const SelftestCase&);
// The rows of the sampling cache: every key is where it is looked for when it is read.
void check_cache_rows(const SelftestCase&);
// The connectivity matrix that `inspect` draws.
void check_picture(const SelftestCase&);

// ---- checks of the kernels, on any device ----

// Both passes of every form that covers the case, against f64: at most twice the error of the plain
// computation in the same type, plus a floor; rows that see nothing are 0; two runs have equal bits; no write
// is out of bounds. Causal patterns decode, too. `only`, if not automatic: that form and no decoding. Returns
// the forms that ran, none where `only` does not cover the case.
std::vector<AttentionForm> check_kernels(Device&, const SelftestCase&,
                                         AttentionForm only = AttentionForm::automatic);

}  // namespace weft
