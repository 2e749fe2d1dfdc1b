// SPDX-License-Identifier: MIT
// The program `selftest`: random cases for a while, each a pattern with sizes from a seed, and a
// verdict.
#pragma once

#include "src/patterns/pattern.h"
#include "tests/cases/attention_problem.h"
#include "train/program/progress.h"

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace weft {
class Device;

struct SelftestCase {
  uint32_t seed = 0;
  std::string kind;  // of the pattern
  std::unique_ptr<AttentionPattern> pattern;
  attention_test::Sizes size;
  DType dtype = DType::f32;
  int edge = attention_test::kBest;
  bool segments = false;

  Lengths lengths() const { return size.lengths(); }

  int heads() const { return static_cast<int>(size.heads); }

  int first_head(int group) const;  // of a group of the pattern; Error when it has none
  std::string text() const;
};

// `cuda`: no f64.
SelftestCase make_selftest_case(uint32_t seed, bool cuda);

// ---- checks of tables against the pattern's predicate; Error names the first
// disagreement

// keys_of() lists the keys of attends(), each once, no later ones if causal; heads of a group are
// equal.
void check_enumeration(const SelftestCase&);
// The tile maps, as a kernel reads them, hold each attended pair once, in both directions, over all
// passes.
void check_tile_maps(const SelftestCase&);
// The rows of the sampling cache: every key is where it is looked for when it is read.
void check_cache_rows(const SelftestCase&);

// ---- checks of the kernels, on any device ----

// Both passes of every form that covers the case, against f64: at most twice the error of the plain
// computation in the same type, plus a floor; rows that see nothing are 0; two runs have equal
// bits; no write is out of bounds. Causal patterns decode, too. `only`, if not automatic: that form
// and no decoding. Returns the forms that ran, none where `only` does not cover the case.
std::vector<AttentionForm> check_kernels(Device&, const SelftestCase&,
                                         AttentionForm only = AttentionForm::automatic);

// ---- random patterns of every kind, for `selftest` and the tests ----

// How a kind is drawn whose fields random_spec() does not know. A part that brings kinds adds rows
// when the program starts, from tests/<its folder>/cases/.
struct RandomKind {
  std::string kind;
  // Draws the fields of a spec for sequences of up to n; null: there are none.
  void (*fields)(std::mt19937&, int64_t n, PatternSpec&) = nullptr;
  // Draws patterns that no spec gives; null: specs do.
  std::unique_ptr<AttentionPattern> (*pattern)(std::mt19937&, Lengths, int heads) = nullptr;
};

bool add_random_kind(RandomKind);  // true

// A whole number from low to high, both included.
int64_t pick(std::mt19937&, int64_t low, int64_t high);

// Fields that `kind` (not of others or files) reads, for n positions; bidirectional too if
// `any_direction`.
PatternSpec random_spec(std::mt19937&, const std::string& kind, int64_t n, bool any_direction);

// A pattern of any kind but those of files, made of others or not, with modifiers or without.
PatternSpec random_pattern(std::mt19937&, int64_t n, int heads, bool any_direction);

// ---- the program ----

struct SelftestOptions {
  std::string device = "auto";
  double minutes = 2;
  int64_t cases = 0;               // 0: as many as there is time for
  uint32_t seed = 1;               // of the first case; the next ones count on
  std::optional<uint32_t> only;    // --case: this one alone
  std::string form = "automatic";  // --form: these CUDA kernels alone, in the cases that they cover
};

struct SelftestResult {
  int64_t cases = 0;
  std::vector<std::string> failures;   // what was wrong, with the command that runs the case alone
  std::map<std::string, int64_t> ran;  // cases of each kind, element type and form
};

// All checks of a case. Returns the forms that ran; throws Error.
std::vector<AttentionForm> check_case(Device&, const SelftestCase&);

// Ends early after a few failures.
SelftestResult run_selftest(Device&, const SelftestOptions&, Progress&);

// The whole program: a report on `out`; throws Error when a case failed.
void selftest(const SelftestOptions&, std::ostream& out, Progress&);
}  // namespace weft
