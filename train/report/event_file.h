// SPDX-License-Identifier: MIT
#pragma once

#include "train/trainer/run_folder.h"

#include <string>

namespace weft {
// Numbers of training for TensorBoard: Events (tensorflow/core/util/event.proto) in the wire format
// of protocol buffers, each framed by its length and two masked CRC-32C (tensorflow/core/lib/io).
class EventFile {
 public:
  // A new file in <folder>/tensorboard; TensorBoard joins it with those of earlier starts. Throws
  // Error.
  explicit EventFile(const std::string& folder);
  // The numbers of a logged step. Throws Error when the disk takes them not.
  void append(const StepMetrics&) const;

 private:
  void write(const std::string& event) const;

  std::string path_;
};
}  // namespace weft
