// SPDX-License-Identifier: MIT
// What a parsed pickle holds.
#include "data/formats/pickle/pickle.h"

#include "data/formats/pickle/pickle_reader.h"

namespace weft {

const char* name_of(PickleValue::Kind kind) {
  switch (kind) {
    case PickleValue::Kind::none: return "none";
    case PickleValue::Kind::boolean: return "a boolean";
    case PickleValue::Kind::integer: return "an integer";
    case PickleValue::Kind::real: return "a real number";
    case PickleValue::Kind::bytes: return "bytes";
    case PickleValue::Kind::text: return "a text";
    case PickleValue::Kind::list: return "a list";
    case PickleValue::Kind::tuple: return "a tuple";
    case PickleValue::Kind::dict: return "a dict";
    case PickleValue::Kind::array: return "an array";
    case PickleValue::Kind::other: return "a class";
  }
  return "?";
}

const PickleValue* PickleValue::find(std::string_view key) const {
  if (kind != Kind::dict) return nullptr;
  for (std::size_t k = items.size(); k >= 2; k -= 2) {  // the last of equal keys counts
    const PickleValue& there = *items[k - 2];
    if ((there.kind == Kind::text || there.kind == Kind::bytes) && there.text == key) return items[k - 1];
  }
  return nullptr;
}

std::string row_major_bytes(const PickledArray& a) {
  const NpyArray& array = a.array;
  std::string out(array.data);
  const std::size_t axes = array.shape.size();
  if (!a.column_major || axes < 2 || out.empty()) return out;
  std::vector<std::size_t> stride(axes, static_cast<std::size_t>(array.item));  // in the data, in bytes
  for (std::size_t k = 1; k < axes; ++k)
    stride[k] = stride[k - 1] * static_cast<std::size_t>(array.shape[k - 1]);
  std::vector<std::int64_t> index(axes, 0);
  const auto item = static_cast<std::size_t>(array.item);
  std::size_t from = 0;
  for (std::size_t to = 0; to < out.size(); to += item) {
    array.data.copy(&out[to], item, from);
    for (std::size_t k = axes; k-- > 0;) {
      from += stride[k];
      if (++index[k] < array.shape[k]) break;
      from -= stride[k] * static_cast<std::size_t>(array.shape[k]);
      index[k] = 0;
    }
  }
  return out;
}

std::vector<std::int64_t> pickled_integers(const PickleValue& value, const std::string& where,
                                           const std::string& what) {
  std::vector<std::int64_t> integers;
  if (value.kind == PickleValue::Kind::array) {
    const NpyArray& array = value.array->array;
    if (array.shape.size() != 1 || array.kind == 'f')
      fail(str(where, ": ", what, " is an array of ", array.shape.size(), " axes and kind '", array.kind,
               "', expected integers on one axis"));
    for (std::int64_t i = 0; i < array.size(); ++i) integers.push_back(array.value(i));
    return integers;
  }
  if (value.kind != PickleValue::Kind::list && value.kind != PickleValue::Kind::tuple)
    fail(str(where, ": ", what, " is ", name_of(value.kind), ", expected a list of integers"));
  for (const PickleValue* item : value.items) {
    if (item->kind != PickleValue::Kind::integer)
      fail(str(where, ": item ", integers.size(), " of ", what, " is ", name_of(item->kind),
               ", expected an integer"));
    integers.push_back(item->integer);
  }
  return integers;
}

bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

Pickle parse_pickle(std::string_view bytes, const std::string& where) {
  if (!is_pickle(bytes)) fail(str(where, ": is no pickle of protocol 2 to 5"));
  return PickleReader(bytes, where).read();
}

}  // namespace weft
