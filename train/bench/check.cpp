// SPDX-License-Identifier: MIT
// y_i, lse_i and dq_i from the keys of query i; dk_j and dv_j from the queries of key j and the
// kernel's lse.
#include "train/bench/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace weft {
namespace {
using Row = std::vector<double>;

double dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void add(Row& sum, double weight, const Row& x) {
  for (std::size_t d = 0; d < x.size(); ++d) sum[d] += weight * x[d];
}

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
class Head {
 public:
  Head(Device& device, const AttentionPattern& pattern, const AttentionTensors& x, int64_t b,
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

  double query_error(int64_t i) const {
    std::vector<int32_t> keys;
    pattern_.keys_of(head_, i, n_, keys);
    const Row q = query(i), dy = gradient(i);
    Row p, y(x_.v_size), dq(q.size());
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const int32_t j : keys) top = std::max(top, p.emplace_back(scale() * dot(q, key(j))));
    for (double& s : p) sum += s = std::exp(s - top);
    for (std::size_t k = 0; k < keys.size(); ++k) add(y, p[k] / sum, value(keys[k]));
    const double delta = dot(dy, y);
    for (std::size_t k = 0; k < keys.size(); ++k)
      add(dq, scale() * p[k] / sum * (dot(dy, value(keys[k])) - delta), key(keys[k]));
    const double lse = keys.empty() ? top : top + std::log(sum), got = lse_[i];
    const double of_lse = lse == got ? 0 : std::abs(lse - got) / std::max(1.0, std::abs(lse));
    return std::max({error_of(y_.row(i, head_ * x_.v_size, x_.v_size), y),
                     error_of(dqkv_.row(i, head_ * x_.qk_size, x_.qk_size), dq), of_lse});
  }

  double key_error(int64_t j) const {
    const Row k = key(j), v = value(j);
    Row dk(k.size()), dv(v.size());
    for (int64_t i = 0; i < n_; ++i) {
      if (!pattern_.attends(head_, i, j)) continue;
      const Row q = query(i), dy = gradient(i);
      const double p = std::exp(scale() * dot(q, k) - lse_[i]);
      const double delta = dot(dy, y_.row(i, head_ * x_.v_size, x_.v_size));
      add(dv, p, dy);
      add(dk, scale() * p * (dot(dy, v) - delta), q);
    }
    return std::max(
        error_of(dqkv_.row(j, (x_.heads + head_) * x_.qk_size, x_.qk_size), dk),
        error_of(dqkv_.row(j, 2 * x_.heads * x_.qk_size + head_ * x_.v_size, x_.v_size), dv));
  }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(x_.qk_size)); }

  Row query(int64_t i) const { return qkv_.row(i, head_ * x_.qk_size, x_.qk_size); }

  Row key(int64_t j) const { return qkv_.row(j, (x_.heads + head_) * x_.qk_size, x_.qk_size); }

  Row value(int64_t j) const {
    return qkv_.row(j, 2 * x_.heads * x_.qk_size + head_ * x_.v_size, x_.v_size);
  }

  Row gradient(int64_t i) const { return dy_.row(i, head_ * x_.v_size, x_.v_size); }

  const AttentionPattern& pattern_;
  const AttentionTensors& x_;
  int head_;
  int64_t n_;
  Sequence qkv_, y_, dy_, dqkv_;
  Row lse_;
};
}  // namespace

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double squares = 0, error_squares = 0, largest = 0, largest_error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) ? std::isnan(got[i]) : std::isinf(want[i]) && got[i] == want[i])
      continue;
    const double error = std::abs(got[i] - want[i]);
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    squares += want[i] * want[i];
    error_squares += error * error;
    largest = std::max(largest, std::abs(want[i]));
    largest_error = std::max(largest_error, error);
  }
  if (error_squares == 0) return 0;
  return std::max(std::sqrt(error_squares / squares), largest_error / largest);
}

double spot_check(Device& device, const AttentionPattern& pattern, const AttentionTensors& x,
                  int rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const int64_t batch = x.qkv.shape()[0], n = x.qkv.shape()[1];
  double worst = 0;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const Head head(device, pattern, x, below(batch), static_cast<int>(below(x.heads)));
    worst = std::max({worst, head.query_error(0), head.query_error(n - 1), head.key_error(0),
                      head.key_error(n - 1)});
    for (int r = 0; r < rows; ++r)
      worst = std::max({worst, head.query_error(below(n)), head.key_error(below(n))});
  }
  return worst;
}
}  // namespace weft
