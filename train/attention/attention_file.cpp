// SPDX-License-Identifier: MIT
#include "train/attention/attention_file.h"

#include "kernels/attention/select.h"
#include "src/attention_maps.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "train/program/counts.h"
#include "train/program/progress.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <variant>
#include <vector>

namespace weft {
namespace {
DType parse_dtype(const std::string& name) {
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (name == name_of(t)) return t;
  fail("--dtype: expected f32, f16, bf16, or f64 on a CPU, got '", name, "'");
}

struct Sizes {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, qk = 0, v = 0;
};

// The shape of `name`, whose axes must be `expected` (-1: any size of at least 1).
Shape shape_in(const Hdf5File& file, const std::string& name, const char* axes,
               const Shape& expected) {
  const auto extent = [](int64_t n) { return n < 0 ? "any" : std::to_string(n); };
  const auto text = [&](const Shape& shape) { return "(" + joined(shape, ", ", extent) + ")"; };
  const std::string what = str(name, " ", axes, " of shape ", text(expected));
  if (!file.has(name)) fail(file.path(), ": there is no dataset ", name, "; expected ", what);
  const Shape shape = file.shape_of(name);
  bool good = shape.size() == expected.size();
  for (std::size_t a = 0; good && a < shape.size(); ++a)
    good = shape[a] >= 1 && (expected[a] < 0 || shape[a] == expected[a]);
  if (!good) fail(file.path(), ": expected ", what, ", found ", text(shape));
  return shape;
}

Sizes sizes_in(const Hdf5File& file) {
  const Shape q = shape_in(file, "q", "(B, T, H, Dqk)", {-1, -1, -1, -1});
  const Shape k = shape_in(file, "k", "(B, Tk, H, Dqk)", {q[0], -1, q[2], q[3]});
  const Shape v = shape_in(file, "v", "(B, Tk, H, Dv)", {q[0], k[1], q[2], -1});
  if (q[2] > 65536) fail(file.path(), ": q has ", q[2], " heads; at most 65536 work");
  double numbers = 0;  // in all, as the file states
  for (const Shape& shape : {q, k, v})
    numbers += std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  constexpr double kMostPacked = 2048;  // deflate makes nothing smaller than a thousandth
  if (const auto size = static_cast<double>(std::filesystem::file_size(file.path()));
      numbers > kMostPacked * size)
    fail(file.path(), ": q, k and v promise more numbers than a file of ", size,
         " bytes can hold; it is damaged: copy or make it again");
  return {q[0], q[1], k[1], q[2], q[3], v[3]};
}

// All arrays of one run, on the device.
class Arrays {
 public:
  Arrays(Device& device, const Hdf5File& file, DType dtype)
      : device_(device),
        dtype_(dtype) {
    size = sizes_in(file);
    q = read_heads(file, "q", size.queries, size.qk);
    k = read_heads(file, "k", size.keys, size.qk);
    v = read_heads(file, "v", size.keys, size.v);
    o = heads(size.queries, size.v);
    lse = Tensor(*device_.pool, {size.batch, size.heads, size.queries}, wide(dtype_), "attention");
    if (file.has("query_segments") || file.has("key_segments")) {
      query_segments = read_segments(file, "query_segments", "(B, T)", size.queries);
      key_segments = read_segments(file, "key_segments", "(B, Tk)", size.keys);
    }
    if (!file.has("dout")) return;
    shape_in(file, "dout", "(B, T, H, Dv)", {size.batch, size.queries, size.heads, size.v});
    dout = read_heads(file, "dout", size.queries, size.v);
    dq = heads(size.queries, size.qk);
    dk = heads(size.keys, size.qk);
    dv = heads(size.keys, size.v);
    delta = Tensor(*device_.pool, lse.shape(), lse.dtype(), "attention");
  }

  HeadsView view(const Tensor& t) const {
    return heads_of(t, 0, size.heads, t.view().cols() / size.heads);
  }

  Segments segments() const { return {query_segments, key_segments}; }

  void write(Hdf5File& file, const char* name, const Tensor& t, const Shape& shape) const {
    const std::vector<double> values = to_host(device_, t);
    if (dtype_ == DType::f64) return file.write(name, StoredType::f64, shape, values.data());
    const std::vector<float> narrow(values.begin(), values.end());
    file.write(name, StoredType::f32, shape, narrow.data());
  }

  Sizes size;
  Tensor q, k, v, o, lse, dout, dq, dk, dv, delta, query_segments, key_segments;

 private:
  Tensor heads(int64_t time, int64_t columns) const {
    return Tensor(*device_.pool, {size.batch, time, size.heads * columns}, dtype_, "attention");
  }

  Tensor read_heads(const Hdf5File& file, const char* name, int64_t time, int64_t columns) const {
    const Tensor t = heads(time, columns);
    std::vector<double> values(t.size());
    file.read(name, StoredType::f64, {size.batch, time, size.heads, columns}, values.data());
    dispatch_float(dtype_, [&]<class T>() {
      std::vector<T> rounded(values.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        rounded[i] = static_cast<T>(static_cast<wide_t<T>>(values[i]));
      device_.upload(t, rounded.data());
    });
    return t;
  }

  Tensor read_segments(const Hdf5File& file, const char* name, const char* axes,
                       int64_t time) const {
    shape_in(file, name, axes, {size.batch, time});
    std::vector<int32_t> numbers(size.batch * time);
    file.read(name, StoredType::i32, {size.batch, time}, numbers.data());
    const Tensor t(*device_.pool, {size.batch, time}, DType::i32, "attention");
    device_.upload(t, numbers.data());
    return t;
  }

  Device& device_;
  DType dtype_;
};

std::unique_ptr<AttentionPattern> pattern_for(const std::string& yaml, const Sizes& size) {
  std::unique_ptr<AttentionPattern> pattern =
      make_pattern(parse_pattern(yaml, "--pattern"), static_cast<int>(size.heads));
  const Lengths most = pattern->lengths();
  if ((most.queries && size.queries > most.queries) || (most.keys && size.keys > most.keys))
    fail("--pattern: ", pattern->name(), " is made for ", most.queries, " queries and ", most.keys,
         " keys; q and k have ", size.queries, " and ", size.keys);
  return pattern;
}

// Milliseconds of one launch. A GPU loads a kernel when it is first run: that is not counted.
template <class Kernel>
double run_timed(Device& device, const Kernel& kernel) {
  if (device.is_cuda()) launch(device.queue, kernel);
  const auto work = [&] { launch(device.queue, kernel); };
  const auto before = [] {};
  const auto time = [&](auto& queue) { return time_runs(queue, 1, before, work)[0]; };
  return std::visit(time, device.queue);
}

AttentionForward forward(const Arrays& a, const AttentionMaps& maps, double scale,
                         AttentionForm form) {
  return {
      .y = a.view(a.o),
      .lse = a.lse,
      .q = a.view(a.q),
      .k = a.view(a.k),
      .v = a.view(a.v),
      .maps = maps,
      .scale = scale,
      .segments = a.segments(),
      .form = form,
  };
}

AttentionBackward backward(const Arrays& a, const AttentionMaps& maps, double scale,
                           AttentionForm form) {
  return backward_of(forward(a, maps, scale, form), a.view(a.dq), a.view(a.dk), a.view(a.dv),
                     a.delta, a.view(a.dout));
}

// The kernels that run the passes; refuses a wanted form that does not cover them before anything
// runs.
std::string form_text(const Device& device, const Arrays& a, const AttentionMaps& maps,
                      AttentionForm wanted) {
  if (!device.is_cuda()) {
    if (wanted != AttentionForm::automatic)
      fail("--form ", name_of(wanted), " names CUDA kernels; a CPU has one form, automatic");
    return "cpu";
  }
  const AttentionForward f = forward(a, maps, 1, wanted);
  return a.dout
             ? attention::kernels_text(f, backward(a, maps, 1, wanted), device.compute_capability)
             : attention::kernels_text(f, device.compute_capability);
}

void write_results(const std::string& path, const Arrays& a) {
  const Sizes& s = a.size;
  Hdf5File file = Hdf5File::create(path);
  a.write(file, "o", a.o, {s.batch, s.queries, s.heads, s.v});
  a.write(file, "lse", a.lse, {s.batch, s.heads, s.queries});
  if (a.dout) {
    a.write(file, "dq", a.dq, {s.batch, s.queries, s.heads, s.qk});
    a.write(file, "dk", a.dk, {s.batch, s.keys, s.heads, s.qk});
    a.write(file, "dv", a.dv, {s.batch, s.keys, s.heads, s.v});
  }
  file.commit();
}
}  // namespace

void run_attention_file(const AttentionFileOptions& options, std::ostream& report) {
  std::error_code unknown;
  if (std::filesystem::equivalent(options.in, options.out, unknown))
    fail("--out ", options.out, " is the file of --in: q, k and v would be lost");
  const DType dtype = parse_dtype(options.dtype);
  const AttentionForm form = attention::parse_form(options.form);
  if (options.scale && !std::isfinite(*options.scale))
    fail("--scale: expected a finite number, got ", *options.scale);
  const Hdf5File file = Hdf5File::open(options.in);
  const Sizes size = sizes_in(file);
  const auto pattern = pattern_for(options.pattern, size);
  const std::unique_ptr<Device> device = make_device(options.device);
  if (device->is_cuda() && dtype == DType::f64) fail("--dtype f64 is for a CPU: add --device cpu");
  const DeviceMaps maps(*device, *pattern, static_cast<int>(size.heads), {size.queries, size.keys},
                        std::max(size.qk, size.v));
  const Arrays arrays(*device, file, dtype);
  const std::string form_name = form_text(*device, arrays, maps.maps(), form);
  PairCount pairs;
  for (int head = 0; head < size.heads; ++head) pairs += maps.pairs(head);
  report << pattern->name() << ", " << size.queries << " queries, " << size.keys << " keys, "
         << size.heads << " heads, " << size.batch << (size.batch == 1 ? " sequence" : " sequences")
         << "\npairs   " << grouped_digits(pairs.needed * size.batch) << " needed, "
         << grouped_digits(pairs.executed * size.batch) << " executed\nmemory  "
         << bytes_text(maps.bytes()) << " of tables, " << bytes_text(device->pool->in_use())
         << " in all\nform    " << form_name << ", " << name_of(dtype) << ", "
         << device->description() << std::endl;
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(size.qk)));
  report << "time    forward "
         << fixed_text(run_timed(*device, forward(arrays, maps.maps(), scale, form)), 3) << " ms";
  if (arrays.dout)
    report << ", backward "
           << fixed_text(run_timed(*device, backward(arrays, maps.maps(), scale, form)), 3)
           << " ms";
  write_results(options.out, arrays);
  report << "\nwrote   " << options.out << (arrays.dout ? ": o, lse, dq, dk, dv" : ": o, lse")
         << std::endl;
}
}  // namespace weft
