// SPDX-License-Identifier: MIT
#include "train/trainer/data_parallel.h"

#include "src/parts/parts.h"

#include <memory>

namespace weft {
namespace {
MakeDataParallel& for_several() {
  static MakeDataParallel make = nullptr;
  return make;
}
}  // namespace

void set_data_parallel(MakeDataParallel make) { for_several() = make; }

std::unique_ptr<DataParallel> make_data_parallel(Device& device, Processes& processes) {
  register_parts();
  if (processes.size() == 1) return std::make_unique<DataParallel>();
  WEFT_CHECK(for_several(), "training of several processes comes with a part");
  return for_several()(device, processes);
}
}  // namespace weft
