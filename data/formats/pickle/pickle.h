// SPDX-License-Identifier: MIT
// Python's pickles (protocols 2 to 5), as far as data sets use them: plain values and numpy arrays. Nothing
// is ever executed: a class or function other than those of numpy's arrays, or an opcode that plain data does
// not need, is an Error that names it and its place. Whatever the bytes are, memory stays within a small
// multiple of them, and the values make a tree without cycles.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/files/npy.h"

namespace weft {

struct PickledArray {
  NpyArray array;             // kind also 'f'; data in the order that `column_major` says
  bool column_major = false;  // Fortran order
};
// The elements in row-major order, array.item bytes each.
std::string row_major_bytes(const PickledArray&);

struct PickleValue {
  // other: a class or type of numpy, which only means something inside an array
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    bytes,
    text,
    list,
    tuple,
    dict,
    array,
    other
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;               // of boolean and integer
  double real = 0;                        // of real
  std::string_view text;                  // of bytes and text (UTF-8); Python 2's str is bytes
  std::vector<const PickleValue*> items;  // of list and tuple; of dict: key, value, key, value ...
  std::unique_ptr<PickledArray> array;    // of array
  // The value of a dict whose key is this text or these bytes; null when there is none, or no dict.
  const PickleValue* find(std::string_view key) const;
};
const char* name_of(PickleValue::Kind);

// A parsed pickle. Texts and arrays lie in the bytes that were parsed, which must outlive it.
class Pickle {
 public:
  const PickleValue& root() const { return *root_; }

 private:
  friend class PickleReader;
  std::deque<PickleValue> values_;
  std::deque<std::string> decoded_;  // bytes that the pickle holds in another encoding
  const PickleValue* root_ = nullptr;
};

bool is_pickle(std::string_view bytes);  // by the protocol in the first two
// `where` is what errors name as the file.
Pickle parse_pickle(std::string_view bytes, const std::string& where);

// Labels: a list or tuple of integers, or an array of them with one axis; an Error names `what`.
std::vector<std::int64_t> pickled_integers(const PickleValue&, const std::string& where,
                                           const std::string& what);

}  // namespace weft
