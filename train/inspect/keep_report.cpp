// SPDX-License-Identifier: MIT
#include "src/config/config.h"
#include "train/inspect/run_page.h"
#include "train/sampling/sample_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr int64_t kText = 300, kImages = 16;  // tokens of a text; images of a grid
constexpr double kMostSeconds = 10;

struct TooSlow {};

SampleOptions options_for(const Config& config) {
  SampleOptions options{.seed = config.seed};
  options.length = std::min(kText, config.model.context);
  if (!draws_images(config)) return options;
  const Augmenter augmenter(config, image_shape(config));
  options.conditions.resize(augmenter.conditions().size());
  augmenter.rows({}, options.conditions);
  options.length = config.model.context;
  options.count = options.batch = kImages;
  return options;
}

// Of the weights that the model has now: samples/<step>.txt, or .png.
void draw_sample(const Evaluated& now, const fs::path& folder) {
  const Config& config = now.config;
  const SampleOptions options = options_for(config);
  std::vector<std::vector<int32_t>> drawn(options.count);
  Stopwatch clock(true);
  sample(
      now.device, now.model, config.model, options,
      [&](int64_t i, int64_t, int32_t token) { drawn[i].push_back(token); },
      [&](int64_t, int64_t) {
        if (clock.seconds() > kMostSeconds) throw TooSlow{};
      });
  char name[32];
  std::snprintf(name, sizeof name, "%08lld.", static_cast<long long>(now.step));
  fs::create_directories(folder);
  if (draws_images(config)) {
    std::vector<Image> cells;
    for (const auto& tokens : drawn) cells.push_back(image_of(image_shape(config), tokens));
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(kImages)));
    return write_png((folder / (std::string(name) + "png")).string(),
                     draw_grid(cells, GridLayout(image_shape(config), kImages, side)));
  }
  write_whole_file((folder / (std::string(name) + "txt")).string(), [&](std::ostream& out) {
    for (const int32_t token : drawn[0]) out << token_to_text(token, config.model.vocab);
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
