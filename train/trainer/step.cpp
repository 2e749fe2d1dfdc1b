// SPDX-License-Identifier: MIT
// The training step, from the top down.
#include "train/trainer/step.h"

#include "src/config/config.h"

#include <cstddef>
#include <functional>
#include <memory>

namespace weft {
void TrainStep::run(const BatchSource& source, int64_t step, const std::function<void()>& between) {
  launch_update(source, step, between, true);
  if (step_shape(config_, step + 1).context == shape_.context) read(source, step + 1, 0);
}

// counted: its results will be asked for.
void TrainStep::launch_update(const BatchSource& source, int64_t step,
                              const std::function<void()>& between, bool counted) {
  set_shape(step_shape(config_, step));
  for (int64_t micro = 0; micro < shape_.accumulation; ++micro) {
    ahead_.make_room(micro);
    if (micro > 0 && between) between();
    prepare(source, step, micro);
    const bool last = micro + 1 == shape_.accumulation;
    GraphedStep& graph = micro == 0 ? graphs_->first : last ? graphs_->last : graphs_->later;
    // its third call records the CUDA graph (src/device.cpp), later calls replay that
    graph.run([&] {
      upload();
      if (micro == 0) store_.begin_step();
      forward_backward(last && shared_);
      if (last) apply_gradients();
    });
    ahead_.record(ctx_, micro, results_, counted);
  }
}

// Adds the gradients of one micro-batch. `shared`: all processes sum theirs meanwhile.
void TrainStep::forward_backward(bool shared) {
  Tape tape;
  Ctx ctx = ctx_;
  ctx.tape = &tape;
  ctx.may_stop = !shared_ && !(device_.is_cuda() && config_.train.graph);
  const GradientsComplete complete = [this](Ctx& c, int32_t first) { shared_->complete(c, first); };
  if (shared) {
    shared_->begin();
    ctx.complete = &complete;
  }
  const Var loss = mean(ctx, model_.token_losses(ctx, batch_.sequences()));
  backward(ctx, loss);
  if (shared) shared_->finish(ctx);
}

// Clips, counts the loss scale of f16, and updates.
void TrainStep::apply_gradients() {
  Ctx ctx = ctx_;
  store_.finish_gradients(ctx);
  shared_ ? shared_->update(ctx, config_.train) : update_parameters(ctx, store_, config_.train);
}

// ---- what goes to the device ----

void TrainStep::read(const BatchSource& source, int64_t step, int64_t micro) {
  if (host_step_ == step && host_micro_ == micro) return;
  const StepShape shape = step_shape(config_, step);
  source.read(step, shape.first_sequence(micro, rank_), shape.micro_batch, shape.context,
              host_batch_);
  host_step_ = step;
  host_micro_ = micro;
}

// Fills the memory that upload() copies from. Graphs hold its address, so the vectors never
// reallocate.
void TrainStep::prepare(const BatchSource& source, int64_t step, int64_t micro) {
  host_scalars_ = step_scalars(config_, step);
  host_scalars_.first_row = shape_.first_sequence(micro, rank_) * shape_.context;
  read(source, step, micro);
  if (!batch_.made()) batch_.make(host_batch_, shape_.micro_batch, shape_.context);
  batch_.check(host_batch_);
}

void TrainStep::upload() {
  device_.upload_async(scalars_.view().data, &host_scalars_, sizeof host_scalars_);
  batch_.upload(host_batch_);
  if (ctx_.loss_scale)
    ctx_.launch(ApplyLossScale{
        .step = ctx_.step,
        .state = ctx_.loss_scale,
        .parts = shape_.accumulation * shape_.ranks,
    });
}

// ---- set-up ----

namespace {
// For a struct of four-byte words: as floats, which Add copies bit by bit.
Tensor device_bytes(Device& device, std::size_t bytes) {
  Tensor t(*device.pool, {static_cast<int64_t>(bytes / sizeof(float))}, DType::f32, "step");
  device.zero(t);
  return t;
}

// Least time of a micro-batch's backward pass: 2/3 of its FLOPs at kMostFlops, which Hopper does
// not reach (H200: 430e12 FLOP/s); Blackwell may. A communicator compares it with the time of sums
// by the host's memory, which are to hide behind the backward pass.
double least_backward_seconds(const Config& config, const StepShape& shape) {
  constexpr double kMostFlops = 7e14;
  const auto tokens = static_cast<double>(shape.micro_batch * shape.context);
  return 2.0 / 3 * flops_per_token(config.model, shape.context) * tokens / kMostFlops;
}
}  // namespace

StepShape step_shape(const Config& config, int64_t step) {
  const int64_t context = context_at(config.train, config.model.context, step);
  const int64_t sequences = config.train.batch * config.model.context / context;
  const int64_t accumulation = config.train.accumulation, ranks = config.ranks;
  const StepShape shape{context, sequences / (accumulation * ranks), accumulation, ranks};
  WEFT_CHECK(shape.tokens() == config.train.batch * config.model.context,
             "train.batch x model.context tokens must be a whole number of windows of ", context,
             " tokens in ", accumulation * ranks, " micro-batches");
  return shape;
}

StepScalars step_scalars(const Config& config, int64_t step) {
  const TrainConfig& train = config.train;
  StepScalars s;
  s.seed = config.seed;
  s.draw = static_cast<uint64_t>(step);
  const double rate = learning_rate(train, step);
  s.learning_rate = static_cast<float>(rate);
  s.matrix_learning_rate =
      static_cast<float>(rate / train.learning_rate * train.muon_learning_rate);
  set_corrections(s, train.beta1, train.beta2, train.ema_decay, train.muon_momentum, step + 1);
  s.loss_gradient =
      static_cast<float>(1.0 / static_cast<double>(train.accumulation * config.ranks));
  return s;
}

TrainStep::TrainStep(Device& device, Model& model, ParameterStore& store, const Config& config,
                     SharedStep* shared)
    : device_(device),
      model_(model),
      store_(store),
      config_(config),
      shared_(shared),
      scalars_(device_bytes(device, sizeof(StepScalars))),
      results_(device_bytes(device, sizeof(StepResults))),
      batch_(device, "step"),
      ahead_(device, config.train.accumulation, store.compute_dtype() == DType::f16) {
  const int ranks = shared ? shared->size() : 1;
  WEFT_CHECK(config.ranks == ranks, "a config for ", config.ranks, " processes, but there are ",
             ranks);
  if (shared) {
    rank_ = shared->rank();
    shared->plan(least_backward_seconds(config, step_shape(config, 0)));
  }
  ctx_.queue = &device.queue;
  ctx_.pool = device.pool.get();
  ctx_.step = static_cast<StepScalars*>(scalars_.view().data);
  ctx_.results = static_cast<StepResults*>(results_.view().data);
  ctx_.training = true;
  if (store.compute_dtype() != DType::f16) return;
  loss_scale_ = device_bytes(device, sizeof(LossScale));
  ctx_.loss_scale = static_cast<LossScale*>(loss_scale_.view().data);
  set_loss_scale({.scale = config.train.loss_scale});
}

void TrainStep::set_loss_scale(const LossScale& state) {
  WEFT_CHECK(loss_scale_, "a loss scale in ", name_of(store_.compute_dtype()), ", which has none");
  device_.upload(loss_scale_, &state);
}

LossScale TrainStep::loss_scale() {
  WEFT_CHECK(loss_scale_, "a loss scale in ", name_of(store_.compute_dtype()), ", which has none");
  LossScale state;
  device_.download(&state, loss_scale_);
  return state;
}

// At another context length: memory and graphs of the old one go.
void TrainStep::set_shape(const StepShape& shape) {
  if (shape.context == shape_.context) return;
  device_.synchronize();
  graphs_.reset();
  batch_.reset();
  device_.pool->trim();
  shape_ = shape;
  if (shared_) shared_->plan(least_backward_seconds(config_, shape));
  const bool graph = config_.train.graph;
  graphs_ =
      std::make_unique<Graphs>(Graphs{GraphedStep(device_, graph), GraphedStep(device_, graph),
                                      GraphedStep(device_, graph), GraphedStep(device_, graph)});
}
}  // namespace weft
