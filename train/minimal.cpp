// SPDX-License-Identifier: MIT
// weft in one file: a Sparse Transformer learns to continue a text, with nothing below it but
// kernels. A kernel is a struct of views. launch() runs it on the queue of a CPU or of a GPU. The
// backward pass is written out; a framework records it as it goes forward (src/tape.h).
// `train --config minimal.yaml` gives the same losses and weights, to the last bit.
#include "kernels/attention/attention.h"
#include "kernels/attention/tile_tables.h"
#include "kernels/layers/cross_entropy.h"
#include "kernels/layers/embedding.h"
#include "kernels/layers/layernorm.h"
#include "kernels/linear/activation.h"
#include "kernels/linear/linear.h"
#include "kernels/memory.h"
#include "kernels/optimizer/adamw.h"
#include "kernels/optimizer/reduce.h"
#include "kernels/philox.h"
#include "kernels/step_scalars.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <vector>

// What a kernel struct below leaves out is absent: no bias, no gradient wanted.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

using namespace weft;

// ---- the model and its training; configs/minimal.yaml has the same numbers ----

namespace {
constexpr int64_t kContext = 256, kVocab = 256;  // bytes that the model sees, and their values
constexpr int64_t kLayers = 4, kWidth = 128, kHeads = 4, kHidden = 4 * kWidth;  // of the MLP
constexpr int64_t kHeadSize = kWidth / kHeads;
constexpr int64_t kStride = 32, kSummary = 16;  // of the attention patterns: l and c
constexpr int64_t kBatch = 8, kWarmup = 20;     // windows a step; steps of rising learning rate
constexpr double kLearningRate = 2e-3, kBeta1 = 0.9, kBeta2 = 0.95;
constexpr uint64_t kSeed = 0;

// ---- the device: a queue of launches, and the memory that they work on ----

Queue queue;
DType type;  // of weights and activations: f32 on the CPU, bf16 on a GPU
std::vector<std::shared_ptr<void>> memory;

void* take(int64_t bytes) {
  void* block = allocate(queue, static_cast<std::size_t>(bytes));
  if (!block) fail("out of memory");
  memory.emplace_back(block, [](void* p) { release(queue, p); });
  zero(queue, block, static_cast<std::size_t>(bytes));
  return block;
}

TensorView tensor(DType of, std::initializer_list<int64_t> shape, void* data = nullptr) {
  TensorView view{.data = data, .dtype = of, .rank = static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), view.shape);
  if (!data) view.data = take(view.bytes());
  return view;
}

TensorView activations(int64_t columns) { return tensor(type, {kBatch, kContext, columns}); }

TensorView numbers(int64_t count) { return tensor(DType::f32, {kBatch, count, kContext}); }

template <class T>
void copy_to(void* device, const std::vector<T>& values) {
  upload(queue, device, values.data(), values.size() * sizeof(T));
}

template <class T>
std::vector<T> copy_of(const void* device, int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  download(queue, values.data(), device, values.size() * sizeof(T));
  return values;
}

// ---- attention patterns: which keys a query sees ----

// Kernels read a pattern as tiles of 64 x 64 pairs. `slot` orders the positions so that few tiles
// hold all pairs.
AttentionMaps maps_of(const AttendedPairs& pairs, const Band& band) {
  PackedTables tables(kContext, kContext, std::vector<int32_t>(kHeads, 0), 1);
  tables.add(0, build_best_tables(pairs, kHeadSize), band, false);
  std::vector<char> image(tables.bytes());
  void* block = take(std::ssize(image));
  const AttentionMaps maps = tables.write(image.data(), block);
  copy_to(block, image);
  return maps;
}

// The own block of l positions so far, and the last c positions of every earlier block. These
// summaries have the first slots.
AttentionMaps fixed_maps() {
  constexpr int64_t kOthers = kStride - kSummary, kSummaries = kContext / kStride * kSummary;
  static_assert(kTile % kOthers == 0 && kSummaries % kTile == 0, "no slot stays empty");
  const auto key_runs = [](int64_t i, std::vector<KeyRun>& runs) {
    const int64_t own = i / kStride * kStride;
    for (int64_t block = 0; block < own; block += kStride)
      runs.push_back({block + kOthers, block + kStride});
    runs.push_back({own, i + 1});
  };
  const auto key_slot = [](int64_t j) {
    const int64_t block = j / kStride, at = j % kStride;
    return at < kOthers ? kSummaries + block * kOthers + at : block * kSummary + at - kOthers;
  };
  return maps_of({"fixed", kContext, kContext, key_runs, {}, key_slot}, {});
}

// The last l positions.
AttentionMaps local_maps() {
  const auto key_runs = [](int64_t i, std::vector<KeyRun>& runs) {
    runs.push_back({std::max<int64_t>(0, i - kStride + 1), i + 1});
  };
  return maps_of({"local", kContext, kContext, key_runs}, {1, kStride, 0});
}

// Every l-th position back: in rows of l positions, the column above the query. Slots go column by
// column.
AttentionMaps strided_maps() {
  constexpr int64_t kRows = kContext / kStride;
  static_assert(kContext % kStride == 0 && kTile % kRows == 0, "no slot stays empty");
  const auto key_runs = [](int64_t i, std::vector<KeyRun>& runs) {
    runs.push_back({i % kStride, i + 1, kStride});
  };
  const auto slot = [](int64_t i) { return i % kStride * kRows + i / kStride; };
  return maps_of({"strided", kContext, kContext, key_runs, slot, slot}, {kStride, kRows, 0});
}

// ---- weights ----

struct Affine {
  TensorView w, b;
  GradView dw, db;  // gradients, in f32
};

struct Block {
  Affine attention_norm, qkv, proj, mlp_norm, up, down;
};

struct Model {
  Affine token, start, row, column;  // embeddings; a position has a row and a column
  std::vector<Block> blocks{kLayers};
  Affine final_norm, output;
  // All weights together. The first `decayed` of them are matrices, which decay.
  TensorView master, m, v, gradients;  // f32; m and v: the moments of AdamW
  TensorView copy;                     // of `master` in bf16; absent on the CPU
  int64_t decayed = 0;
};

// A weight before it has memory. It is drawn from a normal distribution, or all `first`.
struct Parameter {
  TensorView* w;
  GradView* dw;
  int64_t rows, cols;  // 0 rows: a vector
  double std, first = 0;
  bool is_f32 = false;  // kernels read it in f32, not in the type of activations
  int64_t offset = 0;

  int64_t size() const { return std::max<int64_t>(rows, 1) * cols; }
};

// The place in this list is part of the key of a weight's random numbers.
std::vector<Parameter> parameters(Model& model) {
  std::vector<Parameter> all;
  const auto table = [&](Affine& a, int64_t rows, int64_t cols, double std) {
    all.push_back({&a.w, &a.dw, rows, cols, std});
  };
  const auto norm = [&](Affine& a) {
    all.push_back({&a.w, &a.dw, 0, kWidth, 0, 1, true});
    all.push_back({&a.b, &a.db, 0, kWidth, 0, 0, true});
  };
  const auto linear = [&](Affine& a, int64_t out, int64_t in, double gain) {
    table(a, out, in, gain * std::sqrt(0.125 / static_cast<double>(in)));
    all.push_back({&a.b, &a.db, 0, out, 0});
  };
  table(model.token, kVocab, kWidth, 0.1);
  table(model.start, 0, kWidth, 0.1);
  table(model.row, kContext / kStride, kWidth, 0.1);
  table(model.column, kStride, kWidth, 0.1);
  // 2 N branches add up in the residual stream: the last matrix of each starts smaller.
  const double last = 1 / std::sqrt(2.0 * kLayers);
  for (Block& block : model.blocks) {
    norm(block.attention_norm);
    linear(block.qkv, 3 * kWidth, kWidth, 1);
    linear(block.proj, kWidth, kWidth, last);
    norm(block.mlp_norm);
    linear(block.up, kHidden, kWidth, 1);
    linear(block.down, kWidth, kHidden, last);
  }
  norm(model.final_norm);
  table(model.output, kVocab, kWidth, 0);  // the first predictions are uniform
  return all;
}

// Normal numbers (Box and Muller 1958) from the random bits of a counter: equal on every machine.
void draw(const Parameter& p, uint32_t number, float* out) {
  for (int64_t i = 0; i < p.size(); i += 2) {
    const auto block = static_cast<uint32_t>(i / 4), pair = static_cast<uint32_t>(i % 4);
    const Philox4 bits = philox4x32({block, 0, number, 0xffffffff}, kSeed);
    const double radius = std::sqrt(-2 * std::log((bits[pair] + 0.5) * 0x1p-32)),
                 angle = 2 * std::numbers::pi * (bits[pair + 1] + 0.5) * 0x1p-32;
    out[i] = static_cast<float>(p.std * (radius * std::cos(angle)));
    out[i + 1] = static_cast<float>(p.std * (radius * std::sin(angle)));
  }
}

// Draws all weights, and points the model's views to them. Matrices come first.
std::vector<Parameter> initialise(Model& model) {
  std::vector<Parameter> all = parameters(model);
  std::vector<float> values;
  for (const bool matrices : {true, false}) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      Parameter& p = all[i];
      if ((p.rows > 0) != matrices) continue;
      p.offset = std::ssize(values);
      values.resize(values.size() + static_cast<std::size_t>(p.size()), static_cast<float>(p.first));
      if (p.std > 0) draw(p, static_cast<uint32_t>(i), &values[static_cast<std::size_t>(p.offset)]);
    }
    if (matrices) model.decayed = std::ssize(values);
  }
  for (TensorView* block : {&model.master, &model.m, &model.v, &model.gradients})
    *block = tensor(DType::f32, {std::ssize(values)});
  copy_to(model.master.data, values);
  if (type == DType::bf16) {
    model.copy = tensor(type, {std::ssize(values)});
    copy_to(model.copy.data, std::vector<bf16>(values.begin(), values.end()));
  }
  for (const Parameter& p : all) {
    const auto part = [&](const TensorView& block) {
      void* data = static_cast<char*>(block.data) + p.offset * size_of(block.dtype);
      return p.rows > 0 ? tensor(block.dtype, {p.rows, p.cols}, data)
                        : tensor(block.dtype, {p.cols}, data);
    };
    *p.w = part(model.copy && !p.is_f32 ? model.copy : model.master);
    *p.dw = {part(model.gradients)};
  }
  return all;
}

// ---- activations, which the backward pass reads ----

// The residual stream at one place, and its norm, which the next branch reads.
struct Stream {
  TensorView sum = activations(kWidth), norm = activations(kWidth);
  TensorView mean = numbers(1), rstd = numbers(1);
};

struct Layer {
  TensorView qkv = activations(3 * kWidth), attended = activations(kWidth), lse = numbers(kHeads);
  Stream middle;  // with the branch of the attention
  TensorView up = activations(kHidden), hidden = activations(kHidden);  // before and after GELU
  Stream end;     // with the branch of the MLP
};

struct Activations {
  TensorView tokens = tensor(DType::i32, {kBatch, kContext});
  Stream begin;
  std::vector<Layer> layers{kLayers};
  TensorView branch = activations(kWidth), logits = activations(kVocab);
  TensorView losses = numbers(1), lse = numbers(1);

  const Stream& before(std::size_t l) const { return l > 0 ? layers[l - 1].end : begin; }
};

const double kScale = 1 / std::sqrt(static_cast<double>(kHeadSize));

// Queries (0), keys (1) or values (2) of all heads, where they lie in the columns of qkv.
HeadsView heads(const TensorView& x, int64_t which = 0) {
  return heads_of(x, which * kWidth, kHeads, kHeadSize);
}

const Affine& norm_behind(const Model& model, std::size_t l) {
  return l + 1 < kLayers ? model.blocks[l + 1].attention_norm : model.final_norm;
}

// ---- forward: row t of the logits predicts token t from those before it ----

// A branch joins the residual stream, and the sum is normalised.
void join(const Stream& from, const TensorView& branch, const TensorView& bias, const Affine& norm,
          const Stream& to) {
  launch(queue, ResidualForward{.h = to.sum,
                                .y = to.norm,
                                .mean = to.mean,
                                .rstd = to.rstd,
                                .x = from.sum,
                                .branch = branch,
                                .bias = bias,
                                .w = norm.w,
                                .b = norm.b});
}

void forward(const Model& model, const std::vector<AttentionMaps>& maps, const Activations& a) {
  const Stream& begin = a.begin;
  const Affine& first_norm = model.blocks[0].attention_norm;
  launch(queue, EmbeddingForward{.y = begin.sum,
                                 .tokens = a.tokens,
                                 .table = model.token.w,
                                 .start = model.start.w,
                                 .axis = {{model.row.w, kStride}, {model.column.w, 1}},
                                 .axes = 2});
  launch(queue, LayerNormForward{.y = begin.norm,
                                 .mean = begin.mean,
                                 .rstd = begin.rstd,
                                 .x = begin.sum,
                                 .w = first_norm.w,
                                 .b = first_norm.b});
  for (std::size_t l = 0; l < kLayers; ++l) {
    const Block& w = model.blocks[l];
    const Layer& layer = a.layers[l];

    launch(queue, LinearForward{.y = layer.qkv, .x = a.before(l).norm, .w = w.qkv.w, .b = w.qkv.b});
    launch(queue, AttentionForward{.y = heads(layer.attended),
                                   .lse = layer.lse,
                                   .q = heads(layer.qkv),
                                   .k = heads(layer.qkv, 1),
                                   .v = heads(layer.qkv, 2),
                                   .maps = maps[l % maps.size()],
                                   .scale = kScale});
    launch(queue, LinearForward{.y = a.branch, .x = layer.attended, .w = w.proj.w});
    join(a.before(l), a.branch, w.proj.b, w.mlp_norm, layer.middle);

    launch(queue, LinearActivationForward{.y = layer.hidden,
                                          .h = layer.up,
                                          .x = layer.middle.norm,
                                          .w = w.up.w,
                                          .b = w.up.b});
    launch(queue, LinearForward{.y = a.branch, .x = layer.hidden, .w = w.down.w});
    join(layer.middle, a.branch, w.down.b, norm_behind(model, l), layer.end);
  }
  launch(queue, LinearForward{.y = a.logits, .x = a.before(kLayers).norm, .w = model.output.w});
}

// ---- backward: the gradients of all that, last first ----

// The gradient of a sum is that of both its parts. It comes from the sum behind (`dh`) and through
// the norm (`d.norm`), and goes to `d.sum`.
void join_backward(const Stream& at, const Affine& norm, const GradView& dbias,
                   const TensorView& dh, const Stream& d) {
  launch(queue, ResidualBackward{.dx = {d.sum},
                                 .dbias = dbias,
                                 .dw = norm.dw,
                                 .db = norm.db,
                                 .dh = dh,
                                 .dy = d.norm,
                                 .h = at.sum,
                                 .mean = at.mean,
                                 .rstd = at.rstd,
                                 .w = norm.w});
}

// `da` and `d` hold gradients of what has their names in `a` and in the layer at hand.
void backward(const Model& model, const std::vector<AttentionMaps>& maps, const Activations& a,
              const StepScalars* step, const Activations& da) {
  const Layer& d = da.layers[0];
  launch(queue, MeanBackward{.dx = {da.losses}, .step = step});
  launch(queue, CrossEntropyBackward{.dlogits = {da.logits},
                                     .dloss = da.losses,
                                     .lse = a.lse,
                                     .logits = a.logits,
                                     .targets = a.tokens});
  launch(queue, LinearBackward{.dx = {d.end.norm},
                               .dw = model.output.dw,
                               .dy = da.logits,
                               .x = a.before(kLayers).norm,
                               .w = model.output.w});
  for (std::size_t l = kLayers; l-- > 0;) {
    const Block& w = model.blocks[l];
    const Layer& layer = a.layers[l];

    const TensorView behind = l + 1 < kLayers ? d.middle.sum : TensorView{};
    join_backward(layer.end, norm_behind(model, l), w.down.db, behind, d.end);
    launch(queue, LinearActivationBackward{.dh = d.up,
                                           .db = w.up.db,
                                           .dy = d.end.sum,
                                           .w = w.down.w,
                                           .h = layer.up,
                                           .b = w.up.b});
    launch(queue, LinearBackward{.dw = w.down.dw, .dy = d.end.sum, .x = layer.hidden, .w = w.down.w});
    launch(queue, LinearBackward{.dx = {d.middle.norm},
                                 .dw = w.up.dw,
                                 .dy = d.up,
                                 .x = layer.middle.norm,
                                 .w = w.up.w});

    join_backward(layer.middle, w.mlp_norm, w.proj.db, d.end.sum, d.middle);
    launch(queue, LinearBackward{.dx = {d.attended},
                                 .dw = w.proj.dw,
                                 .dy = d.middle.sum,
                                 .x = layer.attended,
                                 .w = w.proj.w});
    launch(queue, AttentionBackward{.dq = heads(d.qkv),
                                    .dk = heads(d.qkv, 1),
                                    .dv = heads(d.qkv, 2),
                                    .delta = d.lse,
                                    .dy = heads(d.attended),
                                    .y = heads(layer.attended),
                                    .lse = layer.lse,
                                    .q = heads(layer.qkv),
                                    .k = heads(layer.qkv, 1),
                                    .v = heads(layer.qkv, 2),
                                    .maps = maps[l % maps.size()],
                                    .scale = kScale});
    launch(queue, LinearBackward{.dx = {d.end.norm},
                                 .dw = w.qkv.dw,
                                 .db = w.qkv.db,
                                 .dy = d.qkv,
                                 .x = a.before(l).norm,
                                 .w = w.qkv.w});
  }
  const Affine& first_norm = model.blocks[0].attention_norm;
  launch(queue, LayerNormBackward{.dx = {d.middle.sum, true},  // added to what is there
                                  .dw = first_norm.dw,
                                  .db = first_norm.db,
                                  .dy = d.end.norm,
                                  .x = a.begin.sum,
                                  .mean = a.begin.mean,
                                  .rstd = a.begin.rstd,
                                  .w = first_norm.w});
  launch(queue, EmbeddingBackward{.dtable = model.token.dw,
                                  .dstart = model.start.dw,
                                  .daxis = {model.row.dw, model.column.dw},
                                  .divisor = {kStride, 1},
                                  .axes = 2,
                                  .dy = d.middle.sum,
                                  .tokens = a.tokens});
}

// ---- training ----

// Windows at random places of the text: a function of seed, step and place in the batch.
std::vector<int32_t> windows(const std::string& text, int64_t step) {
  constexpr uint64_t kOrder = 0x6f72646572;  // apart from other draws
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < kBatch; ++i) {
    const Philox4 bits = philox4x32({i, 0, static_cast<uint32_t>(step), 0}, kSeed ^ kOrder);
    const auto uniform = static_cast<unsigned __int128>(uint64_t{bits[1]} << 32 | bits[0]);
    const auto first = static_cast<std::size_t>(uniform * (text.size() - kContext + 1) >> 64);
    for (const unsigned char byte : text.substr(first, kContext)) tokens.push_back(byte);
  }
  return tokens;
}

StepScalars scalars_of(int64_t step) {
  StepScalars scalars;
  const double share = step < kWarmup ? static_cast<double>(step + 1) / kWarmup : 1;
  scalars.learning_rate = static_cast<float>(kLearningRate * share);
  set_corrections(scalars, kBeta1, kBeta2, 0.0, 0.0, step + 1);
  return scalars;
}

void train(const Model& model, const std::vector<AttentionMaps>& maps, const std::string& text,
           int64_t steps) {
  const Activations a, gradients;
  const TensorView mean = tensor(DType::f32, {1});
  auto* scalars = static_cast<StepScalars*>(take(sizeof(StepScalars)));
  auto* results = static_cast<StepResults*>(take(sizeof(StepResults)));
  for (int64_t step = 0; step < steps; ++step) {
    copy_to(scalars, std::vector{scalars_of(step)});
    copy_to(a.tokens.data, windows(text, step));

    forward(model, maps, a);
    launch(queue, CrossEntropyForward{.loss = a.losses,
                                      .lse = a.lse,
                                      .logits = a.logits,
                                      .targets = a.tokens});
    launch(queue, MeanForward{.y = mean, .x = a.losses, .results = results});
    backward(model, maps, a, scalars, gradients);

    launch(queue, ClipCoefficient{.results = results, .gradients = model.gradients, .step = scalars});
    launch(queue, AdamWUpdate{.master = model.master,
                              .m = model.m,
                              .v = model.v,
                              .compute = model.copy,
                              .gradients = model.gradients,
                              .decayed = model.decayed,
                              .beta1 = kBeta1,
                              .beta2 = kBeta2,
                              .step = scalars,
                              .results = results});
    std::printf("step %lld  loss %.9g\n", static_cast<long long>(step + 1),
                static_cast<double>(copy_of<StepResults>(results, 1)[0].loss));
  }
}

// Byte by byte: the forward pass over the text so far, and a draw from what it predicts.
std::string sample(const Model& model, const std::vector<AttentionMaps>& maps) {
  const Activations a;
  std::mt19937 random(kSeed);
  std::vector<int32_t> tokens(kBatch * kContext);
  std::string line;
  for (int64_t t = 0; t < 80; ++t) {
    copy_to(a.tokens.data, tokens);
    forward(model, maps, a);
    std::vector<double> chances;
    dispatch_float(type, [&]<class T>() {
      for (const T logit : copy_of<T>(a.logits.as<T>() + t * kVocab, kVocab))
        chances.push_back(std::exp(static_cast<double>(logit)));
    });
    const int byte = std::discrete_distribution<>(chances.begin(), chances.end())(random);
    tokens[static_cast<std::size_t>(t)] = byte;
    line += byte == '\n' ? ' ' : static_cast<char>(byte);
  }
  return line;
}

// ---- the program ----

void save(const std::string& path, const Model& model, const std::vector<Parameter>& all) {
  const std::vector<float> values = copy_of<float>(model.master.data, model.master.size());
  std::ofstream file(path, std::ios::binary);
  for (const Parameter& p : all)
    file.write(reinterpret_cast<const char*>(&values[static_cast<std::size_t>(p.offset)]),
               p.size() * size_of(DType::f32));
  if (!file.flush()) fail(path, ": cannot be written");
}

// The part of a file that `prepare` gives to training.
std::string training_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, ": cannot be read");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  text.resize(static_cast<std::size_t>(std::llround(0.9 * static_cast<double>(text.size()))));
  if (std::ssize(text) < kContext)
    fail(path, ": its first 90 % are ", text.size(), " bytes; a window has ", kContext);
  return text;
}

void run(std::string file, std::map<std::string, std::string> options) {
  const int64_t steps = std::atoll(options["--steps"].c_str());
  if (steps < 1 || std::to_string(steps) != options["--steps"])
    fail("--steps ", options["--steps"], ": expected a number from 1 on");
  const std::string text = training_text(file), attention = options["--attention"];
  if (attention != "fixed" && attention != "strided")
    fail("--attention ", attention, ": expected fixed or strided");
  queue = open_queue(options["--device"]);
  type = options["--device"] == "cpu" ? DType::f32 : DType::bf16;

  Model model;
  const std::vector<Parameter> all = initialise(model);
  // Layers take them in turn.
  const auto maps = attention == "fixed" ? std::vector{fixed_maps()}
                                         : std::vector{local_maps(), strided_maps()};
  train(model, maps, text, steps);
  std::printf("%s\n", sample(model, maps).c_str());
  if (!options["--save"].empty()) save(options["--save"], model, all);
}
}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--steps", "500"}, {"--device", "cpu"}, {"--attention", "fixed"}, {"--save", ""}};
  std::string file;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto option = options.find(word);
      if (word == "--help") {
        std::puts("minimal FILE [--steps N] [--device cpu|cuda] [--attention fixed|strided]\n"
                  "        [--save FILE]  learns to continue FILE, a text; saves weights as f32");
        return 0;
      }
      if (option != options.end() && i + 1 < argc)
        option->second = argv[++i];
      else if (file.empty() && !word.starts_with("--"))
        file = word;
      else
        fail(word, ": not understood, or without its value; see minimal --help");
    }
    if (file.empty()) fail("name a text; see minimal --help");
    run(file, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
