// SPDX-License-Identifier: MIT
// weft in one file: a Sparse Transformer (arXiv 1904.10509) learns to continue a text, with nothing
// below it but kernels. A kernel is a struct of views, which name the memory of its inputs and
// outputs. launch() checks their shapes and runs the kernel on the queue of a CPU or of a GPU.
//   H_0 = embed(tokens)         row t holds token t - 1, and predicts token t
//   A = H + attention(norm(H))  each query sees the keys of its pattern
//   H = A + mlp(norm(A))        both lines N times
//   loss = mean of -log softmax(norm(H_N) W_out)
// The backward pass is written out; the framework records it on a tape (src/tape.h).
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

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <vector>

// What a kernel struct below leaves out is absent: no bias, no gradient wanted.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

using namespace weft;

namespace {
// ---- the model and its training; configs/minimal.yaml has the same numbers ----

constexpr int64_t kContext = 256, kVocab = 256;  // bytes that the model sees, and their values
constexpr int64_t kLayers = 4, kWidth = 128, kHidden = 4 * kWidth;  // hidden: inside the MLP
constexpr int64_t kHeads = 4, kHeadSize = kWidth / kHeads;
constexpr int64_t kStride = 32, kSummary = 16;  // of the attention patterns: l and c
constexpr int64_t kBatch = 8, kWarmup = 20;     // windows a step; steps of rising learning rate
constexpr double kLearningRate = 2e-3;
constexpr uint64_t kSeed = 0;

// ---- the device: a queue of launches, and the memory that they work on ----

Queue queue;
DType type;  // of weights and activations: f32 on the CPU, bf16 on a GPU
std::vector<std::shared_ptr<void>> memory;

// Zeros, which live as long as the program.
TensorView tensor(DType of, std::initializer_list<int64_t> shape) {
  TensorView view = view_of(nullptr, of, shape);
  memory.push_back(take_zeros(queue, view.bytes()));
  view.data = memory.back().get();
  return view;
}

TensorView activations(int64_t columns) { return tensor(type, {kBatch, kContext, columns}); }

TensorView numbers(int64_t count) { return tensor(DType::f32, {kBatch, count, kContext}); }

// ---- attention patterns: which keys a query sees ----

// Kernels read a pattern as tiles of 64 x 64 pairs. Slots order the positions so that few tiles
// hold all pairs. A band is a second form of a regular pattern, which faster kernels read.
AttentionMaps maps_of(const AttendedPairs& pairs, const Band& band) {
  PackedTables tables(kContext, kContext, std::vector<int32_t>(kHeads), 1);
  tables.add(0, build_best_tables(pairs, kHeadSize), band, false);
  std::vector<char> image(tables.bytes());
  void* device = tensor(DType::u8, {std::ssize(image)}).data;
  const AttentionMaps maps = tables.write(image.data(), device);
  upload(queue, device, image);
  return maps;
}

// The own block of l positions so far, and the last c positions of every earlier block. These
// summaries have the first slots.
AttentionMaps fixed_maps() {
  constexpr int64_t kOthers = kStride - kSummary;
  const auto key_runs = [](int64_t i, std::vector<KeyRun>& runs) {
    const int64_t own = i / kStride * kStride;
    for (int64_t block = 0; block < own; block += kStride)
      runs.push_back({block + kOthers, block + kStride});
    runs.push_back({own, i + 1});
  };
  const auto key_slot = [](int64_t j) {
    const int64_t block = j / kStride, at = j % kStride - kOthers;
    return at < 0 ? kContext / kStride * kSummary + (block + 1) * kOthers + at
                  : block * kSummary + at;
  };
  return maps_of({"fixed", kContext, kContext, key_runs, {}, key_slot}, {});
}

// Every l-th position back: in rows of l positions, the column above the query. Slots go column by
// column.
AttentionMaps strided_maps() {
  constexpr int64_t kRows = kContext / kStride;
  const auto key_runs = [](int64_t i, std::vector<KeyRun>& runs) {
    runs.push_back({i % kStride, i + 1, kStride});
  };
  const auto slot = [](int64_t i) { return i % kStride * kRows + i / kStride; };
  return maps_of({"strided", kContext, kContext, key_runs, slot, slot}, {kStride, kRows, 0});
}

// ---- weights ----

// Of a linear layer, of a norm, or, without b, of an embedding.
struct Weights {
  TensorView w, b;
  GradView dw, db;  // gradients, in f32
};

struct Block {
  Weights qkv, proj, middle_norm, up, down, end_norm;  // each norm reads the residual stream
};

// Of the flat list of all weights: matrices come first, since they alone decay.
constexpr int64_t kMatrices =
    (2 * kVocab + kContext + kLayers * (4 * kWidth + 2 * kHidden)) * kWidth;
constexpr int64_t kVectors = kWidth * (3 + kLayers * 9) + kLayers * kHidden;

TensorView flat(DType of) { return tensor(of, {kMatrices + kVectors}); }

struct Model {
  AttentionMaps maps;
  Weights token, start, position;  // embeddings
  Weights begin_norm;
  std::vector<Block> blocks{kLayers};
  Weights output;

  // All weights and gradients, one behind the other; m and v: the moments of AdamW.
  TensorView master = flat(DType::f32), m = flat(DType::f32), v = flat(DType::f32),
             gradients = flat(DType::f32);
  TensorView copy = type == DType::bf16 ? flat(type) : TensorView{};  // of master, for kernels
  int64_t matrices = 0, vectors = kMatrices;                          // where the next one begins
  uint32_t number = 0;                                                // of the next one

  // A matrix, or with one row a vector, of normal numbers. Kernels read it at `w`, in the type of
  // activations. Returns the master weights, in f32.
  TensorView add(TensorView& w, GradView& dw, int64_t rows, int64_t cols, double std);
  Model();
};

TensorView Model::add(TensorView& w, GradView& dw, int64_t rows, int64_t cols, double std) {
  int64_t& next = rows > 1 ? matrices : vectors;
  const auto part = [&](const TensorView& all) {
    return view_of(static_cast<char*>(all.data) + next * size_of(all.dtype), all.dtype,
                   {rows, cols});
  };
  std::vector<float> values(rows * cols);
  // Philox makes four numbers of (block of four, weight, seed): the same on every machine.
  for (uint32_t i = 0; std > 0 && i < values.size(); ++i)
    values[i] = std * normals_of(philox4x32({i / 4, 0, number, 0xffffffff}, kSeed))[i % 4];
  const TensorView exact = part(master);
  upload(queue, exact.data, values);
  w = copy ? part(copy) : exact;
  if (copy) upload(queue, w.data, std::vector<bf16>(values.begin(), values.end()));
  dw = {part(gradients)};
  next += rows * cols;
  ++number;
  return exact;
}

Model::Model() {
  // Norms read their weights in f32.
  const auto add_norm = [&](Weights& a) {
    a.w = add(a.w, a.dw, 1, kWidth, 0);
    a.b = add(a.b, a.db, 1, kWidth, 0);
    upload(queue, a.w.data, std::vector<float>(kWidth, 1));
  };
  const auto add_linear = [&](Weights& a, int64_t out, int64_t in, double gain) {
    add(a.w, a.dw, out, in, gain * std::sqrt(0.125 / in));
    add(a.b, a.db, 1, out, 0);
  };
  add(token.w, token.dw, kVocab, kWidth, 0.1);
  add(start.w, start.dw, 1, kWidth, 0.1);
  add(position.w, position.dw, kContext, kWidth, 0.1);
  add_norm(begin_norm);
  for (Block& block : blocks) {
    // 2 N branches add up in the residual stream: the last matrix of each starts smaller.
    const double last = 1 / std::sqrt(2.0 * kLayers);
    add_linear(block.qkv, 3 * kWidth, kWidth, 1);
    add_linear(block.proj, kWidth, kWidth, last);
    add_norm(block.middle_norm);
    add_linear(block.up, kHidden, kWidth, 1);
    add_linear(block.down, kWidth, kHidden, last);
    add_norm(block.end_norm);
  }
  add(output.w, output.dw, kVocab, kWidth, 0);  // the first predictions are uniform
}

// ---- activations, which the backward pass reads ----

// The residual stream H at one point, and its norm, which the next branch reads.
struct Stream {
  TensorView sum = activations(kWidth), norm = activations(kWidth);
  TensorView mean = numbers(1), rstd = numbers(1);
};

struct Layer {
  TensorView qkv = activations(3 * kWidth), attended = activations(kWidth), lse = numbers(kHeads);
  Stream middle;  // with the branch of the attention
  TensorView up = activations(kHidden), hidden = activations(kHidden);  // before and after GELU
  Stream end;  // with the branch of the MLP
};

struct Activations {
  TensorView tokens = tensor(DType::i32, {kBatch, kContext});
  Stream begin;
  std::vector<Layer> layers{kLayers};
  TensorView branch = activations(kWidth), logits = activations(kVocab);
  TensorView losses = numbers(1), lse = numbers(1);

  const Stream& before(int64_t l) const { return l > 0 ? layers[l - 1].end : begin; }
};

const double kScale = 1 / std::sqrt(kHeadSize);

// Queries (0), keys (1) or values (2) of all heads, where they lie in the columns of qkv.
HeadsView heads(const TensorView& x, int64_t which = 0) {
  return heads_of(x, which * kWidth, kHeads, kHeadSize);
}

// ---- forward: row t of the logits predicts token t from those before it ----

// A branch joins the residual stream, and the sum is normalised.
void join(const Stream& from, const TensorView& branch, const TensorView& bias, const Weights& norm,
          const Stream& to) {
  launch(queue, ResidualForward{
                    .h = to.sum,
                    .y = to.norm,
                    .mean = to.mean,
                    .rstd = to.rstd,
                    .x = from.sum,
                    .branch = branch,
                    .bias = bias,
                    .w = norm.w,
                    .b = norm.b,
                });
}

void forward(const Model& model, const Activations& a) {
  launch(queue, EmbeddingForward{
                    .y = a.begin.sum,
                    .tokens = a.tokens,
                    .table = model.token.w,
                    .start = model.start.w,
                    .axis = {{model.position.w}},
                    .axes = 1,
                });
  launch(queue, LayerNormForward{
                    .y = a.begin.norm,
                    .mean = a.begin.mean,
                    .rstd = a.begin.rstd,
                    .x = a.begin.sum,
                    .w = model.begin_norm.w,
                    .b = model.begin_norm.b,
                });
  for (int64_t l = 0; l < kLayers; ++l) {
    const Block& w = model.blocks[l];
    const Layer& layer = a.layers[l];

    // attention
    launch(queue, LinearForward{.y = layer.qkv, .x = a.before(l).norm, .w = w.qkv.w, .b = w.qkv.b});
    launch(queue, AttentionForward{
                      .y = heads(layer.attended),
                      .lse = layer.lse,
                      .q = heads(layer.qkv),
                      .k = heads(layer.qkv, 1),
                      .v = heads(layer.qkv, 2),
                      .maps = model.maps,
                      .scale = kScale,
                  });
    launch(queue, LinearForward{.y = a.branch, .x = layer.attended, .w = w.proj.w});
    join(a.before(l), a.branch, w.proj.b, w.middle_norm, layer.middle);

    // MLP
    launch(queue, LinearActivationForward{
                      .y = layer.hidden,
                      .h = layer.up,
                      .x = layer.middle.norm,
                      .w = w.up.w,
                      .b = w.up.b,
                  });
    launch(queue, LinearForward{.y = a.branch, .x = layer.hidden, .w = w.down.w});
    join(layer.middle, a.branch, w.down.b, w.end_norm, layer.end);
  }
  launch(queue, LinearForward{.y = a.logits, .x = a.before(kLayers).norm, .w = model.output.w});
}

// ---- backward: the gradients of all that, last first ----

// The gradient of a sum is that of both its parts. It comes from the sum behind (`dh`) and through
// the norm (`d.norm`), and goes to `d.sum`.
void join_backward(const Stream& at, const Weights& norm, const GradView& dbias,
                   const TensorView& dh, const Stream& d) {
  launch(queue, ResidualBackward{
                    .dx = {d.sum},
                    .dbias = dbias,
                    .dw = norm.dw,
                    .db = norm.db,
                    .dh = dh,
                    .dy = d.norm,
                    .h = at.sum,
                    .mean = at.mean,
                    .rstd = at.rstd,
                    .w = norm.w,
                });
}

// `d` holds gradients of what has their names in the layer. `behind`: the gradient of the sum
// behind it, absent in the last layer.
void layer_backward(const Model& model, int64_t l, const Activations& a, const TensorView& behind,
                    const Layer& d) {
  const Block& w = model.blocks[l];
  const Layer& layer = a.layers[l];

  // MLP
  join_backward(layer.end, w.end_norm, w.down.db, behind, d.end);
  launch(queue, LinearActivationBackward{
                    .dh = d.up,
                    .db = w.up.db,
                    .dy = d.end.sum,
                    .w = w.down.w,
                    .h = layer.up,
                    .b = w.up.b,
                });
  launch(queue, LinearBackward{.dw = w.down.dw, .dy = d.end.sum, .x = layer.hidden, .w = w.down.w});
  launch(queue, LinearBackward{
                    .dx = {d.middle.norm},
                    .dw = w.up.dw,
                    .dy = d.up,
                    .x = layer.middle.norm,
                    .w = w.up.w,
                });

  // attention
  join_backward(layer.middle, w.middle_norm, w.proj.db, d.end.sum, d.middle);
  launch(queue, LinearBackward{
                    .dx = {d.attended},
                    .dw = w.proj.dw,
                    .dy = d.middle.sum,
                    .x = layer.attended,
                    .w = w.proj.w,
                });
  launch(queue, AttentionBackward{
                    .dq = heads(d.qkv),
                    .dk = heads(d.qkv, 1),
                    .dv = heads(d.qkv, 2),
                    .delta = d.lse,  // scratch, of the shape of lse
                    .dy = heads(d.attended),
                    .y = heads(layer.attended),
                    .lse = layer.lse,
                    .q = heads(layer.qkv),
                    .k = heads(layer.qkv, 1),
                    .v = heads(layer.qkv, 2),
                    .maps = model.maps,
                    .scale = kScale,
                });
  launch(queue, LinearBackward{
                    .dx = {d.end.norm},
                    .dw = w.qkv.dw,
                    .db = w.qkv.db,
                    .dy = d.qkv,
                    .x = a.before(l).norm,
                    .w = w.qkv.w,
                });
}

// `da` holds gradients of what has their names in `a`, and of one layer at a time.
void backward(const Model& model, const Activations& a, const StepScalars* step,
              const Activations& da) {
  const Layer& d = da.layers[0];
  launch(queue, MeanBackward{.dx = {da.losses}, .step = step});
  launch(queue, CrossEntropyBackward{
                    .dlogits = {da.logits},
                    .dloss = da.losses,
                    .lse = a.lse,
                    .logits = a.logits,
                    .targets = a.tokens,
                });
  launch(queue, LinearBackward{
                    .dx = {d.end.norm},
                    .dw = model.output.dw,
                    .dy = da.logits,
                    .x = a.before(kLayers).norm,
                    .w = model.output.w,
                });
  TensorView behind;
  for (int64_t l = kLayers; l-- > 0; behind = d.middle.sum) layer_backward(model, l, a, behind, d);
  launch(queue, LayerNormBackward{
                    .dx = {behind, true},  // added to what is there
                    .dw = model.begin_norm.dw,
                    .db = model.begin_norm.db,
                    .dy = d.end.norm,
                    .x = a.begin.sum,
                    .mean = a.begin.mean,
                    .rstd = a.begin.rstd,
                    .w = model.begin_norm.w,
                });
  launch(queue, EmbeddingBackward{
                    .dtable = model.token.dw,
                    .dstart = model.start.dw,
                    .daxis = {model.position.dw},
                    .axes = 1,
                    .dy = behind,
                    .tokens = a.tokens,
                });
}

// ---- training ----

// Windows that begin anywhere in the text: a function of seed, step and index in the batch. Their
// random bits have another key than those of the weights.
std::vector<int32_t> windows(const std::string& text, uint32_t step) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < kBatch; ++i) {
    const Philox4 bits = philox4x32({i, 0, step, 0}, kSeed ^ 0x6f72646572);
    const unsigned __int128 uniform = uint64_t{bits[1]} << 32 | bits[0];
    const std::size_t first = uniform * (text.size() - kContext + 1) >> 64;
    for (const unsigned char byte : text.substr(first, kContext)) tokens.push_back(byte);
  }
  return tokens;
}

void train(const Model& model, const std::string& text, int64_t steps) {
  const Activations a, gradients;
  const TensorView mean = tensor(DType::f32, {1});
  auto* scalars = static_cast<StepScalars*>(tensor(DType::u8, {sizeof(StepScalars)}).data);
  auto* results = static_cast<StepResults*>(tensor(DType::u8, {sizeof(StepResults)}).data);
  for (int64_t step = 0; step < steps; ++step) {
    StepScalars now;
    now.learning_rate = step < kWarmup ? kLearningRate * (step + 1) / kWarmup : kLearningRate;
    set_corrections(now, 0.9, 0.95, 0.0, 0.0, step + 1);  // beta1 and beta2 of AdamWUpdate
    upload(queue, scalars, std::vector{now});
    upload(queue, a.tokens.data, windows(text, step));

    forward(model, a);
    launch(queue, CrossEntropyForward{
                      .loss = a.losses,
                      .lse = a.lse,
                      .logits = a.logits,
                      .targets = a.tokens,
                  });
    launch(queue, MeanForward{.y = mean, .x = a.losses, .results = results});
    backward(model, a, scalars, gradients);

    launch(queue, ClipCoefficient{
                      .results = results,
                      .gradients = model.gradients,
                      .step = scalars,
                  });
    launch(queue, AdamWUpdate{
                      .master = model.master,
                      .m = model.m,
                      .v = model.v,
                      .compute = model.copy,
                      .gradients = model.gradients,
                      .decayed = kMatrices,
                      .step = scalars,
                      .results = results,
                  });
    std::printf("step %ld  loss %.9g\n", step + 1, to_host(queue, mean)[0]);
  }
}

// Byte by byte: the forward pass over the text so far, and a draw from what it predicts.
void sample(const Model& model) {
  const Activations a;
  std::mt19937 random(kSeed);
  std::vector<int32_t> tokens(kBatch * kContext);
  for (int64_t t = 0; t < 80; ++t) {
    upload(queue, a.tokens.data, tokens);
    forward(model, a);
    std::vector<double> chances = to_host(queue, a.logits);  // of all rows
    for (double& x : chances) x = std::exp(x);
    const auto row = chances.begin() + t * kVocab;
    tokens[t] = std::discrete_distribution<>(row, row + kVocab)(random);
    std::putchar(tokens[t] == '\n' ? ' ' : tokens[t]);
  }
  std::putchar('\n');
}

// ---- the program ----

void run(const char* path, std::map<std::string, std::string>& options) {
  if (std::error_code none; std::filesystem::is_directory(path, none))
    fail(path, ": is a folder, expected a file");
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {}), count = options["--steps"];
  if (!in) fail(path, ": cannot be read");
  if (std::error_code none; std::filesystem::equivalent(path, options["--save"], none))
    fail(path, ": is both read and written; choose another --save");
  text.resize(std::llround(0.9 * text.size()));  // what `prepare` gives to training
  if (text.size() < kContext) fail(path, ": is too short: ", kContext, " bytes make a window");
  const int64_t steps = std::atoll(count.c_str());
  if (steps < 1 || std::to_string(steps) != count) fail("--steps: expected 1, 2, ..., got ", count);
  queue = open_queue(options["--device"]);
  type = options["--device"] == "cpu" ? DType::f32 : DType::bf16;

  const bool fixed = options["--attention"] == "fixed";
  if (!fixed && options["--attention"] != "strided") fail("--attention: expected fixed or strided");
  Model model;
  model.maps = fixed ? fixed_maps() : strided_maps();
  train(model, text, steps);
  sample(model);

  if (options["--save"].empty()) return;
  std::ofstream out(options["--save"], std::ios::binary);
  for (const float weight : to_host(queue, model.master))
    out.write(reinterpret_cast<const char*>(&weight), sizeof weight);
  if (!out.flush()) fail(options["--save"], ": cannot be written");
}
}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--steps", "500"}, {"--device", "cpu"}, {"--attention", "fixed"}, {"--save", ""}};
  const char* usage =
      "minimal FILE [--steps N] [--device cpu|cuda] [--attention fixed|strided] [--save FILE]";
  for (int i = 2; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  try {
    if (argc % 2 != 0 || options.size() > 4) fail("expected ", usage);
    if (argv[1] == std::string("--help"))
      std::puts(usage);
    else
      run(argv[1], options);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
