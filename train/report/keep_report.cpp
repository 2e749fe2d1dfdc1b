// SPDX-License-Identifier: MIT
#include "src/config/config.h"
#include "src/files/files.h"
#include "train/program/progress.h"
#include "train/report/run_page.h"
#include "train/sampling/extension.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr int64_t kText = 300;  // tokens of a text
constexpr double kMostSeconds = 10;

struct TooSlow {};

// Of the weights that the model has now: samples/<step>.txt, or another kind of sample.
void draw_sample(const Evaluated& now, const fs::path& folder) {
  const Config& config = now.config;
  Stopwatch clock(true);
  const OnPositions on_positions = [&](int64_t, int64_t) {
    if (clock.seconds() > kMostSeconds) throw TooSlow{};
  };
  char name[32];
  std::snprintf(name, sizeof name, "%08lld.", static_cast<long long>(now.step));
  const std::string stem = (folder / name).string();
  fs::create_directories(folder);
  for (const auto& extension : sample_extensions())
    if (extension->preview(now.device, now.model, config, stem, on_positions)) return;
  SampleOptions options{.seed = config.seed};
  options.length = std::min(kText, config.model.context);
  std::vector<int32_t> drawn;
  sample(
      now.device, now.model, config.model, options,
      [&](int64_t, int64_t, int32_t token) { drawn.push_back(token); }, on_positions);
  write_whole_file(stem + "txt", [&](std::ostream& out) {
    for (const int32_t token : drawn) out << token_to_text(token, config.model.vocab);
  });
}
}  // namespace

std::function<void(const Evaluated&)> keep_report() {
  return [draws = true](const Evaluated& now) mutable {
    const fs::path folder = now.folder;
    try {
      if (draws) draw_sample(now, folder / "samples");
    } catch (const TooSlow&) {
      draws = false;
    }
    const auto keep = [&](const char* name, const std::string& text) {
      write_whole_file((folder / name).string(), [&](std::ostream& out) { out << text; });
    };
    keep("about.txt", now.about);
    keep("report.html", run_page({folder.string()}));
  };
}
}  // namespace weft
