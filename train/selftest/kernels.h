// SPDX-License-Identifier: MIT
// What `selftest` checks of the kernels, on any device.
#pragma once

#include "train/selftest/case.h"

namespace weft {

class Device;

// Forward and backward of every form that covers the case, against the definition in f64: an error of at most
// twice that of the plain computation in the same type, plus a floor; rows that see nothing; equal bits of
// two runs; nothing written beside. Decoding against the forward pass where the pattern is causal. `only`, if
// not automatic: that form and no decoding. Returns the forms that ran, none where `only` does not cover the
// case; throws an Error that names the first disagreement.
std::vector<AttentionForm> check_kernels(Device&, const SelftestCase&,
                                         AttentionForm only = AttentionForm::automatic);

}  // namespace weft
