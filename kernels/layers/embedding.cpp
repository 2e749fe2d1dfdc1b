// SPDX-License-Identifier: MIT
// Embeddings: the definition. Forward by rows; backward by columns, rows in parts of fixed size, in
// order.
#include "kernels/layers/embedding.h"

#include "kernels/cpu.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kColumns = 64;  // columns that one thread takes at a time in the backward pass
// rows of dy prefetched: hardware does not follow strides of a row
constexpr int64_t kAhead = 8;
constexpr int64_t kLine = 64;  // bytes of a cache line

// Where the tokens of a batch lie in the grid of positions.
struct Places {
  const int32_t *offsets, *positions;  // null where absent
  int64_t time;

  int64_t of(int64_t b, int64_t token) const {
    if (positions) return positions[b * time + token];
    return token + (offsets ? offsets[b] : 0);
  }
};

// Row 0 of sequence b: the start vector, or the sum of those that its conditions name.
template <class T>
void start_row(const EmbeddingForward& k, int64_t b, T* out) {
  const T* start = k.start.as<T>();
  const int64_t cols = k.y.cols(), kinds = k.conditions ? k.conditions.shape[1] : 0;
  if (kinds == 0) {
    std::copy(start, start + cols, out);
    return;
  }
  const int32_t* row = k.conditions.as<int32_t>() + b * kinds;
  for (int64_t c = 0; c < cols; ++c) {
    wide_t<T> sum = 0;
    for (int64_t i = 0; i < kinds; ++i) sum += static_cast<wide_t<T>>(start[row[i] * cols + c]);
    out[c] = static_cast<T>(sum);
  }
}

template <class T>
void forward(const EmbeddingForward& k) {
  using W = wide_t<T>;
  const int64_t batch = k.tokens.shape[0], time = k.tokens.shape[1], count = k.y.shape[1],
                cols = k.y.cols();
  const int64_t first = k.first_at ? *k.first_at : k.first;
  const auto* tokens = k.tokens.as<int32_t>();
  const Places places = {k.offsets.or_null<int32_t>(), k.positions.or_null<int32_t>(), time};
  const T *table = k.table.as<T>(), *previous = k.previous.or_null<T>();
  const T* position[kMaxPositionAxes] = {};
  for (int a = 0; a < k.axes; ++a) position[a] = k.axis[a].table.as<T>();
  T* y = k.y.as<T>();
#pragma omp parallel for schedule(static) if (k.y.size() > kParallelElements)
  for (int64_t row = 0; row < batch * count; ++row) {
    const int64_t b = row / count, t = first + row % count;
    T* out = y + row * cols;
    if (t == 0) {
      start_row(k, b, out);
      continue;
    }
    const T* token = table + static_cast<int64_t>(tokens[b * time + t - 1]) * cols;
    const T* before = previous && t > 1
                          ? previous + static_cast<int64_t>(tokens[b * time + t - 2]) * cols
                          : nullptr;
    const int64_t place = places.of(b, t - 1);
    const T* of_axis[kMaxPositionAxes] = {};
    for (int a = 0; a < k.axes; ++a)
      of_axis[a] = position[a] + (place / k.axis[a].divisor) % k.axis[a].table.shape[0] * cols;
    for (int64_t c = 0; c < cols; ++c) {
      W sum = static_cast<W>(token[c]);
      for (int a = 0; a < k.axes; ++a) sum += static_cast<W>(of_axis[a][c]);
      if (before) sum += static_cast<W>(before[c]);
      out[c] = static_cast<T>(sum);
    }
  }
}

// Sums of rows of dy for each row of a table, columns first .. first + count - 1 of both. A table
// row may collect hundreds of thousands of rows: kTerms at a time are added before they join the
// gradient, which bounds rounding errors. The order depends on the tokens alone.
template <class T>
class RowSums {
  using W = wide_t<T>;

 public:
  RowSums(const GradView& grad, int64_t first, int64_t count)
      : out_(grad ? static_cast<W*>(grad.view.data) + first : nullptr),
        rows_(grad ? grad.view.rows() : 0),
        cols_(grad ? grad.view.cols() : 0),
        count_(count),
        terms_(static_cast<std::size_t>(rows_)),
        part_(std::make_unique_for_overwrite<W[]>(static_cast<std::size_t>(rows_ * count))) {
    for (int64_t r = 0; r < rows_ && !grad.accumulate; ++r)
      std::fill(out_ + r * cols_, out_ + r * cols_ + count_, W{0});
  }

  explicit operator bool() const { return out_ != nullptr; }

  void add(int64_t row, const T* dy) {
    W* part = part_.get() + row * count_;
    if (terms_[static_cast<std::size_t>(row)]++ == 0) {
      for (int64_t c = 0; c < count_; ++c) part[c] = static_cast<W>(dy[c]);
    } else {
      for (int64_t c = 0; c < count_; ++c) part[c] += static_cast<W>(dy[c]);
    }
    if (terms_[static_cast<std::size_t>(row)] == kTerms) join(row);
  }

  // Parts that are still open join the gradient.
  void finish() {
    for (int64_t r = 0; r < rows_; ++r)
      if (terms_[static_cast<std::size_t>(r)] > 0) join(r);
  }

 private:
  static constexpr int kTerms = 512;

  void join(int64_t row) {
    const W* part = part_.get() + row * count_;
    W* out = out_ + row * cols_;
    for (int64_t c = 0; c < count_; ++c) out[c] += part[c];
    terms_[static_cast<std::size_t>(row)] = 0;
  }

  W* out_;
  int64_t rows_, cols_, count_;
  std::vector<int> terms_;     // rows in the part of each table row that is open
  std::unique_ptr<W[]> part_;  // (rows, count)  written by the first term of a part
};

template <class T>
void fetch(const T* row, int64_t count) {
  for (int64_t c = 0; c < count; c += kLine / int64_t{sizeof(T)}) __builtin_prefetch(row + c);
}

template <class T>
void add_start(const EmbeddingBackward& k, int64_t b, const T* dy, RowSums<T>& start) {
  if (!k.conditions) return start.add(0, dy);
  const int64_t kinds = k.conditions.shape[1];
  const auto* row = static_cast<const int32_t*>(k.conditions.data) + b * kinds;
  for (int64_t i = 0; i < kinds; ++i) start.add(row[i], dy);
}

template <class T>
void backward_columns(const EmbeddingBackward& k, int64_t first, int64_t count) {
  const int64_t batch = k.dy.shape[0], time = k.dy.shape[1], cols = k.dy.cols();
  const T* columns = static_cast<const T*>(k.dy.data) + first;
  const auto* tokens = static_cast<const int32_t*>(k.tokens.data);
  const Places places = {k.offsets.or_null<int32_t>(), k.positions.or_null<int32_t>(), time};
  RowSums<T> table(k.dtable, first, count), start(k.dstart, first, count),
      previous(k.dprevious, first, count);
  std::vector<RowSums<T>> axis;
  for (int a = 0; a < k.axes; ++a) axis.emplace_back(k.daxis[a], first, count);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < time; ++t) {
      const int64_t row = b * time + t;
      const T* dy = columns + row * cols;
      fetch(columns + std::min(row + kAhead, batch * time - 1) * cols, count);
      if (t == 0) {
        if (start) add_start(k, b, dy, start);
        continue;
      }
      if (table) table.add(tokens[row - 1], dy);
      if (previous && t > 1) previous.add(tokens[row - 2], dy);
      const int64_t place = places.of(b, t - 1);
      for (std::size_t a = 0; a < axis.size(); ++a)
        if (axis[a]) axis[a].add((place / k.divisor[a]) % k.daxis[a].view.shape[0], dy);
    }
  }
  table.finish();
  start.finish();
  previous.finish();
  for (RowSums<T>& sums : axis) sums.finish();
}

template <class T>
void backward(const EmbeddingBackward& k) {
  const int64_t cols = k.dy.cols();
#pragma omp parallel for schedule(static) if (k.dy.size() > kParallelElements)
  for (int64_t first = 0; first < cols; first += kColumns)
    backward_columns<T>(k, first, std::min(kColumns, cols - first));
}

// `start`: the start vector, or its gradient.
template <class Kernel>
void check_sequence(const Kernel& k, int64_t batch, int64_t time, int64_t cols,
                    const TensorView& start, DType start_type) {
  const std::string kernel = Kernel::kName;
  if (k.offsets) expect_size(k.offsets, DType::i32, batch, (kernel + ": offsets").c_str());
  if (k.positions)
    expect_matrix(k.positions, DType::i32, batch, time, (kernel + ": positions").c_str());
  WEFT_CHECK(!k.offsets || !k.positions, kernel, ": offsets and positions exclude each other");
  if (k.conditions) {
    WEFT_CHECK(k.conditions.rank == 2 && k.conditions.shape[1] > 0, kernel,
               ": conditions must be (B, K), got ", shape_text(k.conditions));
    expect_matrix(k.conditions, DType::i32, batch, k.conditions.shape[1],
                  (kernel + ": conditions").c_str());
    if (start) expect_matrix(start, start_type, start.rows(), cols, (kernel + ": start").c_str());
  } else if (start) {
    expect_size(start, start_type, cols, (kernel + ": start").c_str());
  }
}

void check_axes(int axes) {
  WEFT_CHECK(axes >= 0 && axes <= kMaxPositionAxes, "embedding: 0 to ", kMaxPositionAxes,
             " position axes, got ", axes);
}
}  // namespace

void check(const EmbeddingForward& k) {
  const DType t = k.y.dtype;
  const int64_t cols = k.y.cols();
  expect_floating(k.y, "embedding_forward: y");
  WEFT_CHECK(k.tokens.rank == 2 && k.y.rank == 3,
             "embedding_forward: tokens (B, T) and y (B, count, C), got ", shape_text(k.tokens),
             " and ", shape_text(k.y));
  expect_size(k.tokens, DType::i32, k.tokens.size(), "embedding_forward: tokens");
  expect_matrix(k.y, t, k.tokens.shape[0] * k.y.shape[1], cols, "embedding_forward: y");
  WEFT_CHECK(k.first >= 0 && k.first + k.y.shape[1] <= k.tokens.shape[1] + 1,
             "embedding_forward: rows ", k.first, " to ", k.first + k.y.shape[1] - 1,
             " of a sequence of ", k.tokens.shape[1], " tokens");
  expect_matrix(k.table, t, k.table.rows(), cols, "embedding_forward: table");
  if (k.previous) expect_matrix(k.previous, t, k.table.rows(), cols, "embedding_forward: previous");
  check_axes(k.axes);
  WEFT_CHECK(k.start, "embedding_forward: start is absent");
  check_sequence(k, k.tokens.shape[0], k.tokens.shape[1], cols, k.start, t);
  for (int a = 0; a < k.axes; ++a) {
    expect_matrix(k.axis[a].table, t, k.axis[a].table.shape[0], cols,
                  "embedding_forward: position table");
    WEFT_CHECK(k.axis[a].table.shape[0] > 0 && k.axis[a].divisor > 0,
               "embedding_forward: position axis ", a, " needs rows and a divisor of at least 1");
  }
}

void check(const EmbeddingBackward& k) {
  const DType w = wide(k.dy.dtype);
  const int64_t cols = k.dy.cols();
  expect_floating(k.dy, "embedding_backward: dy");
  WEFT_CHECK(k.dy.rank == 3, "embedding_backward: dy must be (B, T, C), got ", shape_text(k.dy));
  expect_size(k.dy, k.dy.dtype, k.dy.size(), "embedding_backward: dy");
  expect_matrix(k.tokens, DType::i32, k.dy.shape[0], k.dy.shape[1], "embedding_backward: tokens");
  if (k.dtable)
    expect_matrix(k.dtable.view, w, k.dtable.view.rows(), cols, "embedding_backward: dtable");
  if (k.dprevious)
    expect_matrix(k.dprevious.view, w, k.dprevious.view.rows(), cols,
                  "embedding_backward: dprevious");
  check_axes(k.axes);
  check_sequence(k, k.dy.shape[0], k.dy.shape[1], cols, k.dstart.view, w);
  for (int a = 0; a < k.axes; ++a) {
    if (!k.daxis[a]) continue;
    expect_matrix(k.daxis[a].view, w, k.daxis[a].view.shape[0], cols,
                  "embedding_backward: gradient of a position table");
    WEFT_CHECK(k.daxis[a].view.shape[0] > 0 && k.divisor[a] > 0,
               "embedding_backward: position axis ", a, " needs rows and a divisor of at least 1");
  }
}

void compute(CpuQueue&, const EmbeddingForward& k) {
  dispatch_float(k.y.dtype, [&]<class T>() { forward<T>(k); });
}

void compute(CpuQueue&, const EmbeddingBackward& k) {
  dispatch_float(k.dy.dtype, [&]<class T>() { backward<T>(k); });
}
}  // namespace weft
