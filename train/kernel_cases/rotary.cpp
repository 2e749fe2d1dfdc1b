// SPDX-License-Identifier: MIT
// QK-norm and rotary positions: head sizes that fill a group of lanes and that do not, odd numbers of heads.
#include "kernels/layers/rotary.h"
#include "train/kernel_cases/kernel_cases.h"

namespace weft {
namespace {

struct Sizes {
  std::int64_t b, t, heads, qk, v;
  Shape packed() const { return {b, t, heads * (2 * qk + v)}; }
  Shape rstd() const { return {b * t, 2 * heads}; }
};

enum class Place : std::uint8_t { row, offsets, positions, sampled };

struct Parts {
  bool norm = true, rotary = true;
  Place place = Place::row;
  std::string text() const {
    const char* places[] = {"", ", offsets", ", positions", ", positions, one row"};
    return str(norm ? ", norm" : "", rotary ? ", rotary" : "", places[static_cast<int>(place)]);
  }
};

template <class Kernel>
void set_form(CaseRun& r, Kernel& k, const Sizes& s, const Parts& parts) {
  k.heads = s.heads;
  k.qk_size = s.qk;
  k.form.norm = parts.norm;
  k.form.eps = 1e-2;
  if (parts.rotary) k.form.table = r.wide_input({s.t + 3, s.qk / 2, 2}, 0.7);
  if (parts.place == Place::offsets) k.form.offsets = r.integers({s.b}, 0, 3 * s.t);
  if (parts.place >= Place::positions) k.form.positions = r.integers({s.b, s.t + 5}, 0, 3 * s.t);
  if (parts.place == Place::sampled) k.form.first_at = r.numbers({4});
}

void forward(CaseRun& r, const Sizes& s, const Parts& parts) {
  QkForward k;
  k.qkv = r.replaced("qkv", s.packed(), 2);
  if (parts.norm) k.rstd = r.output("rstd", s.rstd(), r.wide_type());
  set_form(r, k, s, parts);
  r.kernel(k);
}

void backward(CaseRun& r, const Sizes& s, const Parts& parts) {
  QkBackward k;
  k.dqkv = r.replaced("dqkv", s.packed());
  if (parts.norm) k.y = r.input(s.packed());
  if (parts.norm) k.rstd = r.wide_input(s.rstd(), 0.1, 0.6);
  set_form(r, k, s, parts);
  r.kernel(k);
}

}  // namespace

void add_rotary_cases(Table& t) {
  const auto add = [&](bool realistic, const Sizes& s, const Parts& parts) {
    const std::string text =
        str("B ", s.b, ", T ", s.t, ", H ", s.heads, ", D ", s.qk, " and ", s.v, parts.text());
    t.put<QkForward>(realistic, case_of(forward, s, parts), text);
    t.put<QkBackward>(realistic, case_of(backward, s, parts), text);
  };
  const Parts variants[] = {{},
                            {.rotary = false},
                            {.norm = false},
                            {.place = Place::offsets},
                            {.place = Place::positions},
                            {.norm = false, .place = Place::sampled}};
  for (const Sizes& s : {Sizes{1, 1, 1, 8, 8},
                         {2, 33, 3, 8, 16},
                         {3, 7, 2, 40, 24},
                         {1, 65, 5, 64, 64},
                         {2, 5, 1, 256, 8},
                         {1, 31, 9, 96, 32},
                         {1, 12, 2, 136, 8},
                         {2, 3, 33, 24, 8}})
    for (const Parts& parts : variants) add(false, s, parts);
  add(true, {4, 12288, 8, 64, 64}, {});
  add(true, {4, 12288, 8, 64, 64}, {.rotary = false});
}

}  // namespace weft
