// SPDX-License-Identifier: MIT
// Kernels of attention on random cases: every form beside the definition, and decoding from a
// cache.
#include "kernels/sampling/decode_attention.h"
#include "src/patterns/cache_rows.h"
#include "tests/cases/attention_check.h"
#include "tests/cases/random_case.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace weft {
namespace {
using namespace attention_test;

// Later parts go on from a result that was rounded to the type of the tensors.
template <class T>
double rounding_of_parts(const AttentionMaps& maps) {
  constexpr double kUnit = dtype_of<T> == DType::f16    ? 0x1p-11
                           : dtype_of<T> == DType::bf16 ? 0x1p-8
                                                        : 0;
  return kUnit * (maps.passes - 1);
}

// Kernels sum in another order than the plain computation, which is exact where a query sees one
// key: a unit of f32 for each number of a head, and some for the sum over queries.
template <class T>
double rounding_of_sums(const Sizes& s) {
  return dtype_of<T> == DType::f64 ? 0 : 0x1p-23 * static_cast<double>(std::max(s.qk, s.v) + 32);
}

template <class T>
class KernelCheck {
 public:
  KernelCheck(Device& device, const SelftestCase& c)
      : device_(device),
        case_(c),
        inputs_(inputs_of(c)),
        expected_(device, *c.pattern, inputs_, c.edge) {}

  // parted: maps of each sequence's own in place of the segments.
  void check_form(AttentionForm form, const AttentionMaps& maps, bool parted = false) {
    Data<T> got = inputs_;
    got.form = form;
    try {
      run_twice(device_, got, maps, true, parted);
      expected_.check(
          got, floor_of<T>(form) + rounding_of_parts<T>(maps) + rounding_of_sums<T>(case_.size));
      check_empty_rows(got);
    } catch (const Error& error) {
      fail(device_.is_cuda() ? name_of(form) : "cpu", ": ", error.what());
    }
  }

  // The last query and some before it, each against a cache in the rows that cache_rows() says.
  void check_decoding() {
    const Lengths n = case_.lengths();
    if (!case_.pattern->causal() || n.queries != n.keys || case_.segments ||
        dtype_of<T> == DType::f64)
      return;
    std::vector<int> heads;  // the first of each group
    std::vector<CacheRows> caches;
    for (int group = 0; group < case_.pattern->groups(case_.heads()); ++group) {
      heads.push_back(case_.first_head(group));
      caches.push_back(cache_rows(*case_.pattern, heads.back(), n.keys));
    }
    for (const int64_t i : {n.keys - 1, n.keys / 2, int64_t{0}}) decode(i, heads, caches);
  }

 private:
  static Data<T> inputs_of(const SelftestCase& c) {
    Data<T> inputs(c.size, c.seed);
    if (c.segments) inputs.pack_documents(c.seed);
    return inputs;
  }

  void check_empty_rows(const Data<T>& x) const {
    const int64_t queries = case_.lengths().queries, heads = case_.size.heads;
    const auto is_zero = [](const std::vector<T>& values, int64_t row, int64_t size) {
      return std::all_of(&values[row * size], &values[row * size] + size,
                         [](T value) { return static_cast<double>(value) == 0; });
    };
    for (int64_t b = 0; b < case_.size.batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t row = (b * queries + i) * heads + h;
          if (!std::isinf(expected_.exact.lse[(b * heads + h) * queries + i])) continue;
          WEFT_CHECK(is_zero(x.y, row, case_.size.v) && is_zero(x.dq, row, case_.size.qk), "query ",
                     i, " of head ", h, " sees nothing, and its output or gradient is not 0");
        }
  }

  // A cache when position i has come: (B, rows, H, size), NaN where nothing is kept.
  std::vector<T> cache_of(const std::vector<T>& values, int64_t size, int64_t rows, int64_t i,
                          const std::vector<CacheRows>& caches) const {
    const int64_t keys = case_.lengths().keys, heads = case_.size.heads;
    std::vector<T> cache(case_.size.batch * rows * heads * size);
    std::memset(static_cast<void*>(cache.data()), 0xff, cache.size() * sizeof(T));
    for (int64_t b = 0; b < case_.size.batch; ++b)
      for (int64_t j = 0; j <= i; ++j)
        for (int64_t h = 0; h < heads; ++h)
          if (const int64_t row = caches[case_.pattern->group(static_cast<int>(h))].row_of[j];
              row >= 0)
            std::copy_n(&values[((b * keys + j) * heads + h) * size], size,
                        &cache[((b * rows + row) * heads + h) * size]);
    return cache;
  }

  void decode(int64_t i, const std::vector<int>& heads, const std::vector<CacheRows>& caches) {
    const Sizes& s = case_.size;
    int64_t rows = 1;
    std::vector<int32_t> key_rows, starts{0}, groups, keys;
    for (std::size_t g = 0; g < caches.size(); ++g) {
      rows = std::max(rows, caches[g].rows);
      keys.clear();
      case_.pattern->keys_of(heads[g], i, case_.lengths().keys, keys);
      for (const int32_t j : keys) key_rows.push_back(caches[g].row_of[j]);
      starts.push_back(static_cast<int32_t>(key_rows.size()));
    }
    for (int h = 0; h < case_.heads(); ++h) groups.push_back(case_.pattern->group(h));
    key_rows.push_back(0);  // so that there is memory to point to
    const auto matrix = [&](int64_t count, int64_t columns, const std::vector<T>& values) {
      GuardedMatrix<T> m(device_, count, columns);
      m.put(0, columns, values);
      return m;
    };
    const int64_t qk = s.heads * s.qk, v = s.heads * s.v;
    const auto row_of = [&](const auto& all, int64_t width) {
      std::decay_t<decltype(all)> out;
      for (int64_t b = 0; b < s.batch; ++b) {
        const auto* row = &all[(b * s.time + i) * width];
        out.insert(out.end(), row, row + width);
      }
      return out;
    };
    const GuardedMatrix<T> q = matrix(s.batch, qk, row_of(inputs_.q, qk)), y(device_, s.batch, v),
                           k = matrix(s.batch * rows, qk,
                                      cache_of(inputs_.k, s.qk, rows, i, caches)),
                           values =
                               matrix(s.batch * rows, v, cache_of(inputs_.v, s.v, rows, i, caches));
    const Tensor lists[] = {on_device(device_, key_rows), on_device(device_, starts),
                            on_device(device_, groups)};
    const auto list = [&](int which) {
      return static_cast<const int32_t*>(lists[which].view().data);
    };
    const auto view = [&](const GuardedMatrix<T>& m, int64_t time, int64_t size) {
      const int64_t width = s.heads * size;
      return HeadsView{m.data(), dtype_of<T>,  s.batch, time, s.heads,
                       size,     time * width, width,   size};
    };
    launch(device_.queue,
           AttentionDecode{view(y, 1, s.v), view(q, 1, s.qk), view(k, rows, s.qk),
                           view(values, rows, s.v), list(0), list(1), list(2), inputs_.scale()});
    device_.synchronize();
    WEFT_CHECK(y.kept_outside(v), "decoding: the kernel wrote out of the bounds of y");
    Expected<T>::check_near(str("decoding: query ", i), y.get(0, v), row_of(expected_.plain.y, v),
                            row_of(expected_.exact.y, v), floor_of<T>(AttentionForm::simple));
  }

  Device& device_;
  const SelftestCase& case_;
  Data<T> inputs_;
  Expected<T> expected_;
};
}  // namespace

std::vector<AttentionForm> check_kernels(Device& device, const SelftestCase& c,
                                         AttentionForm only) {
  const bool all = only == AttentionForm::automatic;
  const DeviceMaps maps(device, *c.pattern, c.heads(), c.lengths(), std::max(c.size.qk, c.size.v),
                        c.edge);
  std::vector<AttentionForm> forms = forms_on(device, c.dtype, c.size, maps.maps(), c.segments);
  WEFT_CHECK(!forms.empty(), "no form covers the case");
  if (!all) std::erase_if(forms, [&](AttentionForm form) { return form != only; });
  if (forms.empty()) return forms;
  dispatch_float(c.dtype, [&]<class T>() {
    KernelCheck<T> check(device, c);
    for (const AttentionForm form : forms) check.check_form(form, maps.maps());
    if (all && c.segments && c.lengths().queries == c.lengths().keys) {
      const SegmentMaps parted = {.tables = {}, .maps = maps.maps(), .segments = {}};
      for (const AttentionForm form : forms_on(device, c.dtype, c.size, parted.result(), false))
        check.check_form(form, maps.maps(), true);
    }
    if (all) check.check_decoding();
  });
  return forms;
}
}  // namespace weft
