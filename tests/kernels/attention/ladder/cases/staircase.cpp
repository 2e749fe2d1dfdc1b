// SPDX-License-Identifier: MIT
#include "tests/kernels/attention/ladder/cases/staircase.h"

#include "train/program/letters.h"
#include "train/program/progress.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace weft::ladder {
namespace {
constexpr Rgb kInk{40, 40, 48}, kGrid{224, 224, 230}, kRoof{200, 60, 40}, kFirst{168, 200, 236},
    kLast{24, 84, 150};
constexpr Rgb kInside{255, 255, 255};  // of labels on a step
constexpr int64_t kMargin = 70, kStep = 116, kPanel = 250, kTitle = 44, kNames = 40;

// Where the axis of a panel puts a rate.
struct Axis {
  int64_t bottom;    // of the panel, in pixels from above
  double low, high;  // rates

  int64_t y(double rate) const {
    const double share = std::log(std::max(rate, low) / low) / std::log(high / low);
    return bottom - static_cast<int64_t>(std::lround(share * kPanel));
  }
};

// 1, 2, 5, 10, ... between the ends of the axis.
std::vector<double> ticks(const Axis& axis) {
  std::vector<double> at;
  for (double ten = std::pow(10, std::floor(std::log10(axis.low))); ten <= axis.high; ten *= 10)
    for (const double digit : {1.0, 2.0, 5.0})
      if (ten * digit >= axis.low && ten * digit <= axis.high) at.push_back(ten * digit);
  return at;
}

std::string short_text(double x) { return fixed_text(x, x < 9.95 ? 1 : 0); }

int64_t width_of(const std::string& text) { return kLetterWidth * std::ssize(text); }

void centred(Image& image, int64_t middle, int64_t y, const std::string& text, const Rgb& colour) {
  write_letters(image, middle - width_of(text) / 2, y, text, colour);
}

// Above the step; inside of it, where the line of the roof would cross the label.
void label(Image& image, int64_t middle, int64_t top, int64_t roof, const std::string& text) {
  const int64_t above = top - kLetterHeight - 3;
  const bool crossed = roof + 2 >= above && roof <= top;
  centred(image, middle, crossed ? std::max(top, roof) + 6 : above, text, crossed ? kInside : kInk);
}

// A panel below `top`.
void draw_panel(Image& image, int64_t top, const std::string& title,
                const std::vector<std::pair<std::string, double>>& steps, double roof) {
  double low = roof;
  for (const auto& [name, rate] : steps)
    if (rate > 0) low = std::min(low, rate);
  const Axis axis{top + kTitle + kPanel, low / 2, roof * 1.5};
  const int64_t width = kStep * std::ssize(steps);
  write_letters(image, kMargin, top + 8, title, kInk);
  for (const double tick : ticks(axis)) {
    fill(image, kMargin, axis.y(tick), width, 1, kGrid);
    const std::string text = fixed_text(tick, tick < 1 ? 1 : 0);
    write_letters(image, kMargin - 8 - width_of(text), axis.y(tick) - kLetterHeight / 2, text,
                  kInk);
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto& [name, rate] = steps[s];
    if (rate == 0) continue;  // the rung is about the other direction
    const int64_t x = kMargin + kStep * static_cast<int64_t>(s), y = axis.y(rate);
    const double share = static_cast<double>(s) / static_cast<double>(steps.size());
    fill(image, x, y, kStep - 2, axis.bottom - y, mix(kFirst, kLast, share));
    label(image, x + kStep / 2, y, axis.y(roof), short_text(rate));
    centred(image, x + kStep / 2, axis.bottom + 8, name, kInk);
  }
  fill(image, kMargin, axis.y(roof), width, 2, kRoof);
  write_letters(image, kMargin + 6, axis.y(roof) - kLetterHeight - 3,
                "roofline " + short_text(roof), kRoof);
}
}  // namespace

Image staircase(const std::vector<TimedRung>& rungs, double forward_roof, double backward_roof) {
  const bool tera = forward_roof > 1e4;
  const double unit = tera ? 1e3 : 1;
  std::vector<std::pair<std::string, double>> forward, backward;
  for (const TimedRung& rung : rungs) {
    forward.emplace_back(rung.name, rung.forward.gflops / unit);
    backward.emplace_back(rung.name, rung.backward.gflops / unit);
  }
  const int64_t panel = kTitle + kPanel + kNames;
  Image image(kMargin + kStep * std::ssize(rungs) + 20, 2 * panel);
  draw_panel(image, 0, str("forward, ", tera ? "TFLOP/s" : "GFLOP/s", " of the needed pairs"),
             forward, forward_roof / unit);
  draw_panel(image, panel, "backward", backward, backward_roof / unit);
  return image;
}
}  // namespace weft::ladder
