// SPDX-License-Identifier: MIT
// Images drawn by a model, or completed by it from their upper rows.
#pragma once

#include "train/program/loaded_model.h"
#include "train/sampling/sample_run.h"

namespace weft {

// Whether this is a model of images whose tokens are brightnesses: rows, columns and channels are its
// context.
bool draws_images(const Config&);

// Writes the grid and the single images that `arguments` name.
void sample_images(const SampleArguments&, LoadedModel&, Progress&);

}  // namespace weft
