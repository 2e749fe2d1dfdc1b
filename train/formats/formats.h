// SPDX-License-Identifier: MIT
// The rows that the part formats adds to the tables of the programs.
#pragma once

#include "train/program/prepare_commands.h"

namespace weft {
AddPrepareCommands prepare_formats();
}  // namespace weft
