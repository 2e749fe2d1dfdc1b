// SPDX-License-Identifier: MIT
// The program `selftest`: random cases for a while, on the machine it runs on, and a verdict.
#pragma once

#include <map>
#include <optional>

#include "kernels/attention/attention.h"
#include "train/program/progress.h"

namespace weft {

class Device;
struct SelftestCase;

struct SelftestOptions {
  std::string device = "auto";
  double minutes = 2;
  std::int64_t cases = 0;             // 0: as many as there is time for
  std::uint32_t seed = 1;             // of the first case; the next ones count on
  std::optional<std::uint32_t> only;  // --case: this one alone
  std::string form = "automatic";     // --form: these CUDA kernels alone, in the cases that they cover
};

struct SelftestResult {
  std::int64_t cases = 0;
  std::vector<std::string> failures;        // what was wrong, with the command that runs the case alone
  std::map<std::string, std::int64_t> ran;  // cases of each kind, element type and form
};

// All checks of a case. Returns the forms that ran; throws Error.
std::vector<AttentionForm> check_case(Device&, const SelftestCase&);

// Ends early after a few failures.
SelftestResult run_selftest(Device&, const SelftestOptions&, Progress&);

// The whole program: a report on `out`; throws Error when a case failed.
void selftest(const SelftestOptions&, std::ostream& out, Progress&);

}  // namespace weft
