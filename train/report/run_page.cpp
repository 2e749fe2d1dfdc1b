// SPDX-License-Identifier: MIT
#include "train/report/run_page.h"

#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/files/files.h"
#include "src/patterns/pattern.h"
#include "train/evaluation/evaluator.h"
#include "train/program/counts.h"
#include "train/program/json.h"
#include "train/program/run_argument.h"
#include "train/report/chart.h"
#include "train/report/pattern_image.h"
#include "train/trainer/validation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr int64_t kMostBytes = int64_t{1} << 28;  // of a file that is read
constexpr std::size_t kMostSamples = 12;          // on a page: the last ones

constexpr const char* kStyle = R"(<style>
:root{--bg:#fff;--fg:#1b1f24;--dim:#667;--box:#f5f6f8;--grid:#e3e5e9;--c0:#1f5aa6;--c1:#c8371a;
--c2:#2e8540;--c3:#8a4fbe;--c4:#b7791f;--c5:#0b7f86;--c6:#a23b72;--c7:#555}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e8ea;--dim:#9aa2ab;--box:#1e2328;
--grid:#2c3238;--c0:#6aa7f0;--c1:#ff8264;--c2:#6fcf83;--c3:#c79bf2;--c4:#e5b567;--c5:#5fd0d6;
--c6:#ef8dbd;--c7:#aaa}}*{box-sizing:border-box}body{margin:0 auto;max-width:1100px;padding:16px;
background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;
margin:.2em 0}h2{font-size:1.15rem;margin:1.6em 0 .5em}.f{display:grid;
grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:12px}figure{margin:0;
padding:10px;background:var(--box);border-radius:8px;min-width:0}figcaption{font-weight:600}svg{
width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--dim)}.g{stroke:var(--grid)}
polyline{fill:none;stroke:var(--c);stroke-width:2}circle{fill:var(--c)}.k{margin:4px 0 0;
font-size:.85rem;color:var(--dim)}.k span{margin-right:1em;white-space:nowrap}.k span:before{
content:"";display:inline-block;width:.8em;height:.8em;border-radius:2px;background:var(--c);
margin-right:.35em}pre{margin:0;padding:10px;background:var(--box);border-radius:8px;
overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.45 ui-monospace,monospace}
img{max-width:100%;image-rendering:pixelated}summary{cursor:pointer;font-weight:600}b{
color:var(--fg)}.d{color:var(--dim)}.t polyline{stroke-width:1;opacity:.5}label{margin:0 1em 0 .2em}
.w{border-left:4px solid var(--c1);padding-left:10px}
#x0:checked~:is(.x1,.x2),#x1:checked~:is(.x0,.x2),#x2:checked~:is(.x0,.x1){display:none}
</style>)";

std::string text_of(const fs::path& file) { return read_text(file.string(), kMostBytes); }

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = (three << 8) | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[(three >> (18 - 6 * k)) & 63];
  }
  return out;
}

std::string picture(const std::string& png, const std::string& caption) {
  return str("<figure><figcaption>", html_text(caption), "</figcaption><img alt='",
             html_text(caption), "' src='data:image/png;base64,", base64(png), "'></figure>\n");
}

std::string player(const std::string& wav, const std::string& caption) {
  return str("<figure><figcaption>", html_text(caption),
             "</figcaption><audio controls src='data:audio/wav;base64,", base64(wav),
             "'></audio></figure>\n");
}

// What the x axis of a page may count, in the order of the switch.
constexpr const char* kAxes[] = {"step", "tokens", "seconds of training"};
constexpr std::size_t kTokens = 1;

struct Run {
  std::string name, yaml, about;
  std::vector<std::string> lines;                     // of metrics.jsonl
  std::vector<std::pair<int64_t, fs::path>> samples;  // by step
  std::optional<Config> config;

  // The points of a key against an axis. Tokens are not known without a config.
  Points points(std::size_t axis, const char* key, double factor = 1) const {
    constexpr const char* kKeys[] = {"step", "step", "elapsed_s"};
    Points all;
    if (axis == kTokens && !config) return all;
    const double scale =
        axis == kTokens ? static_cast<double>(config->train.batch * config->model.context) : 1;
    for (const std::string& line : lines)
      if (const auto x = json_number(line, kKeys[axis]), y = json_number(line, key); x && y)
        all.emplace_back(*x * scale, *y * factor);
    return all;
  }

  const char* unit() const {
    if (!config) return "bits per token";
    return bits_unit(config->model.position_axes.size() == 3, config->model.vocab <= 256 ? 1 : 0);
  }
};

Run read_run(const std::string& folder) {
  const fs::path root = folder;
  if (!fs::is_regular_file(root / "metrics.jsonl"))
    fail(folder,
         ": is no folder of a run: it has no metrics.jsonl; train makes such folders, runs/NAME",
         runs_near(folder));
  Run run;
  run.name = fs::absolute(root).lexically_normal().filename().string();
  if (run.name.empty())
    run.name = fs::absolute(root).lexically_normal().parent_path().filename().string();
  run.lines = metrics_lines(text_of(root / "metrics.jsonl"));
  if (fs::exists(root / "config.yaml")) {
    run.yaml = text_of(root / "config.yaml");
    run.config = parse_config(run.yaml, (root / "config.yaml").string());
  }
  if (fs::exists(root / "about.txt")) run.about = text_of(root / "about.txt");
  const double last = run.lines.empty() ? 0 : json_number(run.lines.back(), "step").value_or(0);
  if (fs::is_directory(root / "samples"))
    for (const auto& entry : fs::directory_iterator(root / "samples"))
      if (const int64_t step = std::atoll(entry.path().stem().c_str());
          static_cast<double>(step) <= last)
        run.samples.emplace_back(step, entry.path());
  std::ranges::sort(run.samples);
  if (run.samples.size() > kMostSamples)
    run.samples.erase(run.samples.begin(), run.samples.end() - kMostSamples);
  return run;
}

struct Curve {
  const char *title, *key;
  double factor = 1;
  bool log_y = false;
};

constexpr Curve kCurves[] = {{"Learning rate", "lr"},
                             {"Gradient norm", "grad_norm", 1, true},
                             {"Tokens per second", "tokens_per_s"},
                             {"MFU, % of the measured peak", "mfu", 100}};

// Of one run the three kinds of bits; of several, each in a colour of its own, those of `unit`.
Chart bits_chart(const std::vector<Run>& runs, std::size_t axis, const std::string& unit) {
  Chart chart{
      .title = unit,
      .x_name = kAxes[axis],
      .series = {},
      .log_y = true,
      .low_share = 0.03,
  };
  const auto add = [&](const std::string& name, std::size_t colour, bool marks, Points points,
                       bool faint = false) {
    chart.series.push_back({name, colour, marks, std::move(points), faint});
  };
  if (runs.size() == 1) {
    add("train", 7, false, runs[0].points(axis, "bits"));
    add("valid", 0, true, runs[0].points(axis, "valid_bits"));
    add("valid, moving average", 1, true, runs[0].points(axis, "valid_bits_ema"));
    return chart;
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (run.unit() != unit) continue;
    Points valid = run.points(axis, "valid_bits_ema");
    if (valid.empty()) valid = run.points(axis, "valid_bits");
    add(run.name + ", train", i % 8, false, run.points(axis, "bits"), !valid.empty());
    add(run.name + ", valid", i % 8, true, std::move(valid));
  }
  return chart;
}

std::string charts_by(std::size_t axis, const std::vector<Run>& runs) {
  std::vector<std::string> units;
  for (const Run& run : runs)
    if (std::ranges::count(units, run.unit()) == 0) units.emplace_back(run.unit());
  std::string html;
  for (const std::string& unit : units) html += svg_of(bits_chart(runs, axis, unit));
  for (const Curve& curve : kCurves) {
    Chart chart{.title = curve.title, .x_name = kAxes[axis], .series = {}, .log_y = curve.log_y};
    for (std::size_t i = 0; i < runs.size(); ++i)
      chart.series.push_back({runs.size() == 1 ? "last" : runs[i].name, i % 8, false,
                              runs[i].points(axis, curve.key, curve.factor)});
    html += svg_of(chart);
  }
  return html;
}

// The charts by each axis; the switch of the page shows one.
std::string curves(const std::vector<Run>& runs) {
  std::string html;
  for (std::size_t axis = 0; axis < std::size(kAxes); ++axis)
    html += str("<div class='f x", axis, "'>", charts_by(axis, runs), "</div>\n");
  return html;
}

// Works without a script: style sheets see which of these is checked. What it switches are later
// siblings.
std::string axis_switch(const std::vector<Run>& runs) {
  std::string html = "x axis: ";
  for (std::size_t axis = 0; axis < std::size(kAxes); ++axis) {
    const auto known = [&](const Run& run) { return !run.points(axis, "step").empty(); };
    if (!std::ranges::any_of(runs, known)) continue;
    html += str("<input type=radio name=x id=x", axis, axis == 0 ? " checked" : "", "><label for=x",
                axis, ">", kAxes[axis], "</label>");
  }
  return html + "\n";
}

std::string patterns(const Config& config) {
  const ModelConfig& m = config.model;
  std::string html;
  for (const LayerGroup& layers : layer_groups(layer_patterns(m))) {
    std::vector<char> drawn(layers.pattern->groups(static_cast<int>(m.heads)), 0);
    for (int head = 0; head < m.heads; ++head) {
      char& done = drawn[layers.pattern->group(head)];
      if (std::exchange(done, 1)) continue;
      const auto square = std::bit_ceil(static_cast<uint64_t>(std::sqrt(m.context)));
      const int64_t row = m.position_axes.size() == 3 ? m.position_axes[1] * m.position_axes[2]
                                                      : static_cast<int64_t>(square);
      const Image image = pattern_image(
          *layers.pattern,
          {.head = head, .n = m.context, .position = m.context * 5 / 8, .row_length = row});
      html += picture(png_bytes(image), str("layers ", numbers_text(layers.members),
                                            drawn.size() > 1 ? str(", head ", head) : "", ": ",
                                            layers.pattern->name()));
    }
  }
  return "<h2>What a position sees</h2><div class=f>" + html + "</div>\n";
}

std::string samples(const Run& run) {
  std::string html;
  for (auto at = run.samples.rbegin(); at != run.samples.rend(); ++at) {
    const std::string bytes = text_of(at->second), step = str("step ", at->first);
    const fs::path kind = at->second.extension();
    html += kind == ".png"   ? picture(bytes, step)
            : kind == ".wav" ? player(bytes, step)
                             : str("<figure><figcaption>", step, "</figcaption><pre>",
                                   html_text(bytes), "</pre></figure>\n");
  }
  return html.empty() ? "" : "<h2>Samples</h2><div class=f>" + html + "</div>\n";
}

// Steps, time and the best bits.
std::string facts(const Run& run) {
  if (run.lines.empty()) return "<p class=d>nothing logged yet</p>\n";
  const std::string& last = run.lines.back();
  std::string text = str("step ", json_number(last, "step").value_or(0));
  if (run.config) text += str(" of ", run.config->train.steps);
  text += str(", ", duration_text(json_number(last, "elapsed_s").value_or(0)), " of training");
  const auto valid = validation_of(run.lines);
  if (valid)
    text += str(", best validation ", fixed_text(valid->best, 4), " ", run.unit(), " at step ",
                valid->best_step);
  std::string html = "<p class=d>" + html_text(text) + "</p>\n";
  if (valid && valid->rises_while_training_falls())
    html += "<p class=w>" + html_text(overfitting_text(*valid, run.unit())) + "</p>\n";
  return html;
}

std::string details(const Run& run) {
  std::string html = samples(run);
  if (run.config) html += patterns(*run.config);
  if (!run.about.empty())
    html += "<h2>Machine, model and memory</h2><pre>" + html_text(run.about) + "</pre>\n";
  if (!run.yaml.empty())
    html += "<h2>Config</h2><details><summary>config.yaml</summary><pre>" + html_text(run.yaml) +
            "</pre></details>\n";
  return html;
}
}  // namespace

std::string run_page(const std::vector<std::string>& folders) {
  std::vector<Run> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  const auto same_name = [&](const Run& run) {
    return std::ranges::count(runs, run.name, &Run::name) > 1;
  };
  if (std::ranges::any_of(runs, same_name))  // a/tiny and b/tiny
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = folders[i];
  const std::string title = joined(runs, ", ", &Run::name);
  std::string html =
      str("<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport "
          "content='width=device-width,initial-scale=1'><title>",
          html_text(title), "</title>", kStyle, "\n<h1>", html_text(title), "</h1>\n",
          axis_switch(runs));
  if (runs.size() == 1)
    return html + facts(runs[0]) + curves(runs) + details(runs[0]) + "</html>\n";
  html += curves(runs);
  for (const Run& run : runs)
    html += "<h1>" + html_text(run.name) + "</h1>\n" + facts(run) + curves({run}) + details(run);
  return html + "</html>\n";
}
}  // namespace weft
