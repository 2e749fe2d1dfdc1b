// SPDX-License-Identifier: MIT
// The work of the program `sample`.
#pragma once

#include "train/program/loaded_model.h"
#include "train/sampling/extension.h"
#include "train/sampling/sampler.h"

#include <memory>
#include <string>
#include <vector>

namespace weft {
struct SampleArguments {
  std::string checkpoint, prompt, prompt_file, out, device = "auto";  // out: text, .png or .wav
  std::string weights;  // "ema", "last"; "": ema where it was kept
  SampleOptions options;
  int64_t batch = 0;  // 0: as many as have room
  bool stats = false, json = false, tokens = false;
  std::string stop;          // texts end before it
  bool interactive = false;  // a person types what a text goes on with
  std::vector<std::shared_ptr<SampleExtension>> extensions = {};  // of parts
};

// Text to `text` or the file --out, other samples to files (of rank 0), the rest to `notes`.
// Collective.
void run_sample(SampleArguments, Processes&, std::ostream& text, Progress& notes);

// ---- for samples that are no text ----

// Throws Error for a number of samples for which no memory should be taken.
void check_count(int64_t count, int64_t of_each = 1);
OnPositions bar(Progress&);  // for as long as it takes
void choose_batch(SampleArguments&, LoadedModel&);
// What --stats and --json ask for. `options`: of the samples that were drawn.
void note_speed(const SampleArguments&, const SampleOptions& options, const SampleStats&,
                const ModelConfig&, Progress& notes);
// Throws Error where an option of texts is set; `kind`: what is sampled instead.
void refuse_text_options(const SampleArguments&, const char* kind);
std::string ending_of(const std::string& path);  // in small letters: ".png"
bool is_sound_ending(const std::string& ending);
// Throws Error where --out ends as a file of another kind does. `own`: the ending of this `kind`.
void check_ending(const std::string& out, const std::string& own, const char* kind);
}  // namespace weft
