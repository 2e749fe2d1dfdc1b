// SPDX-License-Identifier: MIT
// Autoregressive sampling. A token depends on the weights, the tokens before it and (seed, sample,
// position) alone: the same seed gives the same text in any batch. Only whether a run has few texts
// or many may change rounding (Model::make_cache).
#pragma once

#include "kernels/sampling/choose_token.h"
#include "models/model.h"
#include "src/processes.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace weft {
struct SampleOptions {
  std::vector<int32_t> prompt = {};  // the same for all samples; or `prompts` below
  int64_t length = 0;                // tokens to add to the prompt
  double temperature = 1;            // logits are divided by it; 0: always the most likely token
  int64_t top_k = 0;                 // only the k most likely tokens; 0: all
  // only the most likely tokens that together reach this probability
  double top_p = 1;
  uint64_t seed = 0;
  int64_t count = 1;   // samples
  int64_t batch = 8;   // samples at a time, at most
  bool cached = true;  // keys and values are kept; otherwise each token costs a whole forward pass
  std::vector<std::vector<int32_t>> prompts = {};  // one for each sample, all of one length
  std::vector<int32_t> conditions =
      {};  // of all samples: rows of the start table, one for
           // each entry of conditions(config) (src/config/conditions.h)
  std::vector<int32_t> positions = {};  // the place of each token of a text, prompt included, for
                                        // texts in another order; empty: 0, 1, 2 ...
  bool graph = true;                    // on a GPU: launches of a position are replayed as one
  int64_t first = 0;                    // number of the first sample: these may be a part of more
  int64_t texts = 0;                    // samples of all processes; 0: first + count
  Processes* group = nullptr;           // whose ranks share the samples out; null: none
  // For a process alone. Asked now and then: no more is wanted of the samples first .. first +
  // count - 1.
  std::function<bool(int64_t first, int64_t count)> ended = {};
  // For one sample: called with its text when that has its length or has ended. Appends what the
  // text goes on with, and `length` more tokens are drawn; or false. The caches are kept.
  std::function<bool(std::vector<int32_t>& text)> next = {};

  int64_t given() const {  // tokens of a prompt
    return static_cast<int64_t>(prompts.empty() ? prompt.size() : prompts[0].size());
  }

  Choice choice() const { return {temperature, top_k, top_p}; }
};

// Throws Error for values that make no sense. A text that is longer than the context goes on in a
// window that moves: when the context is full, its last half is read again as the beginning of a
// text.
void check_sample_options(const SampleOptions&, const ModelConfig&);

struct SampleStats {
  int64_t tokens = 0;              // drawn, all samples
  int64_t positions = 0;           // that the model went through one by one, all batches
  int64_t launches = 0;            // kernels of one position; 0 without a cache
  double seconds = 0;              // of all
  double first_seconds = 0;        // of these, until the first token was there
  double step_seconds = 0;         // of these, for `positions`
  std::size_t cache_bytes = 0;     // of one batch, all that the cache holds
  std::size_t prepared_bytes = 0;  // DecodeCache
  std::vector<CacheUse> cache;     // of one batch, by pattern; empty without a cache

  double position_ms() const {
    return 1e3 * step_seconds / static_cast<double>(positions > 0 ? positions : 1);
  }
};

// Called for each token drawn, by position and then by sample: sample, position in its text (the
// prompt is 0 .. given() - 1), token. Tokens may come some positions late.
using OnToken = std::function<void(int64_t, int64_t, int32_t)>;
// Called now and then: positions done and to do, all batches (of this rank).
using OnPositions = std::function<void(int64_t, int64_t)>;
// With a group a collective: every rank draws a part, and rank 0 hands out all tokens at the end.
SampleStats sample(Device&, Model&, const ModelConfig&, const SampleOptions&, const OnToken&,
                   const OnPositions& = {});

// Reads the first `count` tokens of each row of `tokens` (rows, columns), on the host, into a cache
// of so many rows: a pass for each text, which equal neighbours share. `sequences` makes the input
// of one text of a length that is at most `context`. The bits of a text depend on that text alone.
void read_prompts(Device&, Ctx&, Model&, DecodeCache&, const std::vector<int32_t>& tokens,
                  int64_t rows, int64_t count, int64_t context,
                  const std::function<Sequences(int64_t length)>& sequences);

// Samples at a time: all of them, or as many as have room for their caches.
int64_t batch_that_fits(Device&, Model&, const ModelConfig&, const SampleOptions&);

// Keys read for a token, mean over heads and positions first .. last - 1, and with dense attention.
struct KeysRead {
  double pattern = 0, dense = 0;
};

KeysRead keys_read(const AttentionPattern&, int heads, int64_t first, int64_t last);

// What `sample --stats` prints of `length` tokens behind `given` ones: speed, and keys and cache of
// each pattern. Keys are those of the first window that is drawn into.
std::string stats_text(const SampleStats&, int64_t given, int64_t length, int64_t context);

// How tokens below `vocab` are written: as bytes, or as numbers separated by spaces. More than 256
// are always numbers.
struct TextForm {
  TextForm(int64_t tokens, bool as_numbers = false)  // NOLINT: a vocabulary has its form
      : vocab(tokens),
        numbers(as_numbers || tokens > 256) {}

  int64_t vocab;
  bool numbers;
};

// Throws Error, which says of what the tokens are ("prompt").
std::vector<int32_t> text_to_tokens(const std::string& text, TextForm,
                                    const std::string& what = "prompt");
std::string token_to_text(int32_t token, TextForm);
}  // namespace weft
