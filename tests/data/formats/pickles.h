// SPDX-License-Identifier: MIT
// Pickles built by hand, opcode by opcode.
#pragma once

#include <string>

#include "tests/data/formats/archives.h"

namespace weft {

inline std::string op(int code, const std::string& rest = "") { return static_cast<char>(code) + rest; }
inline std::string str2(const std::string& s) {
  return op('U', little_endian(s.size(), 1) + s);
}  // Python 2's str
inline std::string protocol(int version) { return op(0x80, op(version)); }

// A numpy array of bytes as Python 2 pickles it.
inline std::string array2(const std::string& shape, const std::string& data, int fortran = 0x89,
                          const std::string& type = "u1", const std::string& order = "|") {
  const std::string none = "N", minus_one = op('J', little_endian(0xffffffff, 4));
  return op('c', "numpy.core.multiarray\n_reconstruct\n") + "q\5" + op('c', "numpy\nndarray\n") + "q\6" +
         op('K', little_endian(0, 1)) + op(0x85) + str2("b") + op(0x87) + "R" + "(" + op('K', "\1") + shape +
         op('c', "numpy\ndtype\n") + str2(type) + op('K', little_endian(0, 1)) + op('K', "\1") + op(0x87) +
         "R" + "(" + op('K', "\3") + str2(order) + none + none + none + minus_one + minus_one +
         op('K', little_endian(0, 1)) + "t" + "b" + op(fortran) +
         op('T', little_endian(data.size(), 4) + data) + "t" + "b";
}
inline std::string shape2(int rows, int columns) {
  return op('K', little_endian(static_cast<std::uint64_t>(rows), 1)) + op('M', little_endian(columns, 2)) +
         op(0x86);
}

}  // namespace weft
