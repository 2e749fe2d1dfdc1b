// SPDX-License-Identifier: MIT
// The loop over cases, and the report.
#include "train/selftest_run.h"

#include "kernels/attention_forms.h"
#include "src/device.h"
#include "train/selftest_kernels.h"
#include "train/selftest_tables.h"

namespace weft {
namespace {

constexpr std::size_t kEnoughFailures = 5;

}  // namespace

std::vector<AttentionForm> check_case(Device& device, const SelftestCase& c) {
  check_enumeration(c);
  check_tile_maps(c);
  check_cache_rows(c);
  check_picture(c);
  return check_kernels(device, c);
}

SelftestResult run_selftest(Device& device, const SelftestOptions& options, Progress& progress) {
  SelftestResult result;
  Stopwatch watch;
  watch.start();
  const std::int64_t last = options.only ? 1 : options.cases;
  while (result.failures.size() < kEnoughFailures && (last == 0 || result.cases < last) &&
         (result.cases == 0 || watch.seconds() < 60 * options.minutes)) {
    const std::uint32_t seed =
        options.only ? *options.only : options.seed + static_cast<std::uint32_t>(result.cases);
    ++result.cases;
    std::string text;
    try {
      const SelftestCase c = make_selftest_case(seed, device.is_cuda());
      text = c.text();
      if (options.only) progress.line(str("case ", seed, ": ", text));
      for (const AttentionForm form : check_case(device, c))
        ++result.ran[device.is_cuda() ? name_of(form) : "cpu"];
      ++result.ran[c.kind];
      ++result.ran[name_of(c.dtype)];
    } catch (const Error& error) {
      result.failures.push_back(str("case ", seed, " (", text, "): ", error.what(),
                                    "; alone: selftest --device ", device.name, " --case ", seed));
      progress.line("FAILED " + result.failures.back());
    }
    progress.passing(
        str(result.cases, " cases, ", result.failures.size(), " failed, ", duration_text(watch.seconds())));
  }
  progress.clear();
  return result;
}

void selftest(const SelftestOptions& options, std::ostream& out, Progress& progress) {
  const std::unique_ptr<Device> device = make_device(options.device);
  progress.line(
      str("attention on ", device->description(), ": patterns, tiles, kernels, decoding, pictures"));
  const SelftestResult result = run_selftest(*device, options, progress);
  out << "cases by pattern, type and kernels:";
  for (const auto& [name, count] : result.ran) out << ' ' << name << ' ' << count;
  out << '\n';
  if (!result.failures.empty())
    fail(str("selftest FAILED on ", device->description(), ": ", result.failures.size(), " of ", result.cases,
             " cases; first: ", result.failures.front()));
  out << "selftest passed on " << device->description() << ": " << result.cases << " cases" << std::endl;
}

}  // namespace weft
