// SPDX-License-Identifier: MIT
#include "train/report/run_page.h"

#include "src/config/config.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/files/files.h"
#include "src/patterns/pattern.h"
#include "train/program/counts.h"
#include "train/program/json.h"
#include "train/report/pattern_image.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr double kWidth = 420, kHeight = 230, kLeft = 50, kRight = 10, kTop = 8, kBottom = 38;
constexpr std::size_t kMostPoints = 400;  // of a series

using Points = std::vector<std::pair<double, double>>;

Points thinned(const Points& all, bool log_y) {
  Points some;
  const std::size_t group = all.size() / kMostPoints + 1;
  double x = 0, y = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isfinite(all[i].first) && std::isfinite(all[i].second) &&
        !(log_y && all[i].second <= 0)) {
      x += all[i].first, y += all[i].second, ++count;
    }
    if ((i + 1) % group != 0 && i + 1 < all.size()) continue;
    if (count > 0)
      some.emplace_back(x / static_cast<double>(count), y / static_cast<double>(count));
    x = y = 0, count = 0;
  }
  return some;
}

// Round numbers from `low` to `high`, about `count` of them.
std::vector<double> ticks(double low, double high, double count) {
  const double raw = (high - low) / count, unit = std::pow(10, std::floor(std::log10(raw)));
  const double step = raw / unit < 1.5   ? unit
                      : raw / unit < 3.5 ? 2 * unit
                      : raw / unit < 7.5 ? 5 * unit
                                         : 10 * unit;
  std::vector<double> at;
  for (double t = std::ceil(low / step - 1e-9); t * step <= high + 1e-9 * step; ++t)
    at.push_back(t * step);
  return at;
}

std::string tick_text(double value) {
  if (std::abs(value) >= 10000) return count_text(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(double v) { low = std::min(low, v), high = std::max(high, v); }

  void widen() {
    if (high > low) return;
    const double by = low == 0 ? 1 : std::abs(low) / 10;
    low -= by, high += by;
  }
};

struct Plot {
  Range x, y;
  bool log_y;

  double value(double v) const { return log_y ? std::log10(v) : v; }

  std::string px(double v) const {
    return fixed_text(kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight), 1);
  }

  std::string py(double v) const {
    const double at = (std::clamp(value(v), y.low, y.high) - y.low) / (y.high - y.low);
    return fixed_text(kHeight - kBottom - at * (kHeight - kTop - kBottom), 1);
  }
};

// A label at (x, y), moved by (0, dy); anchor: start, middle or end.
std::string label(const std::string& x, const std::string& y, int dy, const char* anchor,
                  const std::string& text) {
  return str("<text x='", x, "' y='", y, "' dy='", dy, "' text-anchor='", anchor, "'>",
             html_text(text), "</text>");
}

// Decades where a logarithmic axis spans two or more, else round numbers.
std::vector<double> heights_of(const Plot& f) {
  if (!f.log_y) return ticks(f.y.low, f.y.high, 5);
  if (f.y.high - f.y.low < 2) return ticks(std::pow(10, f.y.low), std::pow(10, f.y.high), 5);
  std::vector<double> decades;
  for (double t = std::ceil(f.y.low); t <= f.y.high; ++t) decades.push_back(std::pow(10, t));
  return decades;
}

std::string axes(const Plot& f, const std::string& x_name) {
  std::string svg;
  const std::string left = fixed_text(kLeft, 0), right = fixed_text(kWidth - kRight, 0),
                    bottom = fixed_text(kHeight - kBottom, 0);
  for (const double v : heights_of(f)) {
    svg += str("<line class='g' x1='", left, "' x2='", right, "' y1='", f.py(v), "' y2='", f.py(v),
               "'/>");
    svg += label(fixed_text(kLeft - 6, 0), f.py(v), 4, "end", tick_text(v));
  }
  for (const double t : ticks(f.x.low, f.x.high, 5))
    svg += label(f.px(t), bottom, 16, "middle", tick_text(t));
  return svg + label(right, fixed_text(kHeight - 6, 0), 0, "end", x_name);
}

std::string line_of(const Plot& f, const Series& s, const Points& points) {
  std::string path, dots;
  for (const auto& [x, y] : points) {
    path += str(path.empty() ? "" : " ", f.px(x), ",", f.py(y));
    if (s.marks || points.size() == 1)
      dots += str("<circle r='3' cx='", f.px(x), "' cy='", f.py(y), "'/>");
  }
  return str("<g style='--c:var(--c", s.colour, ")'><polyline points='", path, "'/>", dots, "</g>");
}

// ---- the page ----

constexpr int64_t kMostBytes = int64_t{1} << 28;  // of a file that is read
constexpr std::size_t kMostSamples = 12;          // on a page: the last ones

constexpr const char* kStyle = R"(<style>
:root{--bg:#fff;--fg:#1b1f24;--dim:#667;--box:#f5f6f8;--grid:#e3e5e9;--c0:#1f5aa6;--c1:#c8371a;--c2:#2e8540;
--c3:#8a4fbe;--c4:#b7791f;--c5:#0b7f86;--c6:#a23b72;--c7:#555}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e8ea;--dim:#9aa2ab;--box:#1e2328;--grid:#2c3238;
--c0:#6aa7f0;--c1:#ff8264;--c2:#6fcf83;--c3:#c79bf2;--c4:#e5b567;--c5:#5fd0d6;--c6:#ef8dbd;--c7:#aaa}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1100px;padding:16px;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.15rem;margin:1.6em 0 .5em}
.f{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:12px}
figure{margin:0;padding:10px;background:var(--box);border-radius:8px;min-width:0}figcaption{font-weight:600}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--dim)}.g{stroke:var(--grid)}
polyline{fill:none;stroke:var(--c);stroke-width:2}circle{fill:var(--c)}.k{margin:4px 0 0;font-size:.85rem;
color:var(--dim)}.k span{margin-right:1em;white-space:nowrap}.k span:before{content:"";display:inline-block;
width:.8em;height:.8em;border-radius:2px;background:var(--c);margin-right:.35em}pre{margin:0;padding:10px;
background:var(--box);border-radius:8px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;
font:13px/1.45 ui-monospace,monospace}img{max-width:100%;image-rendering:pixelated}summary{cursor:pointer;
font-weight:600}b{color:var(--fg)}.d{color:var(--dim)}
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

struct Run {
  std::string name, yaml, about;
  std::vector<std::string> lines;                     // of metrics.jsonl
  std::vector<std::pair<int64_t, fs::path>> samples;  // by step
  std::optional<Config> config;

  // The points of a key against seconds of training; those of evaluations have no seconds of their
  // own.
  std::vector<std::pair<double, double>> points(const char* key, double factor = 1) const {
    std::vector<std::pair<double, double>> all;
    for (const std::string& line : lines)
      if (const auto x = json_number(line, "elapsed_s"), y = json_number(line, key); x && y)
        all.emplace_back(*x, *y * factor);
    return all;
  }

  const char* unit() const {
    return config && config->model.position_axes.size() == 3 ? "bits per dimension"
                                                             : "bits per token";
  }
};

Run read_run(const std::string& folder) {
  const fs::path root = folder;
  if (!fs::is_regular_file(root / "metrics.jsonl"))
    fail(folder,
         ": is no folder of a run: it has no metrics.jsonl; train makes such folders, runs/NAME");
  Run run;
  run.name = fs::absolute(root).lexically_normal().filename().string();
  if (run.name.empty())
    run.name = fs::absolute(root).lexically_normal().parent_path().filename().string();
  const std::string metrics = text_of(root / "metrics.jsonl");
  for (std::size_t at = 0, end; (end = metrics.find('\n', at)) != std::string::npos; at = end + 1)
    run.lines.push_back(metrics.substr(at, end - at));
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
constexpr const char* kSeconds = "seconds of training";

// Each run in a colour of its own; of one run the three kinds of bits.
std::string curves(const std::vector<Run>& runs) {
  Chart bits{
      .title = runs[0].unit(),
      .x_name = kSeconds,
      .series = {},
      .log_y = true,
      .low_share = 0.03,
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() == 1) {
      bits.series = {{"train", 7, false, runs[i].points("bits")},
                     {"valid", 0, true, runs[i].points("valid_bits")},
                     {"valid, moving average", 1, true, runs[i].points("valid_bits_ema")}};
    } else {
      auto valid = runs[i].points("valid_bits_ema");
      if (valid.empty()) valid = runs[i].points("valid_bits");
      const bool scored = !valid.empty();
      bits.series.push_back({runs[i].name + (scored ? ", valid" : ", train"), i % 8, scored,
                             scored ? valid : runs[i].points("bits")});
    }
  }
  std::string html = svg_of(bits);
  for (const Curve& curve : kCurves) {
    Chart chart{.title = curve.title, .x_name = kSeconds, .series = {}, .log_y = curve.log_y};
    for (std::size_t i = 0; i < runs.size(); ++i)
      chart.series.push_back({runs.size() == 1 ? "last" : runs[i].name, i % 8, false,
                              runs[i].points(curve.key, curve.factor)});
    html += svg_of(chart);
  }
  return "<div class=f>" + html + "</div>\n";
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
    html += at->second.extension() == ".png"
                ? picture(bytes, step)
                : str("<figure><figcaption>", step, "</figcaption><pre>", html_text(bytes),
                      "</pre></figure>\n");
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
  double best = INFINITY;
  for (const char* key : {"valid_bits", "valid_bits_ema"})
    for (const auto& [x, y] : run.points(key)) best = std::min(best, y);
  if (std::isfinite(best)) text += str(", best validation ", fixed_text(best, 4), " ", run.unit());
  return "<p class=d>" + html_text(text) + "</p>\n";
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

std::string html_text(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const std::string character = length == 0 ? kReplacement : text.substr(i, length);
    i += std::max<std::size_t>(length, 1);
    out += character == "&"    ? "&amp;"
           : character == "<"  ? "&lt;"
           : character == ">"  ? "&gt;"
           : character == "\"" ? "&quot;"
           : character == "'"  ? "&#39;"
                               : character;
  }
  return out;
}

std::string svg_of(const Chart& chart) {
  std::vector<Points> lines;
  Plot f{{}, {}, chart.log_y};
  std::vector<double> heights;
  for (const Series& s : chart.series) {
    for (const auto& [x, y] : lines.emplace_back(thinned(s.points, chart.log_y))) {
      f.x.add(x);
      heights.push_back(f.value(y));
    }
  }
  if (heights.empty()) return "";
  std::ranges::sort(heights);
  f.y.add(heights[0]);
  f.y.add(heights[(1 - chart.low_share) * static_cast<double>(heights.size() - 1)]);
  f.x.widen();
  f.y.widen();
  std::string legend, drawn;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const Series& s = chart.series[i];
    drawn += line_of(f, s, lines[i]);
    legend += str("<span style='--c:var(--c", s.colour, ")'>", html_text(s.name), " <b>",
                  tick_text(lines[i].back().second), "</b></span>");
  }
  return str("<figure><figcaption>", html_text(chart.title), "</figcaption><svg viewBox='0 0 ",
             kWidth, " ", kHeight, "' role=img aria-label='", html_text(chart.title), "'>",
             axes(f, chart.x_name), drawn, "</svg><p class=k>", legend, "</p></figure>\n");
}

std::string run_page(const std::vector<std::string>& folders) {
  std::vector<Run> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  const std::string title = joined(runs, ", ", &Run::name);
  std::string html =
      str("<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport "
          "content='width=device-width,initial-scale=1'><title>",
          html_text(title), "</title>", kStyle, "\n<h1>", html_text(title), "</h1>\n");
  if (runs.size() == 1)
    return html + facts(runs[0]) + curves(runs) + details(runs[0]) + "</html>\n";
  html += curves(runs);
  for (const Run& run : runs)
    html += "<h1>" + html_text(run.name) + "</h1>\n" + facts(run) + curves({run}) + details(run);
  return html + "</html>\n";
}
}  // namespace weft
