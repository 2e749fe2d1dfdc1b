// SPDX-License-Identifier: MIT
// The classes of a pickle: what numpy needs to say that these bytes are an array of such elements.
#include <algorithm>
#include <array>
#include <limits>

#include "data/formats/pickle/pickle_reader.h"

namespace weft {

using Kind = PickleValue::Kind;

namespace {

constexpr std::size_t kMostAxes = 32;

// The classes and functions that numpy's arrays need: as pickles name them, as they are known here. Modules
// moved under numpy._core in numpy 2.
constexpr std::array<std::array<std::string_view, 2>, 9> kGlobals{{
    {"numpy.core.multiarray _reconstruct", "reconstruct"},
    {"numpy._core.multiarray _reconstruct", "reconstruct"},
    {"numpy.core.numeric _frombuffer", "frombuffer"},
    {"numpy._core.numeric _frombuffer", "frombuffer"},
    {"numpy ndarray", "ndarray"},
    {"numpy dtype", "dtype"},
    {"_codecs encode", "encode"},
    {"__builtin__ bytes", "bytes"},  // bytes(), which Python 3 writes for b"" up to protocol 2
    {"builtins bytes", "bytes"},
}};

}  // namespace

void PickleReader::push_global(std::string_view module, std::string_view name) {
  const std::string full = str(module, " ", name);
  for (const auto& [known, meaning] : kGlobals)
    if (full == known) return push_text(Kind::other, meaning);
  std::string shown;
  for (const char c : full.substr(0, 100)) shown += c >= ' ' && c <= '~' ? c : '?';
  std::replace(shown.begin(), shown.end(), ' ', '.');
  bad(str("it names ", shown, "; only numpy arrays and plain values are read, nothing is ever run"));
}

const PickleValue& PickleReader::item(const PickleValue& tuple, std::size_t index, Kind kind,
                                      const char* what) const {
  if (index >= tuple.items.size() || tuple.items[index]->kind != kind)
    bad(str(what, ": expected ", name_of(kind), " as item ", index));
  return *tuple.items[index];
}

void PickleReader::reduce(const PickleValue& function, const PickleValue& arguments) {
  if (function.text == "encode") return push_encoded(arguments);
  if (function.text == "dtype") return push_dtype(arguments);
  if (function.text == "bytes") {
    require(arguments.items.empty(), "bytes() of something");
    return push_text(Kind::bytes, {});
  }
  if (function.text == "reconstruct") {
    require(item(arguments, 0, Kind::other, "_reconstruct").text == "ndarray", "an array of another class");
    auto& array = value(push(Kind::array)).array = std::make_unique<PickledArray>();
    array->array.item = 0;  // filled by its state
    return;
  }
  require(function.text == "frombuffer", "a call of a class that data does not need");
  const PickleValue& data = item(arguments, 0, Kind::bytes, "_frombuffer");
  const PickleValue& order = item(arguments, 3, Kind::text, "_frombuffer");
  require(order.text == "C" || order.text == "F", "_frombuffer: an order other than C and F");
  auto& array = value(push(Kind::array)).array = std::make_unique<PickledArray>();
  fill(*array, item(arguments, 2, Kind::tuple, "_frombuffer"), item(arguments, 1, Kind::other, "_frombuffer"),
       order.text == "F", data.text);
}

// _codecs.encode(text, "latin1"): how Python 3 writes bytes up to protocol 2.
void PickleReader::push_encoded(const PickleValue& arguments) {
  const std::string_view text = item(arguments, 0, Kind::text, "_codecs.encode").text;
  require(arguments.items.size() == 2 && item(arguments, 1, Kind::text, "_codecs.encode").text == "latin1",
          "_codecs.encode: expected latin1");
  decoded_bytes_ += text.size();
  require(decoded_bytes_ <= bytes_.size(), "a text is encoded again and again");
  std::string& bytes = pickle_.decoded_.emplace_back();
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      bytes += text[i];
      continue;
    }
    const auto second = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    require((first == 0xc2 || first == 0xc3) && (second & 0xc0) == 0x80, "a text is not latin1 in UTF-8");
    bytes += static_cast<char>((first & 3) << 6 | (second & 0x3f));
    ++i;
  }
  push_text(Kind::bytes, bytes);
}

// dtype("u1", align, copy): kind and size stand in `text`; the byte order follows in its state.
void PickleReader::push_dtype(const PickleValue& arguments) {
  require(!arguments.items.empty(), "dtype without a name");
  const PickleValue& name = *arguments.items[0];
  require(name.kind == Kind::text || name.kind == Kind::bytes, "dtype without a name");
  for (const std::string_view known : {"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "f2", "f4", "f8"})
    if (name.text == known) return push_text(Kind::other, known);
  bad("an array of elements that are not bool, int8 to int64, uint8 to uint32 or floats; in numpy: "
      "a.astype(numpy.uint8)");
}

void PickleReader::build(PickleValue& object, const PickleValue& state) {
  require(state.kind == Kind::tuple, "a state that is no tuple");
  if (object.kind == Kind::other && object.text.size() == 2) return set_byte_order(object, state);
  require(object.kind == Kind::array, "a state for what is no array");
  require(object.array->array.item == 0, "an array is filled twice");
  const char* what = "the state of an array";  // (version, shape, dtype, Fortran order, data)
  const PickleValue& shape = item(state, 1, Kind::tuple, what);
  const PickleValue& dtype = item(state, 2, Kind::other, what);
  require(state.items.size() == 5, "the state of an array: expected 5 items");
  const PickleValue& fortran = *state.items[3];
  require(fortran.kind == Kind::boolean || fortran.kind == Kind::integer, "the state of an array: no order");
  fill(*object.array, shape, dtype, fortran.integer != 0, item(state, 4, Kind::bytes, what).text);
}

// (version, "<" or "|", ...): a plain element type of a little-endian machine.
void PickleReader::set_byte_order(PickleValue& dtype, const PickleValue& state) {
  require(state.items.size() >= 5, "the state of a dtype: expected 5 items or more");
  const PickleValue& order = *state.items[1];
  require(order.kind == Kind::text || order.kind == Kind::bytes, "the state of a dtype: no byte order");
  require(order.text == "<" || order.text == "|" || dtype.text[1] == '1',
          "an array in big-endian order; in numpy: a.astype(a.dtype.newbyteorder('<'))");
  for (const std::size_t k : {2, 3, 4})
    require(state.items[k]->kind == Kind::none, "an array of structures, expected numbers");
}

void PickleReader::fill(PickledArray& into, const PickleValue& shape, const PickleValue& dtype,
                        bool column_major, std::string_view data) {
  require(dtype.text.size() == 2, "an array without a dtype");
  NpyArray& array = into.array;
  array.kind = dtype.text[0];
  array.item = dtype.text[1] - '0';
  if (shape.items.size() > kMostAxes) bad(str("an array of more than ", kMostAxes, " axes"));
  std::int64_t bytes = array.item;
  for (std::size_t k = 0; k < shape.items.size(); ++k) {
    const std::int64_t size = item(shape, k, Kind::integer, "the shape of an array").integer;
    require(size >= 0, "an array of a negative size");
    if (size > 0 && bytes > std::numeric_limits<std::int64_t>::max() / size)
      bad("an array of more than 2^63 bytes");
    bytes *= size;
    array.shape.push_back(size);
  }
  if (static_cast<std::uint64_t>(bytes) != data.size())
    bad(str("an array should have ", bytes, " bytes and has ", data.size()));
  array.data = data;
  into.column_major = column_major;
}

}  // namespace weft
