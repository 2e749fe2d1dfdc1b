// SPDX-License-Identifier: MIT
#include "tests/kernels/attention/ladder/cases/ladder_problem.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace weft::ladder {
using attention_test::by_definition;
using attention_test::Data;
using attention_test::Sizes;

LadderPattern::LadderPattern(std::unique_ptr<AttentionPattern> pattern, int heads, Lengths n)
    : pattern_(std::move(pattern)),
      attends_([of = pattern_.get()](int64_t head, int64_t i, int64_t j) {
        return of->attends(static_cast<int>(head), i, j);
      }),
      in_order_(InOrder(*pattern_), heads, n, kTile, kTile),
      of_pattern_(*pattern_, heads, n, kTile, kTile) {}

void run_rung(const Rung& rung, const LadderPattern& pattern, Data<float>& x) {
  const AttentionForward f = x.forward(pattern.maps(rung.slots));
  const AttentionBackward g = x.backward(pattern.maps(rung.slots));
  check_problem(f), check_problem(g);
  rung.forward(f, pattern.attends());
  rung.backward(g, pattern.attends());
}

double error_of(const Rung& rung, const LadderPattern& pattern, const Sizes& size) {
  Data<float> x(size);
  Data<double> exact(x);
  run_rung(rung, pattern, x);
  by_definition(exact.forward({}), pattern.pattern());
  by_definition(exact.backward({}), pattern.pattern());
  return std::max({difference(x.y, exact.y), difference(x.lse, exact.lse),
                   difference(x.dq, exact.dq), difference(x.dk, exact.dk),
                   difference(x.dv, exact.dv)});
}
}  // namespace weft::ladder
