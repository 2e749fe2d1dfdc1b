// SPDX-License-Identifier: MIT
// Attention where content decides: sets of keys against a second definition, values and gradients.
#include "kernels/attention/definition.h"
#include "tests/src/content/content_testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace weft {
namespace {
using namespace content_testing;

double product(const std::vector<float>& a, const std::vector<double>& b, std::size_t first) {
  double sum = 0;
  for (std::size_t d = 0; d < a.size(); ++d) sum += a[d] * b[first + d];
  return sum;
}

// By section 3.1 of the Routing Transformer: the cluster of the largest cosine.
std::vector<std::vector<int>> clusters_of(Batch& run, std::size_t content, int64_t b, int64_t i) {
  const DynamicRange& heads = run.layer.heads[content];
  const std::vector<double> all = run.engine.host(run.centroids[content].value);
  std::vector<int> labels;
  for (const auto& q : run.rows(0, b, heads.heads.head(i))) {
    double best = -2;
    int label = 0;
    for (int c = 0; c < heads.spec.clusters; ++c) {
      const auto first =
          static_cast<std::size_t>((i * heads.spec.clusters + c) * run.shape.qk_size);
      double norm = 0;
      for (std::size_t d = 0; d < q.size(); ++d) norm += all[first + d] * all[first + d];
      const double score = product(q, all, first) / std::sqrt(norm);
      if (score > best) best = score, label = c;
    }
    labels.push_back(label);
  }
  return {labels};
}

// Two hashes of a round, each the largest of [x S; -x S].
std::vector<std::vector<int>> buckets_of(Batch& run, std::size_t content, int64_t b, int64_t i) {
  const DynamicRange& heads = run.layer.heads[content];
  Ctx ctx = run.engine.ctx();
  const Tensor signs = run.made(ctx, run.qkv()).at(content)->directions;
  const std::vector<double> all = run.engine.host(signs);
  const int columns = static_cast<int>(signs.shape()[1]);
  std::vector<std::vector<int>> rounds;
  for (int64_t r = 0; r < heads.spec.rounds; ++r) {
    std::vector<int>& labels = rounds.emplace_back();
    for (const auto& q : run.rows(0, b, heads.heads.head(i))) {
      int label = 0;
      for (int half = 0; half < 2; ++half) {
        double best = -1e30;
        int found = 0;
        for (int c = 0; c < columns; ++c) {
          const int column = half * columns / 2 + c % (columns / 2);
          const double s =
              product(q, all,
                      static_cast<std::size_t>((r * columns + column) * run.shape.qk_size)) *
              (c < columns / 2 ? 1 : -1);
          if (s > best) best = s, found = c;
        }
        label = label * columns + found;
      }
      labels.push_back(label);
    }
  }
  return rounds;
}

Counts expected(Batch& run, std::size_t content, int64_t b, int64_t i) {
  const DynamicRange& heads = run.layer.heads[content];
  if (heads.spec.kind == "topk_blocks") {
    const int64_t h = heads.heads.head(i);
    return counts_of_blocks(run.rows(0, b, h), run.rows(1, b, h),
                            static_cast<std::size_t>(heads.spec.block),
                            static_cast<std::size_t>(heads.spec.blocks));
  }
  return counts_of_labels(
      heads.spec.kind == "lsh" ? buckets_of(run, content, b, i) : clusters_of(run, content, b, i),
      static_cast<std::size_t>(heads.spec.window));
}

// Of all heads where content decides.
void check_counts(Batch& run) {
  Ctx ctx = run.engine.ctx();
  const Batch::Made maps = run.made(ctx, run.qkv());
  for (std::size_t c = 0; c < run.layer.heads.size(); ++c)
    for (int64_t b = 0; b < run.batch; ++b)
      for (int64_t i = 0; i < run.layer.heads[c].heads.count; ++i)
        ASSERT_EQ(counts_in(maps[c]->maps, b, i, static_cast<std::size_t>(run.time),
                            has_labels(run.layer.heads[c].spec)),
                  expected(run, c, b, i))
            << run.pattern->name() << ", n " << run.time << ", b " << b << ", head " << i;
}

TEST(Content, SetsAreThoseOfTheDefinition) {
  PatternSpec wide = kRouting, one = kRouting, fine = kLsh, three = kBlocks, large = kBlocks,
              own = kBlocks;
  wide.window = 1000, three.blocks = 3, one.clusters = 1, fine.buckets = 300, large.block = 128,
  large.blocks = 2, own.blocks = 1;
  for (const PatternSpec& spec :
       {kRouting, wide, one, kLsh, fine, kBlocks, three, large, own,
        heads_of_kinds({kLsh, kBlocks}), heads_of_kinds({{"local", 5}, kRouting})})
    for (const int64_t n : {1, 2, 63, 64, 65, 130, 257, 450}) {
      Batch run(spec, 2, n);
      check_counts(run);
    }
}

// y_i by the definition of attention, a query at a time: a key that it sees twice is there twice.
// Keys are made of queries where there are labels.
TEST(Content, ValuesAreThoseOfTheDefinition) {
  for (const PatternSpec& spec : {kRouting, kLsh, kBlocks})
    for (const bool normed : {false, true}) {
      Batch run(spec, 2, 150);
      Ctx ctx = run.engine.ctx();
      const Var qkv{run.qkv(), nullptr};
      const Batch::Made maps = run.made(ctx, qkv.value, normed);
      const std::vector<double> y = run.engine.host(run.attend(ctx, qkv, maps).value);
      const int64_t size = run.shape.qk_size, n = run.time, heads = run.shape.heads;
      std::vector<double> want(y.size());
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < heads; ++h) {
          const Counts counts = expected(run, 0, b, h);
          const auto row = [&](int64_t part, int64_t t) {
            const auto first =
                run.values.begin() + (b * n + t) * run.shape.columns() + (part * heads + h) * size;
            return definition::Row(first, first + size);
          };
          for (int64_t i = 0; i < n; ++i) {
            definition::Head one;
            one.q = {row(0, i)};
            one.scale = 1 / std::sqrt(static_cast<double>(size));
            one.attends = [](auto...) { return true; };
            for (int64_t j = 0; j <= i; ++j) {
              definition::Row key = row(has_labels(spec) ? 0 : 1, j);
              const double norm = std::sqrt(definition::dot(key, key));
              for (double& value : key) value /= has_labels(spec) && !normed ? norm : 1;
              const int times = counts[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
              one.k.insert(one.k.end(), static_cast<std::size_t>(times), key);
              one.v.insert(one.v.end(), static_cast<std::size_t>(times), row(2, j));
            }
            std::ranges::copy(definition::forward(one).y[0],
                              want.begin() + ((b * n + i) * heads + h) * size);
          }
        }
      expect_near(y, want, 1e-12, run.pattern->name());
    }
}

// With labels and choices as they are: steps of the differences are too small to change one.
TEST(Content, GradientsAreThoseOfDifferences) {
  for (const PatternSpec& spec :
       {kRouting, kLsh, kBlocks, heads_of_kinds({kRouting, {"local", 6}})})
    for (const bool normed : {false, true}) {
      if (normed && !has_labels(spec)) continue;
      const int64_t n = has_labels(spec) ? 23 : 131;
      Batch run(spec, 1, n, has_labels(spec) ? 2 : 1, 8);
      const auto op = [&](Ctx& ctx, const std::vector<Var>& in) {
        const Batch::Made maps = run.made(ctx, in[0].value, normed);
        for (const auto& of_heads : maps) of_heads->moved = {};
        return run.attend(ctx, in[0], maps);
      };
      check_gradients({{1, n, run.shape.columns()}}, op);
    }
}

// Centroids move towards the mean direction of their members; those without any stay.
TEST(Content, CentroidsMoveTowardsTheirMembers) {
  PatternSpec many = kRouting;
  many.clusters = 40;
  Batch run(many, 2, 30);
  run.engine.set({.loss_gradient = 3});
  Tape tape;
  Ctx ctx = run.engine.ctx(&tape);
  const Var qkv{run.qkv(), std::make_shared<Gradient>()};
  const Batch::Made maps = run.made(ctx, qkv.value);
  backward(ctx, mean(ctx, run.attend(ctx, qkv, maps)));
  const std::vector<double> got = run.engine.host(run.centroids[0].gradient->tensor),
                            m = run.engine.host(run.centroids[0].value);
  const int64_t size = run.shape.qk_size;
  std::vector<double> want(got.size());
  int without = 0;
  for (int64_t h = 0; h < 2; ++h)
    for (int c = 0; c < 40; ++c) {
      std::vector<double> mean(static_cast<std::size_t>(size));
      for (int64_t b = 0; b < 2; ++b) {
        const std::vector<int> labels = clusters_of(run, 0, b, h)[0];
        for (int64_t t = 0; t < 30; ++t) {
          const std::vector<float> q = run.row(0, b, h, t);
          double norm = 0;
          for (const float x : q) norm += double{x} * x;
          for (std::size_t d = 0; d < q.size() && labels[static_cast<std::size_t>(t)] == c; ++d)
            mean[d] += q[d] / std::sqrt(norm);
        }
      }
      const double norm = std::sqrt(inner_product(mean, mean));
      without += norm == 0;
      for (int64_t d = 0; d < size && norm > 0; ++d) {
        const auto at = static_cast<std::size_t>((h * 40 + c) * size + d);
        want[at] = 3e-4 * (m[at] - mean[static_cast<std::size_t>(d)] / norm);
      }
    }
  EXPECT_GT(without, 0);
  expect_near(got, want, 1e-6, "centroids");
}

// Signs are half plus and half minus, and of each update in training.
TEST(Content, SignsAreOfTheSeedLayerAndUpdate) {
  Batch run(kLsh, 1, 4, 2, 64);
  std::map<std::vector<double>, int> known;
  for (const bool training : {false, true})
    for (const uint64_t draw : {5, 6})
      for (const uint32_t layer : {1, 2}) {
        run.engine.set({.seed = 1, .draw = draw});
        run.layer.layer = layer;
        Ctx ctx = run.engine.ctx(nullptr, training);
        const std::vector<double> signs = run.engine.host(run.made(ctx, run.qkv())[0]->directions);
        ++known[signs];
        double sum = 0;
        for (const double s : signs) {
          ASSERT_EQ(std::abs(s), 1);
          sum += s;
        }
        EXPECT_LT(std::abs(sum), 4 * std::sqrt(static_cast<double>(signs.size())));
      }
  EXPECT_EQ(known.size(), 6u);  // outside of training the update does not matter
}

// NaN wins nowhere, and no label is out of range.
TEST(Content, NanHasALabel) {
  for (const PatternSpec& spec : {kRouting, kLsh, kBlocks}) {
    Batch run(spec, 1, 300);
    for (std::size_t i = 0; i < run.values.size(); i += 7 * 48) run.values[i] = std::nan("");
    Ctx ctx = run.engine.ctx();
    const Counts counts = counts_in(run.made(ctx, run.qkv())[0]->maps, 0, 0, 300, true);
    for (std::size_t i = 0; i < 300; ++i)
      for (std::size_t j = i + 1; j < 300; ++j) ASSERT_EQ(counts[i][j], 0);
  }
}
}  // namespace
}  // namespace weft
