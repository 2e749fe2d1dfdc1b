// SPDX-License-Identifier: MIT
// What `selftest` checks without a kernel: everything that is made from a pattern says the same as its
// predicate. Each throws an Error that names the first disagreement.
#pragma once

#include "train/selftest/case.h"

namespace weft {

// key_runs() and keys_of() name the keys of attends(), each once; causal patterns no later ones; heads of a
// group are equal.
void check_enumeration(const SelftestCase&);
// The tile maps, as a kernel reads them, hold each attended pair once, in both directions, over all passes.
void check_tile_maps(const SelftestCase&);
// The rows of the sampling cache: every key is where it is looked for when it is read.
void check_cache_rows(const SelftestCase&);
// The connectivity matrix that `inspect` draws.
void check_picture(const SelftestCase&);

}  // namespace weft
