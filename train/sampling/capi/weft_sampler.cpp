// SPDX-License-Identifier: MIT
#include "train/sampling/capi/weft_sampler.h"

#include "src/capi/errors.h"
#include "src/config/conditions.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/files/hdf5.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace weft::capi {
struct SharedModel {
  std::unique_ptr<LoadedModel> loaded;
  std::mutex mutex;  // texts share its queue and memory
};
}  // namespace weft::capi

using namespace weft;
using namespace weft::capi;

struct weft_sampler {
  std::shared_ptr<SharedModel> model;
};

struct weft_sampler_text {
  std::shared_ptr<SharedModel> model;
  int64_t batch, length;
  int64_t size = 0;             // tokens of each text
  int64_t done = 0;             // positions that the model went through
  std::vector<int32_t> tokens;  // (batch, length)
  Sequences sequences;
  std::unique_ptr<DecodeCache> cache;
  GraphedStep graph;
  Tensor logits;  // (batch, vocab) of position done - 1

  weft_sampler_text(std::shared_ptr<SharedModel> shared, int64_t batch_, int64_t length_)
      : model(std::move(shared)),
        batch(batch_),
        length(length_),
        tokens(static_cast<std::size_t>(batch * length)),
        sequences{Tensor(*device().pool, {batch, length}, DType::i32, "sampling")},
        cache(model->loaded->model->make_cache(device(), batch, length)),
        graph(device(), true) {}

  Device& device() const { return *model->loaded->device; }

  const ModelConfig& config() const { return model->loaded->config.model; }

  // Memory of the device goes back while no other text computes.
  void free() {
    const auto shared = model;
    const std::lock_guard lock(shared->mutex);
    delete this;
  }
};

namespace {
std::unique_ptr<weft_sampler> open(const char* path, int32_t device) {
  require(path != nullptr, "path is NULL");
  require(device >= WEFT_CPU, "device must be WEFT_CPU = -1 or the number of a CUDA device, got ",
          device);
  static std::mutex files;  // HDF5 is not for several threads
  const std::lock_guard lock(files);
  may_fork = false;  // numpy's threads and CUDA have handlers that fork() calls
  auto model = std::make_shared<SharedModel>();
  model->loaded = load_model(path, device == WEFT_CPU ? "cpu" : str("cuda:", device));
  if (const auto told = conditions(model->loaded->config); !told.empty())
    unsupported(path,
                ": this model is told of each sequence: ", joined(told, ", ", &Condition::name),
                "; use the program `sample`");
  return std::make_unique<weft_sampler>(std::move(model));
}

std::unique_ptr<weft_sampler_text> open_text(const weft_sampler* sampler, int64_t batch,
                                             int64_t length) {
  require(sampler != nullptr, "sampler is NULL");
  const int64_t context = sampler->model->loaded->config.model.context;
  if (length == 0) length = context;
  require(length > 0 && length <= context, "length must be 1 to the context = ", context,
          ", or 0 for the context, got ", length);
  require(batch > 0 && batch <= kMaxPositions / length, "batch must be 1 to ",
          kMaxPositions / length, " for texts of ", length, " positions, got ", batch);
  const std::lock_guard lock(sampler->model->mutex);
  return std::make_unique<weft_sampler_text>(sampler->model, batch, length);
}

void feed(weft_sampler_text& text, const int32_t* tokens, int64_t count) {
  require(count >= 0, "count must be 0 or more, got ", count);
  require(count == 0 || tokens != nullptr, "tokens is NULL");
  require(count < text.length - text.size, "a text of ", text.length, " positions has at most ",
          text.length - 1, " tokens: it has ", text.size, ", got ", count, " more");
  const int64_t vocab = text.config().vocab;
  for (int64_t i = 0; i < text.batch * count; ++i)
    require(tokens[i] >= 0 && tokens[i] < vocab, "tokens[", i, "] is ", tokens[i],
            ", the model knows 0 to ", vocab - 1);
  for (int64_t b = 0; b < text.batch; ++b)
    std::copy_n(tokens + b * count, count, text.tokens.begin() + b * text.length + text.size);
  text.size += count;
}

void read_logits(weft_sampler_text& text, float* logits) {
  require(logits != nullptr, "logits is NULL");
  const std::lock_guard lock(text.model->mutex);
  Model& model = *text.model->loaded->model;
  Ctx ctx = text.model->loaded->inference();
  ctx.batch_invariant = true;
  text.device().upload(text.sequences.tokens, text.tokens.data());
  if (text.done == 0 && text.size > 0) {
    read_prompts(
        text.device(), ctx, model, *text.cache, text.tokens, text.batch, text.size,
        text.config().context, [&](int64_t length) {
          return Sequences{Tensor(*text.device().pool, {1, length}, DType::i32, "sampling")};
        });
    text.done = text.size;
  }
  for (; text.done <= text.size; ++text.done) {  // position `size` is that of the next token
    text.cache->seek(text.done);
    text.graph.run([&] { text.logits = model.decode_step(ctx, *text.cache, text.sequences); });
  }
  const std::vector<double> values = to_host(text.device(), text.logits.view());
  if (!std::ranges::all_of(values, [](double x) { return std::isfinite(x); }))
    unsupported("logits: not all are finite: the weights are damaged, or training diverged");
  std::ranges::copy(values, logits);
}
}  // namespace

int weft_sampler_version(void) { return WEFT_SAMPLER_VERSION; }

const char* weft_sampler_last_error(void) { return last_error(); }

weft_status weft_sampler_open(const char* path, int32_t device, weft_sampler** sampler) {
  return create("sampler", sampler, [&] { return open(path, device); });
}

void weft_sampler_close(weft_sampler* sampler) { delete sampler; }

weft_status weft_sampler_get_info(const weft_sampler* sampler, weft_sampler_info* info) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(sampler != nullptr, "sampler is NULL");
    checked_struct("info", info);
    const LoadedModel& loaded = *sampler->model->loaded;
    *info = {info->size, loaded.config.model.vocab, loaded.config.model.context, loaded.state.step,
             loaded.ema ? 1 : 0};
  });
}

weft_status weft_sampler_text_open(const weft_sampler* sampler, int64_t batch, int64_t length,
                                   weft_sampler_text** text) {
  return create("text", text, [&] { return open_text(sampler, batch, length); });
}

void weft_sampler_text_close(weft_sampler_text* text) {
  if (text) text->free();
}

weft_status weft_sampler_text_feed(weft_sampler_text* text, const int32_t* tokens, int64_t count) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(text != nullptr, "text is NULL");
    feed(*text, tokens, count);
  });
}

weft_status weft_sampler_text_logits(weft_sampler_text* text, float* logits) {
  return guarded(WEFT_UNSUPPORTED, [&] {
    require(text != nullptr, "text is NULL");
    read_logits(*text, logits);
  });
}
