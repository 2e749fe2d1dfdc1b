// SPDX-License-Identifier: MIT
// The patterns that the attention tests run through.
#include "tests/kernels/attention/attention_case.h"

#include <utility>
#include <vector>

namespace weft::attention_test {
namespace {
std::unique_ptr<PredicatePattern> predicate(Lengths n, See see) {
  return std::make_unique<PredicatePattern>(n.keys, std::move(see));
}

// Position t at row t / step of column t % step.
auto by_column(int64_t step, int64_t n) {
  return [=](int64_t t) { return t % step * (n / step + 1) + t / step; };
}

// The last 5 keys; and every seventh before them, in columns.
PartsPattern::Part near(Lengths n, int of) {
  return {predicate(n, [](int, auto i, auto j) { return j <= i && i - j < 5; }), of};
}

PartsPattern::Part far(Lengths n, int of) {
  auto pattern = predicate(n, [](int, auto i, auto j) { return i - j >= 5 && (i - j) % 7 == 0; });
  pattern->query_order = by_column(7, n.queries);
  pattern->key_order = by_column(7, n.keys);
  return {std::move(pattern), of};
}

std::unique_ptr<PartsPattern> in_parts(int period, std::vector<PartsPattern::Part> parts) {
  auto pattern = std::make_unique<PartsPattern>();
  pattern->period = period;
  pattern->list = std::move(parts);
  return pattern;
}

template <class... Parts>
std::unique_ptr<PartsPattern> in_parts(int period, Parts&&... parts) {
  std::vector<PartsPattern::Part> list;
  (list.push_back(std::move(parts)), ...);
  return in_parts(period, std::move(list));
}

void add_in_parts(std::vector<NamedPattern>& list, Lengths n) {
  list.push_back({"near and far keys, two parts", in_parts(1, near(n, -1), far(n, -1))});
  PartsPattern::Part every_third{predicate(n, [](int, auto, auto j) { return j % 3 == 1; }), 1};
  list.push_back({"two parts for even heads, one for odd",
                  in_parts(2, near(n, 0), std::move(every_third), far(n, 0))});
  // Rows i % 4 == 3 stay empty; rows i % 4 == 1 get their first key from the second part.
  PartsPattern::Part even{
      predicate(n, [](int, auto i, auto j) { return i % 2 == 0 && j % 3 == 0; }), -1},
      some{predicate(n, [](int, auto i, auto j) { return (i % 4 == 1 || i == 0) && j % 3 == 1; }),
           -1},
      none{predicate(n, [](int, auto, auto) { return false; }), -1};
  list.push_back({"three parts, many rows empty",
                  in_parts(1, std::move(even), std::move(some), std::move(none))});
}
}  // namespace

std::vector<NamedPattern> sample_patterns(Lengths n, int heads) {
  std::vector<NamedPattern> list;
  const auto add = [&](const char* name, See see) {
    list.push_back({name, predicate(n, std::move(see))});
    return static_cast<PredicatePattern*>(list.back().pattern.get());
  };
  add("all", [](int, auto i, auto j) { return j <= i; });
  add("every pair", [](int, auto, auto) { return true; });
  add("nothing", [](int, auto, auto) { return false; });
  add("strictly earlier, even keys", [](int, auto i, auto j) { return j < i && j % 2 == 0; });
  add("window of 70", [](int, auto i, auto j) { return j <= i && i - j < 70; });
  add("random", [](int, auto i, auto j) { return (i * 7919 + j * 104729) % 101 < 5; })->key_order =
      [n](auto j) { return n.keys - 1 - j; };
  PredicatePattern* gaps = add("by residue of 3, gapped",
                               [](int, auto i, auto j) { return j <= i && (i - j) % 3 == 0; });
  gaps->query_order = [n](auto i) { return i % 3 * ((n.queries / 3 + 64) / 64 * 64) + i / 3; };
  gaps->key_order = [n](auto i) { return (2 - i % 3) * (n.keys / 3 + 5) + i / 3; };
  add("two groups", [](int head, auto i, auto j) {
    return head == 0 ? j <= i && i - j < 9 : j % 5 == 2;
  })->period = 2;
  for (const PatternSpec& spec : {PatternSpec{"fixed", 16, 4, 2}, PatternSpec{"strided", 16, 0, 1}})
    list.push_back({spec.kind, make_pattern(spec, heads)});
  add_in_parts(list, n);
  return list;
}

AttentionBackward problem_of(int64_t n, int64_t qk, int64_t v) {
  const auto heads = [&](int64_t size) {
    return HeadsView{nullptr, DType::bf16, 2, n, 3, size, n * 3 * size, 3 * size, size};
  };
  AttentionBackward g{};
  g.q = g.k = g.dq = g.dk = heads(qk);
  g.v = g.dv = g.y = g.dy = heads(v);
  return g;
}
}  // namespace weft::attention_test
