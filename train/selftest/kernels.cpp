// SPDX-License-Identifier: MIT
#include "kernels/sampling/decode_attention.h"
#include "src/patterns/cache_rows.h"
#include "train/attention/on_device.h"
#include "train/selftest/case.h"

namespace weft {
namespace {

using namespace attention_oracle;
using std::int64_t;

// Later parts go on from a result that was rounded to the type of the tensors.
template <class T>
double rounding_of_parts(const AttentionMaps& maps) {
  constexpr double kUnit = dtype_of<T> == DType::f16 ? 0x1p-11 : dtype_of<T> == DType::bf16 ? 0x1p-8 : 0;
  return kUnit * (maps.passes - 1);
}

// Kernels sum in another order than the plain computation, which is exact where a query sees one key: a unit
// of f32 for each number of a head, and some for the sum over queries.
template <class T>
double rounding_of_sums(const Sizes& s) {
  return dtype_of<T> == DType::f64 ? 0 : 0x1p-23 * static_cast<double>(std::max(s.qk, s.v) + 32);
}

template <class T>
class KernelCheck {
 public:
  KernelCheck(Device& device, const SelftestCase& c)
      : device_(device), case_(c), inputs_(c.size, c.seed), exact_(c.size), plain_(c.size) {
    if (c.segments) inputs_.pack_documents(c.seed);
    exact_ = Data<double>(inputs_);
    plain_ = inputs_;
    dense_forward(*c.pattern, exact_);
    dense_backward(*c.pattern, exact_);
    dense_forward(*c.pattern, plain_);
    dense_backward(*c.pattern, plain_);
  }

  // parted: maps of each sequence's own in place of the segments.
  void check_form(AttentionForm form, const AttentionMaps& maps, bool parted = false) {
    inputs_.form = form;
    Data<T> first = inputs_, second = inputs_;
    run(first, maps, parted);
    run(second, maps, parted);
    const std::string name = device_.is_cuda() ? name_of(form) : "cpu";
    WEFT_CHECK(same_results(first, second), name, ": two runs differ in their bits");
    compare(name, first, form, rounding_of_parts<T>(maps));
  }

  // The last query and some before it, each against a cache in the rows that cache_rows() says.
  void check_decoding() {
    const Lengths n = case_.lengths();
    if (!case_.pattern->causal() || n.queries != n.keys || case_.segments || dtype_of<T> == DType::f64)
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
  void run(Data<T>& x, const AttentionMaps& of_all, bool parted) {
    OnDevice<T> on(device_, x);
    const AttentionMaps maps = parted ? on.part(of_all) : of_all;
    launch(device_.queue, on.forward(maps));
    launch(device_.queue, on.backward_with_scratch(maps));
    device_.synchronize();
    const std::string overwritten = on.written_beside();
    WEFT_CHECK(overwritten.empty(), "a kernel wrote out of the bounds of ", overwritten);
    on.fetch(x);
  }

  void compare(const std::string& name, const Data<T>& x, AttentionForm form, double parts) const {
    const double floor = floor_of<T>(form) + parts + rounding_of_sums<T>(case_.size);
    const auto near = [&](const char* what, const auto& got, const auto& plain, const auto& exact) {
      const double error = difference(got, exact), allowed = 2 * difference(plain, exact) + floor;
      WEFT_CHECK(error <= allowed, name, ": ", what, " has an error of ", error, ", ", allowed,
                 " is allowed (twice that of the plain computation, plus a floor)");
    };
    near("y", x.y, plain_.y, exact_.y);
    near("dq", x.dq, plain_.dq, exact_.dq);
    near("dk", x.dk, plain_.dk, exact_.dk);
    near("dv", x.dv, plain_.dv, exact_.dv);
    const double lse = difference(x.lse, exact_.lse);
    WEFT_CHECK(lse <= 1e-5, name, ": lse has an error of ", lse, ", 1e-5 is allowed");
    check_empty_rows(name, x);
  }

  void check_empty_rows(const std::string& name, const Data<T>& x) const {
    const int64_t queries = case_.lengths().queries, heads = case_.size.heads;
    const auto is_zero = [](const std::vector<T>& values, int64_t row, int64_t size) {
      return std::all_of(&values[row * size], &values[row * size] + size,
                         [](T value) { return static_cast<double>(value) == 0; });
    };
    for (int64_t b = 0; b < case_.size.batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t row = (b * queries + i) * heads + h;
          if (!std::isinf(exact_.lse[(b * heads + h) * queries + i])) continue;
          WEFT_CHECK(is_zero(x.y, row, case_.size.v) && is_zero(x.dq, row, case_.size.qk), name, ": query ",
                     i, " of head ", h, " sees nothing, and its output or gradient is not 0");
        }
  }

  // A cache when position i has come: (B, rows, H, size), NaN where nothing is kept.
  std::vector<T> cache_of(const std::vector<T>& values, int64_t size, int64_t rows, int64_t i,
                          const std::vector<CacheRows>& caches) const {
    const int64_t keys = case_.lengths().keys, heads = case_.size.heads;
    std::vector<T> cache(static_cast<std::size_t>(case_.size.batch * rows * heads * size));
    std::memset(static_cast<void*>(cache.data()), 0xff, cache.size() * sizeof(T));
    for (int64_t b = 0; b < case_.size.batch; ++b)
      for (int64_t j = 0; j <= i; ++j)
        for (int64_t h = 0; h < heads; ++h)
          if (const int64_t row = caches[case_.pattern->group(static_cast<int>(h))].row_of[j]; row >= 0)
            std::copy_n(&values[((b * keys + j) * heads + h) * size], size,
                        &cache[((b * rows + row) * heads + h) * size]);
    return cache;
  }

  void decode(int64_t i, const std::vector<int>& heads, const std::vector<CacheRows>& caches) {
    const Sizes& s = case_.size;
    int64_t rows = 1;
    std::vector<std::int32_t> key_rows, starts{0}, groups, keys;
    for (std::size_t g = 0; g < caches.size(); ++g) {
      rows = std::max(rows, caches[g].rows);
      keys.clear();
      case_.pattern->keys_of(heads[g], i, case_.lengths().keys, keys);
      for (const std::int32_t j : keys) key_rows.push_back(caches[g].row_of[j]);
      starts.push_back(static_cast<std::int32_t>(key_rows.size()));
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
                           k = matrix(s.batch * rows, qk, cache_of(inputs_.k, s.qk, rows, i, caches)),
                           values = matrix(s.batch * rows, v, cache_of(inputs_.v, s.v, rows, i, caches));
    const Tensor lists[] = {on_device(device_, key_rows), on_device(device_, starts),
                            on_device(device_, groups)};
    const auto list = [&](int which) { return static_cast<const std::int32_t*>(lists[which].view().data); };
    const auto view = [&](const GuardedMatrix<T>& m, int64_t time, int64_t size) {
      const int64_t width = s.heads * size;
      return HeadsView{m.data(), dtype_of<T>, s.batch, time, s.heads, size, time * width, width, size};
    };
    launch(device_.queue,
           AttentionDecode{view(y, 1, s.v), view(q, 1, s.qk), view(k, rows, s.qk), view(values, rows, s.v),
                           list(0), list(1), list(2), inputs_.scale()});
    device_.synchronize();
    WEFT_CHECK(y.kept_outside(v), "decoding: the kernel wrote out of the bounds of y");
    const auto exact = row_of(exact_.y, v);
    const double error = difference(y.get(0, v), exact),
                 allowed = 2 * difference(row_of(plain_.y, v), exact) + floor_of<T>(AttentionForm::simple);
    WEFT_CHECK(error <= allowed, "decoding: query ", i, " has an error of ", error, ", ", allowed,
               " is allowed");
  }

  Device& device_;
  const SelftestCase& case_;
  Data<T> inputs_;
  Data<double> exact_;
  Data<T> plain_;
};

}  // namespace

std::vector<AttentionForm> check_kernels(Device& device, const SelftestCase& c, AttentionForm only) {
  const bool all = only == AttentionForm::automatic;
  const DeviceMaps maps(device, *c.pattern, c.heads(), c.lengths(), std::max(c.size.qk, c.size.v), c.edge);
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
