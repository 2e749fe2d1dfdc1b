// SPDX-License-Identifier: MIT
#include "train/report/chart.h"

#include "src/config/names.h"
#include "train/program/json.h"
#include "train/program/progress.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

namespace weft {
namespace {
constexpr double kWidth = 420, kHeight = 230, kLeft = 50, kRight = 10, kTop = 8, kBottom = 38;
constexpr std::size_t kMostPoints = 400;  // of a series

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
  return str("<g", s.faint ? " class=t" : "", " style='--c:var(--c", s.colour,
             ")'><polyline points='", path, "'/>", dots, "</g>");
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
}  // namespace weft
