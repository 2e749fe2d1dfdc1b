// SPDX-License-Identifier: MIT
#include "src/graph.h"

#ifdef WEFT_CUDA
#include "src/cuda/graph.h"
#endif

namespace weft {

#ifdef WEFT_CUDA

struct GraphedStep::State {
  static constexpr int kEagerCalls = 2;
  Device& device;
  bool enabled;
  int calls = 0;
  CudaGraph graph;
  bool captured = false;

  State(Device& d, bool on) : device(d), enabled(on && d.is_cuda()) {}
  State& operator=(State&&) = delete;  // nor copied
  ~State() {
    if (captured) device.pool->release_graph();
  }

  // Puts the pool back as it was, whatever `work` throws.
  struct GraphSide {
    MemoryPool& pool;
    GraphSide(MemoryPool& p, bool frozen) : pool(p) {
      pool.use_graph_side(true);
      pool.freeze(frozen);
    }
    ~GraphSide() {
      pool.use_graph_side(false);
      pool.freeze(false);
    }
  };

  void run(const std::function<void()>& work) {
    if (!enabled) return work();
    CudaQueue& queue = std::get<CudaQueue>(device.queue);
    if (captured) return graph.launch(queue);
    {
      const GraphSide side(*device.pool, calls == kEagerCalls);
      if (calls < kEagerCalls) {
        work();
        ++calls;
        return;
      }
      graph.capture(queue, work);
    }
    captured = true;
    device.pool->hold_graph();
    graph.launch(queue);
  }
};

#else

struct GraphedStep::State {
  static constexpr bool captured = false;
  State(Device&, bool) {}
  void run(const std::function<void()>& work) { work(); }
};

#endif

GraphedStep::GraphedStep(Device& device, bool enabled) : state_(std::make_unique<State>(device, enabled)) {}
GraphedStep::~GraphedStep() = default;
GraphedStep::GraphedStep(GraphedStep&&) noexcept = default;
void GraphedStep::run(const std::function<void()>& work) { state_->run(work); }
bool GraphedStep::replaying() const { return state_->captured; }

}  // namespace weft
