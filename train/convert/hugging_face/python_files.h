// SPDX-License-Identifier: MIT
// Files of src/python/weft_attention, which CMake puts into the program (hugging_face.cmake).
#pragma once

namespace weft {
struct PythonFile {
  const char *name, *text;
};

extern const PythonFile python_files[2];
}  // namespace weft
