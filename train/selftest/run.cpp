// SPDX-License-Identifier: MIT
#include "train/selftest/case.h"

#include "kernels/attention/select.h"
#include "src/device.h"

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
  const Stopwatch watch(true);
  const AttentionForm form = attention::parse_form(options.form);
  const bool all = form == AttentionForm::automatic;
  if (!all && !device.is_cuda()) fail("--form ", options.form, ": ", device.name, " has no CUDA kernels");
  const std::int64_t last = options.only ? 1 : options.cases;
  const std::uint32_t first = options.only ? *options.only : options.seed;
  for (std::uint32_t seed = first;
       result.failures.size() < kEnoughFailures && (last == 0 || result.cases < last) &&
       (seed == first || watch.seconds() < 60 * options.minutes);
       ++seed) {
    std::string text;
    try {
      const SelftestCase c = make_selftest_case(seed, device.is_cuda());
      text = c.text();
      if (options.only) progress.line(str("case ", seed, ": ", text));
      const auto forms = all ? check_case(device, c) : check_kernels(device, c, form);
      if (forms.empty() && options.only) fail(options.form, " does not cover it");
      if (forms.empty()) continue;
      ++result.cases;
      for (const AttentionForm ran : forms) ++result.ran[device.is_cuda() ? name_of(ran) : "cpu"];
      ++result.ran[c.kind];
      ++result.ran[name_of(c.dtype)];
    } catch (const Error& error) {
      ++result.cases;
      result.failures.push_back(str("case ", seed, " (", text, "): ", error.what(),
                                    "; alone: selftest --device ", device.name, " --case ", seed,
                                    all ? "" : " --form " + options.form));
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
  if (result.cases == 0) fail("selftest: no case that ", options.form, " covers on ", device->description());
  if (!result.failures.empty())
    fail("selftest FAILED on ", device->description(), ": ", result.failures.size(), " of ", result.cases,
         " cases; first: ", result.failures.front());
  out << "selftest passed on " << device->description() << ": " << result.cases << " cases" << std::endl;
}

}  // namespace weft
