// SPDX-License-Identifier: MIT
#include "tests/kernels/attention/ladder/cases/ladder_problem.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace weft::ladder {
using attention_test::by_definition;
using attention_test::Data;
using attention_test::OnDevice;
using attention_test::Sizes;

namespace {
// PairBits::words of the groups of heads.
std::vector<uint64_t> words_of(const AttentionPattern& pattern, int heads, Lengths n,
                               int64_t row_words) {
  std::vector<uint64_t> words(
      static_cast<std::size_t>(pattern.groups(heads) * n.queries * row_words));
  std::vector<int32_t> keys;
  std::set<int> done;
  for (int head = 0; head < heads; ++head) {
    if (!done.insert(pattern.group(head)).second) continue;
    for (int64_t i = 0; i < n.queries; ++i) {
      keys.clear();
      pattern.keys_of(head, i, n.keys, keys);
      uint64_t* row = words.data() + (pattern.group(head) * n.queries + i) * row_words;
      for (const int32_t j : keys) row[j / kTile] |= uint64_t{1} << j % kTile;
    }
  }
  return words;
}
}  // namespace

LadderPattern::LadderPattern(Device& device, std::unique_ptr<AttentionPattern> pattern, int heads,
                             Lengths n)
    : pattern_(std::move(pattern)),
      in_order_(device, InOrder(*pattern_), heads, n, kTile, kTile),
      of_pattern_(device, *pattern_, heads, n, kTile, kTile) {
  of_rungs_.attends = [of = pattern_.get()](int64_t head, int64_t i, int64_t j) {
    return of->attends(static_cast<int>(head), i, j);
  };
  if (!device.is_cuda()) return;
  const int64_t row_words = (n.keys + kTile - 1) / kTile;
  const std::vector<uint64_t> words = words_of(*pattern_, heads, n, row_words);
  bits_ = Tensor(*device.pool, {std::ssize(words) * int64_t{sizeof(uint64_t)}}, DType::u8);
  device.upload(bits_, words.data());
  of_rungs_.bits = {static_cast<const uint64_t*>(bits_.view().data), n.queries, row_words};
}

void run_rung(Queue& queue, const Rung& rung, const LadderPattern& pattern,
              const AttentionForward& f) {
  rung.forward ? rung.forward(queue, f, pattern.of_rungs()) : launch(queue, f);
}

void run_rung(Queue& queue, const Rung& rung, const LadderPattern& pattern,
              const AttentionBackward& g) {
  rung.backward ? rung.backward(queue, g, pattern.of_rungs()) : launch(queue, g);
}

template <class T>
void run_rung(Device& device, const Rung& rung, const LadderPattern& pattern, Data<T>& x) {
  const OnDevice<T> on(device, x);
  const AttentionForward f = on.forward(pattern.maps(rung.slots));
  const AttentionBackward g = on.backward(pattern.maps(rung.slots));
  check_problem(f, device.is_cuda()), check_problem(g, device.is_cuda());
  run_rung(device.queue, rung, pattern, f);
  run_rung(device.queue, rung, pattern, g);
  device.synchronize();
  const std::string overwritten = on.written_beside();
  WEFT_CHECK(overwritten.empty(), "ladder: ", rung.name, " wrote out of the bounds of ",
             overwritten);
  on.fetch(x);
}

template void run_rung(Device&, const Rung&, const LadderPattern&, Data<float>&);
template void run_rung(Device&, const Rung&, const LadderPattern&, Data<bf16>&);

namespace {
template <class T>
double error_in(Device& device, const Rung& rung, const LadderPattern& pattern, const Sizes& size) {
  Data<T> x(size);
  Data<double> exact(x);
  run_rung(device, rung, pattern, x);
  by_definition(exact.forward({}), pattern.pattern());
  by_definition(exact.backward({}), pattern.pattern());
  return std::max({difference(x.y, exact.y), difference(x.lse, exact.lse),
                   difference(x.dq, exact.dq), difference(x.dk, exact.dk),
                   difference(x.dv, exact.dv)});
}
}  // namespace

double error_of(Device& device, const Rung& rung, const LadderPattern& pattern, const Sizes& size) {
  return device.is_cuda() ? error_in<bf16>(device, rung, pattern, size)
                          : error_in<float>(device, rung, pattern, size);
}
}  // namespace weft::ladder
