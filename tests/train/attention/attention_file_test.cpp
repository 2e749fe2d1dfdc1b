// SPDX-License-Identifier: MIT
// The program `attention`: arrays of a file against the definition; what it says of wrong files.
#include "train/attention/attention_file.h"

#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "tests/kernels/attention/attention_case.h"
#include "tests/testing.h"
#include "tests/train/training.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <hdf5.h>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
using attention_test::Data;

class AttentionFile : public testing::Test {
 protected:
  AttentionFile() {
    options.in = dir / "in.h5";
    options.out = dir / "out.h5";
    options.pattern = "{kind: fixed, stride: 6, c: 2, num_verts: 2}";
    options.device = "cpu";
    options.dtype = "f64";
  }

  // Only the datasets named.
  void write_in(const Data<double>& x, const std::vector<std::string>& names) const {
    const auto [queries, keys] = x.size.lengths();
    Hdf5File file = Hdf5File::create(options.in);
    const auto put = [&](const char* name, const std::vector<double>& values, int64_t time,
                         int64_t columns) {
      if (std::find(names.begin(), names.end(), name) != names.end())
        file.write(name, StoredType::f64, {x.size.batch, time, x.size.heads, columns},
                   values.data());
    };
    put("q", x.q, queries, x.size.qk), put("k", x.k, keys, x.size.qk),
        put("v", x.v, keys, x.size.v);
    put("dout", x.dy, queries, x.size.v);
    if (!x.query_segments.empty()) {
      file.write("query_segments", StoredType::i32, {x.size.batch, queries},
                 x.query_segments.data());
      file.write("key_segments", StoredType::i32, {x.size.batch, keys}, x.key_segments.data());
    }
    file.commit();
  }

  std::string run() const {
    std::ostringstream report;
    run_attention_file(options, report);
    return report.str();
  }

  std::vector<double> result(const std::string& name, const std::vector<int64_t>& shape) const {
    const Hdf5File file = Hdf5File::open(options.out);
    std::vector<double> values(static_cast<std::size_t>(elements(shape)));
    file.read(name, StoredType::f64, shape, values.data());
    return values;
  }

  static int64_t elements(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    return n;
  }

  std::string error() const {
    return error_of([&] { run(); });
  }

  // o and lse against all pairs; gradients against central differences of sum(dout * o).
  void check(Data<double> x, double tolerance) {
    const auto pattern =
        make_pattern(parse_pattern(options.pattern, "test"), static_cast<int>(x.size.heads));
    write_in(x, {"q", "k", "v", "dout"});
    run();
    dense_forward(*pattern, x);
    const auto [queries, keys] = x.size.lengths();
    const int64_t b = x.size.batch, h = x.size.heads;
    expect_near(result("o", {b, queries, h, x.size.v}), x.y, tolerance, "o");
    const std::vector<double> lse = result("lse", {b, h, queries});
    for (std::size_t i = 0; i < lse.size(); ++i) {
      if (std::isinf(x.lse[i])) {
        EXPECT_EQ(lse[i], x.lse[i]) << i;
      } else {
        EXPECT_NEAR(lse[i], x.lse[i], tolerance * 10) << i;
      }
    }
    const auto objective = [&] {
      dense_forward(*pattern, x);
      return inner_product(x.y, x.dy);
    };
    expect_gradient(x.q, result("dq", {b, queries, h, x.size.qk}), objective, "dq");
    expect_gradient(x.k, result("dk", {b, keys, h, x.size.qk}), objective, "dk");
    expect_gradient(x.v, result("dv", {b, keys, h, x.size.v}), objective, "dv");
  }

  TempDir dir;
  AttentionFileOptions options;
};

// A damaged or hostile file may state any shape; memory is taken for what can be in it.
TEST_F(AttentionFile, PromisesThatAFileCannotKeepTakeNoMemory) {
  const hid_t in = H5Fcreate(options.in.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t dims[] = {1, hsize_t{1} << 30, 1, 64};
  const hid_t space = H5Screate_simple(4, dims, nullptr);
  for (const char* name : {"q", "k", "v"})
    H5Dclose(H5Dcreate2(in, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Fclose(in);
  EXPECT_CONTAINS(error(), "in.h5: q, k and v promise more numbers than a file of ");
}

TEST_F(AttentionFile, IsTheDefinition) { check(Data<double>({2, 13, 2, 5, 3}), 1e-12); }

TEST_F(AttentionFile, RectangularAndBidirectional) {
  options.pattern = "{kind: local, stride: 3, causal: false}";
  check(Data<double>({1, 7, 2, 4, 6, 11}), 1e-12);
}

TEST_F(AttentionFile, Documents) {
  Data<double> x({2, 19, 2, 4, 4});
  x.pack_documents();
  options.pattern = "{kind: all}";
  check(x, 1e-12);
}

TEST_F(AttentionFile, ReportsAndRounds) {
  const Data<double> x({1, 20, 2, 8, 8});
  write_in(x, {"q", "k", "v"});
  run();
  const std::vector<double> exact = result("o", {1, 20, 2, 8});
  options.dtype = "bf16";
  const std::string report = run();
  EXPECT_CONTAINS(report,
                  "fixed(stride 6, c 2, num_verts 2), 20 queries, 20 keys, 2 heads, 1 sequence\n");
  EXPECT_CONTAINS(report, "\npairs   ");
  EXPECT_CONTAINS(report, " of tables, ");
  EXPECT_CONTAINS(report, "\nform    cpu, bf16, CPU, ");
  EXPECT_CONTAINS(report, "\ntime    forward ");
  EXPECT_CONTAINS(report, options.out + ": o, lse\n");
  expect_near(result("o", {1, 20, 2, 8}), exact, 2e-2, "bf16");
  EXPECT_FALSE(Hdf5File::open(options.out).has("dq"));
  options.scale = 0;  // all keys alike: the first query sees itself, the second the mean of two
  run();
  const std::vector<double> means = result("o", {1, 20, 2, 8});
  EXPECT_NEAR(means[16], (x.v[0] + x.v[16]) / 2, 2e-2);
}

TEST_F(AttentionFile, MistakesAreNamed) {
  EXPECT_CONTAINS(error(), "in.h5");
  Data<double> x({1, 5, 2, 8, 4});
  write_in(x, {"q", "v"});
  EXPECT_CONTAINS(
      error(), "in.h5: there is no dataset k; expected k (B, Tk, H, Dqk) of shape (1, any, 2, 8)");
  x.v.resize(x.v.size() / 5 * 4);
  const auto write_short_v = [&] {
    Hdf5File file = Hdf5File::create(options.in);
    file.write("q", StoredType::f64, {1, 5, 2, 8}, x.q.data());
    file.write("k", StoredType::f64, {1, 5, 2, 8}, x.k.data());
    file.write("v", StoredType::f64, {1, 4, 2, 4}, x.v.data());
    file.commit();
  };
  write_short_v();
  EXPECT_CONTAINS(error(),
                  "in.h5: expected v (B, Tk, H, Dv) of shape (1, 5, 2, any), found (1, 4, 2, 4)");
  x = Data<double>({1, 5, 2, 8, 4});
  write_in(x, {"q", "k", "v"});
  const AttentionFileOptions good = options;
  options.form = "general";
  EXPECT_CONTAINS(error(), "--form general names CUDA kernels");
  options.form = "fast";
  EXPECT_CONTAINS(error(), "expected automatic, simple, general or hopper, got 'fast'");
  options = good;
  options.dtype = "f8";
  EXPECT_CONTAINS(error(), "--dtype: expected f32, f16, bf16, or f64 on a CPU, got 'f8'");
  options = good;
  options.pattern = "{kind: lokal}";
  EXPECT_CONTAINS(error(), "--pattern:1: ");
  options = good;
  options.out = options.in;
  EXPECT_CONTAINS(error(), "would be lost");
  options = good;
  options.out = dir / "nowhere/out.h5";
  EXPECT_CONTAINS(error(), "nowhere");
  EXPECT_FALSE(std::filesystem::exists(good.out));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << "in.h5 alone";
}

TEST_F(AttentionFile, SegmentsComeInPairs) {
  const Data<double> x({1, 5, 2, 8, 4});
  Hdf5File file = Hdf5File::create(options.in);
  const std::vector<int32_t> numbers(5, 1);
  file.write("q", StoredType::f64, {1, 5, 2, 8}, x.q.data());
  file.write("k", StoredType::f64, {1, 5, 2, 8}, x.k.data());
  file.write("v", StoredType::f64, {1, 5, 2, 4}, x.v.data());
  file.write("query_segments", StoredType::i32, {1, 5}, numbers.data());
  file.commit();
  EXPECT_CONTAINS(
      error(), "there is no dataset key_segments; expected key_segments (B, Tk) of shape (1, 5)");
}

TEST_F(AttentionFile, ProgramIsTheLibrary) {
  write_in(Data<double>({1, 9, 2, 8, 8}), {"q", "k", "v", "dout"});
  run();
  const std::string bytes = read_file(options.out);
  Process good(dir, "attention",
               {"--in", options.in, "--pattern", options.pattern, "--out", dir / "other.h5",
                "--device", "cpu", "--dtype", "f64"});
  EXPECT_EQ(good.wait(), 0) << good.err();
  EXPECT_TRUE(read_file(dir / "other.h5") == bytes);
  EXPECT_CONTAINS(good.out(), "backward ");
  Process bad(dir, "attention",
              {"--in", dir / "none.h5", "--pattern", "{kind: all}", "--out", options.out});
  EXPECT_EQ(bad.wait(), 1);
  EXPECT_TRUE(bad.err().starts_with("error: ")) << bad.err();
  EXPECT_TRUE(read_file(options.out) == bytes);
}

#ifdef WEFT_CUDA
TEST(CudaAttentionFile, IsTheCpuForm) {
  TempDir dir;
  const Data<double> x({2, 70, 2, 16, 24});
  Hdf5File file = Hdf5File::create(dir / "in.h5");
  file.write("q", StoredType::f64, {2, 70, 2, 16}, x.q.data());
  file.write("k", StoredType::f64, {2, 70, 2, 16}, x.k.data());
  file.write("v", StoredType::f64, {2, 70, 2, 24}, x.v.data());
  file.write("dout", StoredType::f64, {2, 70, 2, 24}, x.dy.data());
  file.commit();
  const auto results = [&](const std::string& device, const std::string& form) {
    std::ostringstream report;
    run_attention_file(
        {
            .in = dir / "in.h5",
            .out = dir / "out.h5",
            .pattern = "{kind: fixed, stride: 16, c: 4}",
            .device = device,
            .form = form,
            .dtype = "f32",
            .scale = {},
        },
        report);
    std::vector<double> all;
    const Hdf5File out = Hdf5File::open(dir / "out.h5");
    for (const auto& name : out.list("/")) {
      const auto shape = out.shape_of(name);
      std::vector<double> values(static_cast<std::size_t>(
          std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
      out.read(name, StoredType::f64, shape, values.data());
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<double> want = results("cpu", "automatic");
  for (const char* form : {"automatic", "simple"})
    expect_near(results("cuda", form), want, 1e-5, form);
  EXPECT_CONTAINS(error_of([&] { results("cuda", "general"); }), "must not be rounded");
}
#endif
}  // namespace
}  // namespace weft
