// SPDX-License-Identifier: MIT
// A query with the keys of its set is a problem of attention of its own, and so is a key with the
// queries that attend it: sampled ones are computed by the definition.
#include "train/bench/check.h"

#include "kernels/attention/definition.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace weft {
namespace {
using definition::Matrix;
using definition::Row;

// Where terms cancel (one key: dq = 0) what is left is rounding of terms that were of the size of
// the inputs.
constexpr double kLeast = 0.5;

double error_of(const Row& got, const Row& exact) {
  double worst = 0, top = kLeast;
  for (std::size_t d = 0; d < exact.size(); ++d) {
    if (!std::isfinite(got[d])) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(got[d] - exact[d]));
    top = std::max(top, std::abs(exact[d]));
  }
  return worst / top;
}

// The bytes of one sequence of a (B, T, columns) tensor on the host.
class Sequence {
 public:
  Sequence(Device& device, const Tensor& x, int64_t b)
      : dtype_(x.dtype()),
        columns_(x.view().cols()) {
    const int64_t size = x.size() / x.view().shape[0];
    bytes_.resize(size * size_of(dtype_));
    device.download(bytes_.data(), x.slice(b * size, {size}));
  }

  Row row(int64_t t, int64_t first, int64_t count) const {
    Row out(count);
    dispatch_float(dtype_, [&]<class T>() {
      const T* in = reinterpret_cast<const T*>(bytes_.data()) + t * columns_ + first;
      for (int64_t d = 0; d < count; ++d)
        out[d] = static_cast<double>(static_cast<wide_t<T>>(in[d]));
    });
    return out;
  }

 private:
  DType dtype_;
  int64_t columns_;
  std::vector<char> bytes_;
};

// One head of one sequence.
class CheckedHead {
 public:
  CheckedHead(Device& device, const AttentionPattern& pattern, const AttentionTensors& x, int64_t b,
              int head)
      : pattern_(pattern),
        x_(x),
        head_(head),
        n_(x.qkv.shape()[1]),
        qkv_(device, x.qkv, b),
        y_(device, x.y, b),
        dy_(device, x.dy, b),
        dqkv_(device, x.dqkv, b),
        lse_(n_) {
    std::vector<float> lse(n_);
    device.download(lse.data(), x.lse.slice((b * x.heads + head) * n_, {n_}));
    std::ranges::copy(lse, lse_.begin());
  }

  // Of y, lse and dq of query i.
  double query_error(int64_t i) const {
    definition::Head head = problem();
    std::vector<int32_t> keys;
    pattern_.keys_of(head_, i, n_, keys);
    if (keys.empty()) {  // a problem has a key at least
      keys = {0};
      head.attends = [](std::size_t, std::size_t) { return false; };
    }
    head.q = {query(qkv_, i)};
    for (const int32_t j : keys) head.k.push_back(key(qkv_, j)), head.v.push_back(value(qkv_, j));
    const definition::Output out = definition::forward(head);
    const definition::Gradients g = definition::backward(head, out, {output(dy_, i)});
    const double lse = out.lse[0], got = lse_[i];
    const double of_lse = lse == got ? 0 : std::abs(lse - got) / std::max(1.0, std::abs(lse));
    return std::max(
        {error_of(output(y_, i), out.y[0]), error_of(query(dqkv_, i), g.dq[0]), of_lse});
  }

  // Of dk and dv of key j, from the y and lse of its queries that the kernel wrote.
  double key_error(int64_t j) const {
    definition::Head head = problem();
    definition::Output out;
    Matrix dy;
    head.k = {key(qkv_, j)}, head.v = {value(qkv_, j)};
    for (int64_t i = 0; i < n_; ++i) {
      if (!pattern_.attends(head_, i, j)) continue;
      head.q.push_back(query(qkv_, i));
      out.y.push_back(output(y_, i));
      out.lse.push_back(lse_[i]);
      dy.push_back(output(dy_, i));
    }
    const definition::Gradients g = definition::backward(head, out, dy);
    return std::max(error_of(key(dqkv_, j), g.dk[0]), error_of(value(dqkv_, j), g.dv[0]));
  }

 private:
  definition::Head problem() const {
    definition::Head head;
    head.scale = 1 / std::sqrt(static_cast<double>(x_.qk_size));
    head.attends = [](std::size_t, std::size_t) { return true; };
    return head;
  }

  Row query(const Sequence& qkv, int64_t t) const {
    return qkv.row(t, head_ * x_.qk_size, x_.qk_size);
  }

  Row key(const Sequence& qkv, int64_t t) const {
    return qkv.row(t, (x_.heads + head_) * x_.qk_size, x_.qk_size);
  }

  Row value(const Sequence& qkv, int64_t t) const {
    return qkv.row(t, 2 * x_.heads * x_.qk_size + head_ * x_.v_size, x_.v_size);
  }

  Row output(const Sequence& y, int64_t t) const { return y.row(t, head_ * x_.v_size, x_.v_size); }

  const AttentionPattern& pattern_;
  const AttentionTensors& x_;
  int head_;
  int64_t n_;
  Sequence qkv_, y_, dy_, dqkv_;
  Row lse_;
};
}  // namespace

double spot_check(Device& device, const AttentionPattern& pattern, const AttentionTensors& x,
                  int rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const int64_t batch = x.qkv.shape()[0], n = x.qkv.shape()[1];
  double worst = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const CheckedHead head(device, pattern, x, below(batch), static_cast<int>(below(x.heads)));
    worst = std::max({worst, head.query_error(0), head.query_error(n - 1), head.key_error(0),
                      head.key_error(n - 1)});
    for (int r = 0; r < rows; ++r)
      worst = std::max({worst, head.query_error(below(n)), head.key_error(below(n))});
  }
  return worst;
}
}  // namespace weft
