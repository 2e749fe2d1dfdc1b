// SPDX-License-Identifier: MIT
#include "train/bench_ranks/exchange.h"

#include "kernels/diagnostics/timer.h"
#include "src/config/config.h"
#include "train/bench/run_timer.h"
#include "train/program/loaded_model.h"
#include "train/trainer/step.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
namespace {
// eager runs, capture, and replays until clocks and caches have settled
constexpr int64_t kWarmUp = 5;
constexpr int kRounds = 8;  // of a row of each kind

class Lockstep : public Communicator {
 public:
  Lockstep(Device& device, Communicator& communicator)
      : Communicator(communicator.rank(), communicator.size()),
        communicator_(communicator),
        numbers_(*device.pool, {8}, DType::f32, "step") {
    device.zero(numbers_);
  }

  std::string carrier() const override { return communicator_.carrier(); }

  void fork() override {}

  void join() override { communicator_.all_reduce_sum(numbers_); }

  void all_reduce_sum(const TensorView&) override {}

  void reduce_scatter_sum(const TensorView&) override {}

  // A few numbers, which decide what the step does, are gathered.
  void all_gather(const TensorView& t) override {
    if (t.bytes() <= kNumbers) communicator_.all_gather(t);
  }

 private:
  static constexpr int64_t kNumbers = 4096;  // bytes
  Communicator& communicator_;
  Tensor numbers_;
};

class Timed : public Communicator {
 public:
  Timed(Device& device, Communicator& communicator, int64_t* nanoseconds)
      : Communicator(communicator.rank(), communicator.size()),
        device_(device),
        communicator_(communicator),
        nanoseconds_(nanoseconds) {}

  std::string carrier() const override { return communicator_.carrier(); }

  void plan(int64_t bytes, double seconds) override { communicator_.plan(bytes, seconds); }

  void fork() override {
    communicator_.fork();
    overlaps_ = device_.is_cuda();
  }

  void join() override {
    count([&] { communicator_.join(); });
    overlaps_ = false;
  }

  void all_reduce_sum(const TensorView& t) override { all_reduce_sums({&t, 1}); }

  void all_reduce_sums(std::span<const TensorView> tensors) override {
    in_turn([&] { communicator_.all_reduce_sums(tensors); });
  }

  void reduce_scatter_sum(const TensorView& t) override {
    in_turn([&] { communicator_.reduce_scatter_sum(t); });
  }

  void all_gather(const TensorView& t) override {
    in_turn([&] { communicator_.all_gather(t); });
  }

 private:
  void count(const std::function<void()>& waiting) {
    const auto mark = [&](bool ends) {
      std::visit([&](auto& queue) { count_time(queue, nanoseconds_, ends); }, device_.queue);
    };
    mark(false);
    waiting();
    mark(true);
  }

  void in_turn(const std::function<void()>& collective) {
    overlaps_ ? collective() : count(collective);
  }

  Device& device_;
  Communicator& communicator_;
  int64_t* nanoseconds_;
  bool overlaps_ = false;
};

// Memory of the queue for what a row counts.
class Meter {
 public:
  explicit Meter(Device& device)
      : device_(device),
        count_(std::visit([](auto& queue) { return multiprocessors(queue); }, device.queue)),
        began_(*device.pool, {count_ * kReading}, DType::u8, "clocks"),
        ended_(*device.pool, {count_ * kReading}, DType::u8, "clocks"),
        waited_(*device.pool, {kReading}, DType::u8, "clocks") {}

  int64_t* waited() const { return static_cast<int64_t*>(waited_.view().data); }

  // Of `steps` steps of this rank, each.
  KindTimes row(int64_t steps, const std::function<void()>& work) {
    for (const Tensor& t : {began_, ended_, waited_}) device_.zero(t);
    device_.synchronize();
    Stopwatch watch(true);
    read(began_);
    work();
    read(ended_);
    device_.synchronize();
    watch.stop();
    int64_t waited[kReading / sizeof(int64_t)];
    device_.download(waited, waited_);
    const auto count = static_cast<double>(steps);
    const double wait_ms = static_cast<double>(waited[0]) * 1e-6 / count;
    return {watch.seconds() * 1e3 / count, clock_mhz(readings(began_), readings(ended_)), wait_ms,
            wait_ms};
  }

 private:
  static constexpr int64_t kReading = sizeof(ClockReading);

  void read(const Tensor& t) {
    std::visit([&](auto& queue) { read_clocks(queue, static_cast<ClockReading*>(t.view().data)); },
               device_.queue);
  }

  std::vector<ClockReading> readings(const Tensor& t) {
    std::vector<ClockReading> all(count_);
    device_.download(all.data(), t);
    return all;
  }

  Device& device_;
  const int64_t count_;
  const Tensor began_, ended_, waited_;
};

KindTimes of_all_ranks(ProcessGroup& group, const KindTimes& mine) {
  KindTimes all{.least_join_wait_ms = INFINITY};
  for (const std::string& text :
       group.all_gather(str(mine.ms, ' ', mine.clock_mhz, ' ', mine.join_wait_ms))) {
    KindTimes row;
    std::istringstream(text) >> row.ms >> row.clock_mhz >> row.join_wait_ms;
    all.ms += row.ms / group.size();
    all.clock_mhz += row.clock_mhz / group.size();
    all.join_wait_ms += row.join_wait_ms / group.size();
    all.least_join_wait_ms = std::min(all.least_join_wait_ms, row.join_wait_ms);
  }
  return all;
}

struct StepKind {
  TrainStep& step;
  const BatchSource& source;
  std::vector<KindTimes> rows = {};

  void run(int64_t steps) const {
    for (int64_t i = 0; i < steps; ++i) step.run(source, i);
  }

  double median_of(double KindTimes::*value) const {
    std::vector<double> values;
    for (const KindTimes& row : rows) values.push_back(row.*value);
    return median(std::move(values));
  }

  KindTimes times() const {
    return {median_of(&KindTimes::ms), median_of(&KindTimes::clock_mhz),
            median_of(&KindTimes::join_wait_ms), median_of(&KindTimes::least_join_wait_ms)};
  }
};

// In turn, there and back: clocks drift by more than what is measured. All ranks begin a row
// together.
void time_in_turn(Meter& meter, ProcessGroup& group, std::span<StepKind> kinds, int64_t steps) {
  for (StepKind& kind : kinds) meter.row(kWarmUp, [&] { kind.run(kWarmUp); });
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      StepKind& kind = kinds[round % 2 == 0 ? i : kinds.size() - 1 - i];
      group.barrier();
      kind.rows.push_back(of_all_ranks(group, meter.row(steps, [&] { kind.run(steps); })));
    }
  }
}

// The model of one rank, trained by that rank alone on as many sequences as it has of an update of
// all.
class Alone {
 public:
  Alone(Device& device, const Config& of_all, const TokenDataset& data)
      : config_(share_of(of_all)),
        model_(make_model(config_, store_, device)),
        source_(config_, data, config_.data.mix.empty() ? nullptr : &data) {
    store_.allocate(device, dtype_on(device, config_), config_.seed, true,
                    config_.train.ema_decay > 0);
    step_.emplace(device, *model_, store_, config_);
  }

  StepKind kind() { return {*step_, source_}; }

 private:
  static Config share_of(Config config) {
    config.train.batch /= config.ranks;
    config.ranks = 1;
    return config;
  }

  const Config config_;
  ParameterStore store_;
  std::unique_ptr<Model> model_;
  BatchSource source_;
  std::optional<TrainStep> step_;
};

double median_difference(
    const StepKind& a, const StepKind& b,
    const std::function<double(const KindTimes&, const KindTimes&)>& difference) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.rows.size(); ++i)
    differences.push_back(difference(a.rows[i], b.rows[i]));
  return median(differences);
}

// Of the kinds "together", "without" and "alone".
Exchange exchange_of(const GradientSum& sum, std::span<const StepKind> kinds) {
  const auto longer = [](const KindTimes& a, const KindTimes& b) { return a.ms - b.ms; };
  const auto more_cycles = [](const KindTimes& a, const KindTimes& b) {
    return b.clock_mhz > 0 ? a.ms * a.clock_mhz / b.clock_mhz - b.ms : 0;
  };
  return {
      .collectives = sum.collectives(),
      .bytes = sum.bytes(),
      .together = kinds[0].times(),
      .without = kinds[1].times(),
      .alone = kinds[2].times(),
      .exposed_ms = median_difference(kinds[0], kinds[1], longer),
      .wait_ms = median_difference(kinds[1], kinds[2], longer),
      .exposed_cycles_ms = median_difference(kinds[0], kinds[1], more_cycles),
  };
}
}  // namespace

std::unique_ptr<Communicator> make_lockstep(Device& device, Communicator& communicator) {
  return std::make_unique<Lockstep>(device, communicator);
}

std::unique_ptr<Communicator> make_timed(Device& device, Communicator& communicator,
                                         int64_t* nanoseconds) {
  return std::make_unique<Timed>(device, communicator, nanoseconds);
}

Exchange measure_exchange(Device& device, ProcessGroup& group, Communicator& communicator,
                          Model& model, ParameterStore& store, const Config& config,
                          const TokenDataset& data, int64_t steps) {
  const BatchSource source(config, data, config.data.mix.empty() ? nullptr : &data);
  Meter meter(device);
  const auto lockstep = make_lockstep(device, communicator);
  const auto timed = make_timed(device, communicator, meter.waited()),
             timed_lockstep = make_timed(device, *lockstep, meter.waited());
  GradientSum sum(store, *timed, config.train), no_sum(store, *timed_lockstep, config.train);
  TrainStep together(device, model, store, config, &sum),
      without(device, model, store, config, &no_sum);
  Alone alone(device, config, data);
  StepKind kinds[] = {{together, source}, {without, source}, alone.kind()};
  time_in_turn(meter, group, kinds, steps);
  return exchange_of(sum, kinds);
}

std::string exchange_json(const Exchange& e) {
  const auto of_kind = [](const KindTimes& k, const std::string& name) {
    std::string text = str(", \"join_wait_ms", name, "\": ", k.join_wait_ms,
                           ", \"least_join_wait_ms", name, "\": ", k.least_join_wait_ms);
    if (k.clock_mhz > 0) text += str(", \"clock_mhz", name, "\": ", k.clock_mhz);
    return text;
  };
  return str(", \"all_reduces\": ", e.collectives, ", \"all_reduce_bytes\": ", e.bytes,
             ", \"ms_with_sums\": ", e.together.ms, ", \"ms_without_sums\": ", e.without.ms,
             ", \"alone_ms\": ", e.alone.ms, ", \"exposed_ms\": ", e.exposed_ms,
             ", \"wait_ms\": ", e.wait_ms, ", \"scaling\": ", e.scaling(), of_kind(e.together, ""),
             of_kind(e.without, "_without_sums"),
             e.alone.clock_mhz > 0 ? str(", \"clock_mhz_alone\": ", e.alone.clock_mhz) : "",
             e.without.clock_mhz > 0 ? str(", \"exposed_cycles_ms\": ", e.exposed_cycles_ms) : "");
}

std::string exchange_text(const Exchange& e, int64_t ranks) {
  const auto of_kind = [](const char* name, const KindTimes& k) {
    return str("\n            ", name, k.ms, " ms a step",
               k.clock_mhz > 0 ? str(" at ", k.clock_mhz, " MHz: ", k.ms * k.clock_mhz * 1e-3,
                                     " million cycles")
                               : "");
  };
  const auto of_joins = [](const KindTimes& k) {
    return str("; stalled for collectives ", k.join_wait_ms, " ms, the rank that does least ",
               k.least_join_wait_ms, " ms");
  };
  return str("ranks       ", ranks, ": ", e.collectives, " all-reduces of ",
             bytes_text(static_cast<std::size_t>(e.bytes)), " a step, ", e.together.ms,
             " ms in a row; each rank by itself ", e.alone.ms, " ms: scaling ", e.scaling() * 100,
             "%; waiting for the slowest rank ", e.wait_ms, " ms; communication: exposed ",
             e.exposed_ms, " ms",
             e.without.clock_mhz > 0 ? str(", of that cycles ", e.exposed_cycles_ms, " ms") : "",
             of_kind("together      ", e.together), of_joins(e.together),
             of_kind("not reduced   ", e.without), of_joins(e.without),
             of_kind("by itself     ", e.alone));
}
}  // namespace weft
