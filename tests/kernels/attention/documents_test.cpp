// SPDX-License-Identifier: MIT
// Maps that part documents, in place of segments, for every kind of pattern; where documents begin.
#include "kernels/attention/documents.h"

#include "src/config/read_config.h"
#include "tests/kernels/attention/attention_gpu.h"

#include <algorithm>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

namespace weft::attention_test {
namespace {
using Numbers = std::vector<int32_t>;

Numbers starts_of(const Numbers& tokens, int32_t row = -1) {
  Numbers in = tokens, out(row < 0 ? tokens.size() : 1);
  const auto view = [](Numbers& x) {
    return TensorView{x.data(), DType::i32, 2, {1, static_cast<int64_t>(x.size()), 1, 1, 1}};
  };
  CpuQueue queue;
  run(queue, DocumentStarts{
                 .start = view(out),
                 .tokens = view(in),
                 .separator = 9,
                 .row = row < 0 ? nullptr : &row,
             });
  return out;
}

// Row t holds token t - 1: what follows a separator is a document, even of that one row.
TEST(DocumentStarts, FollowSeparators) {
  EXPECT_EQ(starts_of({9, 1, 2, 9, 9, 3, 9}), (Numbers{0, 1, 1, 1, 4, 5, 5}));
  EXPECT_EQ(starts_of({1, 2, 3}), (Numbers{0, 0, 0}));
  for (const int32_t row : {0, 1, 3, 4, 6})
    EXPECT_EQ(starts_of({9, 1, 2, 9, 9, 3, 9}, row).at(0), (Numbers{0, 1, 1, 1, 4, 5, 5})[row])
        << row;
}

// On the CPU to the bit: the same pairs in the same order.
template <class T>
void expect_the_bits_of_segments(int64_t n, int edge) {
  const auto cpu = make_device("cpu");
  const Sizes size{2, n, 2, 8, 16};
  for (const auto& [name, pattern] : sample_patterns(size.lengths(), 2)) {
    SCOPED_TRACE(str(name, ", n ", n, ", edge ", edge));
    Data<T> x(size);
    x.pack_documents(static_cast<unsigned>(n));
    const DeviceMaps maps(*cpu, *pattern, 2, size.lengths(), 64, edge);
    Data<T> parted = x;
    for (Data<T>* result : {&x, &parted}) {
      OnDevice<T> on(*cpu, x);
      const AttentionMaps used = result == &parted ? on.part(maps.maps()) : maps.maps();
      EXPECT_EQ(static_cast<bool>(on.segments()), result != &parted);
      launch(cpu->queue, on.forward(used));
      launch(cpu->queue, on.backward(used));
      on.fetch(*result);
    }
    EXPECT_TRUE(same_results(x, parted));
  }
}

TEST(SegmentMaps, GiveTheBitsOfSegments) {
  for (const int64_t n : {1, 17, 64, 100})
    for (const int edge : {kTile, kSmallTile, kBest}) {
      expect_the_bits_of_segments<double>(n, edge);
      expect_the_bits_of_segments<bf16>(n, edge);
    }
}

// All of a tile: no words; nothing of it: a query tile skips it.
TEST(SegmentMaps, NameWholeAndEmptyTiles) {
  const auto cpu = make_device("cpu");
  const auto pattern = make_pattern({"all"}, 1);
  const Sizes size{1, 192, 1, 8, 8};
  const DeviceMaps maps(*cpu, *pattern, 1, size.lengths(), 64, kTile);
  Data<float> x(size);
  start_documents(x, {130});
  OnDevice<float> on(*cpu, x);
  const AttentionMaps parted = on.part(maps.maps());
  const TileMap& map = parted.pass[0].maps[parted.map_of(0, 0)];
  EXPECT_EQ((Numbers{map.row_mask, map.row_mask + 6}), (Numbers{0, -1, 2, 3, 4, 5}));
  start_documents(x, {128});
  OnDevice<float> at_border(*cpu, x);
  const AttentionMaps again = at_border.part(maps.maps());
  const TileMap& border = again.pass[0].maps[0];
  EXPECT_EQ((Numbers{border.row_mask, border.row_mask + 6}), (Numbers{0, -1, 2, kSkip, kSkip, 5}));
  EXPECT_EQ(again.pass[0].band, Band{});
}

// Rows of a residue column within a document, counted one by one.
TEST(SegmentMaps, ReachesEndAtDocuments) {
  const auto cpu = make_device("cpu");
  const auto specs = {PatternSpec{"local", 5}, PatternSpec{"local", 128},
                      PatternSpec{"strided", 4}};
  for (const PatternSpec& spec : specs) {
    const auto pattern = make_pattern(spec, 1);
    const Sizes size{2, 192, 1, 8, 8};
    const DeviceMaps maps(*cpu, *pattern, 1, size.lengths(), 64, kTile);
    Data<float> x(size);
    start_documents(x, {1, 2, 3, 64, 130, 191});
    OnDevice<float> on(*cpu, x);
    const AttentionPass pass = on.part(maps.maps()).pass[0];
    EXPECT_EQ(pass.band, maps.maps().pass[0].band);
    ASSERT_NE(pass.reaches, nullptr);
    const auto sees = [&](int32_t b, int32_t i, int32_t j) {
      return j >= 0 && i < 192 && pass.band.attends(i, j) && x.same_segment(b, i, j);
    };
    for (int32_t b = 0, l = pass.band.stride; b < 2; ++b)
      for (int32_t t = 0; t < 192; ++t) {
        int32_t back = 0, ahead = 0;
        while (sees(b, t, t - back * l)) ++back;
        while (sees(b, t + ahead * l, t)) ++ahead;
        EXPECT_EQ(pass.reaches[b * 192 + t], back) << pattern->name() << ", row " << t;
        EXPECT_EQ(pass.reaches[(2 + b) * 192 + t], ahead) << pattern->name() << ", row " << t;
      }
  }
}

// Borders inside tiles, documents of one position, one document, documents longer than windows: all
// forms.
TEST(CudaSegmentMaps, EveryFormAgreesWithF64) {
  const std::vector<PatternSpec> specs = {
      {"all"},
      {"fixed", 32, 8, 2},
      {"local", 70},
      {"local", 128},
      {"strided", 32},
      {"strided", 3},  // two tiles a residue column
      parse_pattern("{kind: merged, of: [{kind: strided, stride: 32}, {kind: local, stride: 32}]}",
                    "test"),
      parse_pattern(
          "{kind: heads, of: [{kind: fixed, stride: 32, c: 8}, {kind: local, stride: 70}]}",
          "test")};
  const std::vector<Numbers> documents = {
      {1, 2, 3, 65, 130, 131, 200, 320, 383}, {500}, {64, 128, 256}, {77}};
  const std::vector<std::pair<int64_t, int64_t>> heads = {
      {64, 64}, {128, 128}, {64, 128}, {40, 24}};
  for (const PatternSpec& spec : specs)
    for (const auto& [qk, v] : heads)
      for (const Numbers& starts : documents) {
        const Sizes size{2, 384, 2, qk, v};
        const auto pattern = make_pattern(spec, 2);
        expect_agreement<bf16>(*pattern, {size, kTile}, pattern->name(), starts, true);
        expect_agreement<f16>(*pattern, {size, kTile}, pattern->name(), starts, true);
      }
}

// In bands: where blocks take runs of several tiles, and one document to the bit as none.
template <class T>
void expect_band_documents(const PatternSpec& spec, int64_t qk, int64_t v,
                           std::initializer_list<unsigned> mean_lengths) {
  std::mt19937 random(7);
  const Sizes size{2, 960, 9, qk, v};
  const auto pattern = make_pattern(spec, 9);
  for (const unsigned length : mean_lengths) {
    Numbers starts = {64};
    for (int32_t t = 1; t < 960; ++t)
      if (random() % length == 0) starts.push_back(t);
    expect_agreement<T>(*pattern, {size, kTile}, pattern->name(), starts, true);
  }
  const GpuMaps maps(*pattern, 9, size.lengths(), std::max(qk, v), kTile);
  Data<T> whole(size), one(size);
  start_documents(one, {});
  run_on_gpu(whole, maps.maps);
  run_on_gpu(one, maps.maps, true, true);
  EXPECT_TRUE(same_results(whole, one)) << pattern->name();
}

TEST(CudaSegmentMaps, BandsTakeDocuments) {
  const PatternSpec merged = parse_pattern(
      "{kind: merged, of: [{kind: local, stride: 10}, {kind: strided, stride: 10}]}", "test");
  for (const PatternSpec& spec : {PatternSpec{"local", 128}, PatternSpec{"local", 65},
                                  PatternSpec{"local", 20}, PatternSpec{"strided", 8},
                                  PatternSpec{"strided", 40}, PatternSpec{"strided", 96}, merged}) {
    expect_band_documents<bf16>(spec, 64, 64, {2, 50, 400});
    if (spec.stride == 20 || spec.stride == 8) continue;  // the oracle takes a second a time
    expect_band_documents<f16>(spec, 64, 64, {50});
    expect_band_documents<bf16>(spec, 128, 128, {50});
    expect_band_documents<f16>(spec, 40, 128, {50});
  }
}

TEST(CudaSegmentMaps, RandomDocumentsAgreeWithF64) {
  for (const int64_t n : {65, 200, 1000})
    for (const auto& [name, pattern] : sample_patterns(Lengths(n), 2))
      for (const int edge : {kTile, kSmallTile}) {
        expect_agreement<bf16>(*pattern, {{2, n, 2, 64, 64}, edge, true}, name, {}, true);
        expect_agreement<f16>(*pattern, {{1, n, 2, 64, 128}, edge, true}, name, {}, true);
      }
}
}  // namespace
}  // namespace weft::attention_test
