// SPDX-License-Identifier: MIT
// The training step: shapes, scalars, launches.
#include "train/trainer/step.h"

#include <algorithm>
#include <cmath>

#include "kernels/layers/pointwise.h"
#include "src/ops.h"
#include "src/optimizer.h"

namespace weft {
namespace {

constexpr std::int64_t kResultFloats = sizeof(StepResults) / sizeof(float);

// FLOP/s that no step comes near (H200, bf16: 430e12).
constexpr double kMostFlops = 7e14;

// That the backward pass of a micro-batch takes at least: two thirds of its operations.
double least_backward_seconds(const Config& config, const StepShape& shape) {
  const auto tokens = static_cast<double>(shape.micro_batch * shape.context);
  return 2.0 / 3 * flops_per_token(config.model, shape.context) * tokens / kMostFlops;
}

Tensor device_bytes(Device& device, std::size_t bytes) {
  Tensor t(*device.pool, {static_cast<std::int64_t>(bytes)}, DType::u8, "step");
  device.zero(t);
  return t;
}

}  // namespace

StepShape step_shape(const Config& config, std::int64_t step) {
  const std::int64_t context = context_at(config.train, config.model.context, step);
  const std::int64_t sequences = config.train.batch * config.model.context / context;
  const std::int64_t accumulation = config.train.accumulation, ranks = config.ranks;
  const StepShape shape{context, sequences / (accumulation * ranks), accumulation, ranks};
  WEFT_CHECK(shape.tokens() == config.train.batch * config.model.context,
             "train.batch x model.context tokens must be a whole number of windows of ", context,
             " tokens in ", accumulation * ranks, " micro-batches");
  return shape;
}

StepScalars step_scalars(const Config& config, std::int64_t step, std::int64_t updates, double loss_scale) {
  const TrainConfig& train = config.train;
  const auto t = static_cast<double>(updates + 1);
  StepScalars s;
  s.seed = config.seed;
  s.learning_rate = static_cast<float>(learning_rate(train, step));
  s.beta1_correction = static_cast<float>(1 - std::pow(train.beta1, t));
  s.beta2_correction = static_cast<float>(1 - std::pow(train.beta2, t));
  // Early on the average looks back over a tenth of the run so far, so that it forgets the initial weights.
  s.ema_decay = static_cast<float>(std::min(train.ema_decay, (1 + t) / (10 + t)));
  s.loss_gradient = static_cast<float>(loss_scale / static_cast<double>(train.accumulation * config.ranks));
  s.gradient_scale = static_cast<float>(1 / loss_scale);
  return s;
}

TrainStep::TrainStep(Device& device, Model& model, ParameterStore& store, const Config& config,
                     Communicator* communicator)
    : device_(device),
      model_(model),
      store_(store),
      config_(config),
      communicator_(communicator),
      scalars_(device_bytes(device, sizeof(StepScalars))),
      results_(*device.pool, {kResultFloats}, DType::f32, "step"),
      batch_(device, "step"),
      history_(*device.host_pool, {kTurn, config.train.accumulation, kResultFloats}, DType::f32, "step") {
  const int ranks = communicator ? communicator->size() : 1;
  WEFT_CHECK(config.ranks == ranks, "a config for ", config.ranks, " processes, but there are ", ranks);
  if (ranks > 1) {
    rank_ = communicator->rank();
    gradient_sum_ = std::make_unique<GradientSum>(device, store, *communicator, config.train);
    gradient_sum_->plan(least_backward_seconds(config, step_shape(config, 0)));
  }
  device.zero(results_);
  ctx_.queue = &device.queue;
  ctx_.pool = device.pool.get();
  ctx_.step = static_cast<const StepScalars*>(scalars_.view().data);
  ctx_.results = static_cast<StepResults*>(results_.view().data);
  ctx_.training = true;
  for (std::int64_t i = 0; i < kTurn * config.train.accumulation; ++i) marks_.push_back(device.make_mark());
  if (store.compute_dtype() != DType::f16) return;
  loss_scale_ = device_bytes(device, sizeof(LossScale));
  ctx_.loss_scale = static_cast<LossScale*>(loss_scale_.view().data);
  set_loss_scale({.scale = config.train.loss_scale});
}

void TrainStep::set_loss_scale(const LossScale& state) {
  WEFT_CHECK(loss_scale_, "a loss scale in ", name_of(store_.compute_dtype()), ", which has none");
  device_.upload_async(loss_scale_.view().data, &state, sizeof state);
}

void TrainStep::set_shape(const StepShape& shape) {
  if (shape.context == shape_.context) return;
  device_.synchronize();
  graphs_.reset();
  batch_.reset();
  device_.pool->trim();
  shape_ = shape;
  if (gradient_sum_) gradient_sum_->plan(least_backward_seconds(config_, shape));
  const bool graph = config_.train.graph;
  graphs_ = std::make_unique<Graphs>(Graphs{GraphedStep(device_, graph), GraphedStep(device_, graph),
                                            GraphedStep(device_, graph), GraphedStep(device_, graph)});
}

void TrainStep::read(const BatchSource& source, std::int64_t step, std::int64_t micro) {
  if (host_step_ == step && host_micro_ == micro) return;
  const StepShape shape = step_shape(config_, step);
  source.read(step, shape.first_sequence(micro, rank_), shape.micro_batch, shape.context, host_batch_);
  host_step_ = step;
  host_micro_ = micro;
}

// What upload() copies, where the graphs that have captured it look for it: vectors of a size that does not
// change stay where they are.
void TrainStep::prepare(const BatchSource& source, std::int64_t step, std::int64_t micro,
                        const StepScalars& scalars) {
  host_scalars_ = scalars;
  host_scalars_.draw = static_cast<std::uint64_t>(step);
  host_scalars_.first_row = shape_.first_sequence(micro, rank_) * shape_.context;
  read(source, step, micro);
  if (!batch_.made()) batch_.make(host_batch_, shape_.micro_batch, shape_.context);
  batch_.check(host_batch_);
}

void TrainStep::upload() {
  device_.upload_async(scalars_.view().data, &host_scalars_, sizeof host_scalars_);
  batch_.upload(host_batch_);
}

void TrainStep::apply_loss_scale() {
  ctx_.launch(ApplyLossScale{.step = static_cast<StepScalars*>(scalars_.view().data),
                             .state = ctx_.loss_scale,
                             .parts = shape_.accumulation * shape_.ranks});
}

// sum_up: gradients are complete with this pass, and summed up over the ranks.
void TrainStep::forward_backward(bool sum_up) {
  Tape tape;
  Ctx ctx = ctx_;
  ctx.tape = &tape;
  const GradientsComplete complete = [this](Ctx& c, std::int32_t first) {
    gradient_sum_->complete(c, first);
  };
  if (sum_up) {
    gradient_sum_->begin();
    ctx.complete = &complete;
  }
  backward(ctx, mean(ctx, model_.token_losses(ctx, batch_.sequences())));
  if (sum_up) gradient_sum_->finish(ctx);
}

void TrainStep::keep_results(std::int64_t micro) {
  const std::int64_t row = launches_ % kTurn * shape_.accumulation + micro;
  ctx_.launch(Add{{history_.slice(row * kResultFloats, {kResultFloats}), false}, results_});
  marks_[static_cast<std::size_t>(row)]->record();
}

void TrainStep::read_oldest() {
  const std::int64_t count = config_.train.accumulation, first = read_ % kTurn * count;
  const float* row = nullptr;  // at last that of the last micro-batch, behind which the norm is known
  double loss = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    marks_[static_cast<std::size_t>(i)]->wait();
    row = history_.view().as<float>() + i * kResultFloats;
    loss += row[0];
  }
  unasked_.push_back({.loss = static_cast<float>(loss / static_cast<double>(count)),
                      .gradient_norm = row[1],
                      .update_scale = row[2],
                      .loss_scale = row[3]});
  ++read_;
}

StepResults TrainStep::next_result() {
  WEFT_CHECK(read_ < launches_ || !unasked_.empty(),
             "the results of an update were asked for that nobody launched");
  if (unasked_.empty()) read_oldest();
  const StepResults oldest = unasked_.front();
  unasked_.pop_front();
  return oldest;
}

std::vector<StepResults> TrainStep::results() {
  while (read_ < launches_) read_oldest();
  const std::vector<StepResults> all(unasked_.begin(), unasked_.end());
  unasked_.clear();
  return all;
}

void TrainStep::apply_gradients() {
  Ctx ctx = ctx_;
  store_.finish_gradients(ctx);
  update_parameters(ctx, store_, config_.train, communicator_);
}

void TrainStep::update() {
  graphs_->update.run([&] { apply_gradients(); });
}

void TrainStep::run(const BatchSource& source, std::int64_t step, const StepScalars& scalars) {
  set_shape(step_shape(config_, step));
  if (launches_ - read_ == kTurn) read_oldest();
  for (std::int64_t micro = 0; micro < shape_.accumulation; ++micro) {
    prepare(source, step, micro, scalars);
    const bool last = micro + 1 == shape_.accumulation;
    GraphedStep& graph = micro == 0 ? graphs_->first : last ? graphs_->last : graphs_->later;
    graph.run([&] {
      upload();
      if (ctx_.loss_scale) apply_loss_scale();
      if (micro == 0) store_.begin_step();
      forward_backward(last && gradient_sum_);
      if (last) apply_gradients();
    });
    keep_results(micro);
  }
  ++launches_;
  if (step_shape(config_, step + 1).context == shape_.context) read(source, step + 1, 0);
}

}  // namespace weft
