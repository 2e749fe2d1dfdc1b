// SPDX-License-Identifier: MIT
#include "src/convert/safetensors.h"

#include "src/files/files.h"
#include "src/files/hdf5.h"

#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr int64_t kMost = int64_t{1} << 48;  // bytes, elements, steps
constexpr std::size_t kLength = 8;           // bytes of the number before the header
constexpr int kDeepest = 8;
constexpr const char* kMetadata = "__metadata__";

struct Array {
  int64_t begin = 0, end = 0;  // bytes behind the header
  DType dtype = DType::f32;
  std::string name;
  Shape shape;
};

// What these throw lacks the path, and the array that it is about.

template <class... Text>
void expect(bool condition, const Text&... text) {
  if (!condition) throw Error(str(text...));
}

// Refuses keys that stand twice in an object, which the library would let pass, and deep nesting.
json parse_header(const char* begin, const char* end) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    expect(depth <= kDeepest, "nested too deep");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      expect(keys.back().insert(parsed.get<std::string>()).second, "has ",
             parsed.get<std::string>(), " twice");
    return true;
  };
  json header = json::parse(begin, end, watch);
  expect(header.is_object(), "is no JSON object");
  return header;
}

int64_t whole_number(const json& value, int64_t most) {
  expect(value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most),
         "expected a whole number up to ", most, ", found ", value.dump());
  return value.get<int64_t>();
}

Array array_of(const std::string& name, const json& entry, int64_t data_bytes) {
  expect(entry.is_object() && entry.size() == 3, "expected dtype, shape and data_offsets, found ",
         entry.dump());
  Array array{.name = name, .shape = {}};
  const std::string dtype = entry.at("dtype").get<std::string>();
  expect(dtype == "F32" || dtype == "BF16", "dtype ", dtype, ", expected F32 or BF16");
  array.dtype = dtype == "F32" ? DType::f32 : DType::bf16;
  int64_t size = 1;
  for (const json& axis : entry.at("shape").get_ref<const json::array_t&>()) {
    array.shape.push_back(whole_number(axis, kMost));
    expect(array.shape.back() > 0 && size <= kMost / array.shape.back(), "shape ",
           entry.at("shape").dump(), ", expected 1 to ", kMost, " elements");
    size *= array.shape.back();
  }
  const json::array_t& offsets = entry.at("data_offsets").get_ref<const json::array_t&>();
  expect(offsets.size() == 2, "data_offsets, expected begin and end");
  array.begin = whole_number(offsets[0], data_bytes);
  array.end = whole_number(offsets[1], data_bytes);
  expect(array.end - array.begin == size * size_of(array.dtype), "data_offsets ",
         entry.at("data_offsets").dump(), " for ", shape_text(array.shape), " in ", dtype);
  return array;
}

std::string metadata(const json& header, const char* key) {
  expect(header.contains(kMetadata) && header.at(kMetadata).contains(key), "has no ", key,
         ": weft did not write it");
  return header.at(kMetadata).at(key).get<std::string>();
}

// The metadata into `weights`; the arrays, which fill the data in order. `where`: what is at fault.
std::vector<Array> read_header(const std::vector<char>& bytes, WeightsFile& weights,
                               std::size_t& begin, std::string& where) {
  uint64_t length = 0;
  expect(bytes.size() >= kLength, "would begin behind the ", bytes.size(), " bytes of the file");
  std::memcpy(&length, bytes.data(), kLength);
  expect(length <= bytes.size() - kLength, "would have ", length, " bytes, the file has ",
         bytes.size());
  begin = kLength + length;
  const auto data_bytes = static_cast<int64_t>(bytes.size() - begin);
  const json header = parse_header(bytes.data() + kLength, bytes.data() + begin);
  std::vector<Array> arrays;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) continue;
    where = name;
    arrays.push_back(array_of(name, entry, data_bytes));
  }
  std::ranges::sort(arrays, {}, &Array::begin);
  int64_t end = 0;
  for (const Array& array : arrays) {
    where = array.name;
    expect(array.begin == end, "begins at byte ", array.begin,
           " of the data, the array before it ends at ", end);
    end = array.end;
  }
  where = "the data";
  expect(end == data_bytes, "has ", data_bytes, " bytes, the arrays have ", end);
  where = kMetadata;
  weights.config = metadata(header, "weft.config");
  weights.step = whole_number(json::parse(metadata(header, "weft.step")), kMost);
  weights.ema = metadata(header, "weft.weights") == "ema";
  return arrays;
}

// `count` numbers of one type as another.
template <class To, class From>
std::vector<To> converted(const void* values, std::size_t count) {
  std::vector<From> from(count);
  std::memcpy(from.data(), values, count * sizeof(From));
  std::vector<To> to(count);
  std::ranges::transform(from, to.begin(), [](From x) { return To(x); });
  return to;
}
}  // namespace

WeightsFile safetensors_weights(const std::string& path) {
  WeightsFile weights{.path = path, .config = ""};
  const auto bytes = std::make_shared<const std::vector<char>>(read_input(path, kMost));
  std::size_t begin = 0;
  std::string where = "the header";
  std::map<std::string, Array> arrays;
  try {
    for (const Array& array : read_header(*bytes, weights, begin, where)) {
      weights.shapes[array.name] = array.shape;
      arrays[array.name] = array;
    }
  } catch (const std::exception& e) {
    fail(path, ": is not a safetensors file of weights: ", where, ": ", e.what());
  }
  weights.read = [bytes, begin, arrays](const std::string& name) {
    const Array& array = arrays.at(name);
    const char* values = bytes->data() + begin + array.begin;
    const auto count = static_cast<std::size_t>((array.end - array.begin) / size_of(array.dtype));
    return array.dtype == DType::f32 ? converted<float, float>(values, count)
                                     : converted<float, bf16>(values, count);
  };
  return weights;
}

void save_safetensors(const std::string& path, const WeightsFile& weights, DType dtype) {
  const bool wide = dtype == DType::f32;
  WEFT_CHECK(wide || dtype == DType::bf16, "weights travel as f32 or bf16, not as ",
             name_of(dtype));
  nlohmann::ordered_json header;
  header[kMetadata] = {{"format", "pt"},
                       {"weft.config", weights.config},
                       {"weft.step", str(weights.step)},
                       {"weft.weights", weights.ema ? "ema" : "last"}};
  int64_t end = 0;
  for (const auto& [name, shape] : weights.shapes) {
    const int64_t begin = end;
    end += std::accumulate(shape.begin(), shape.end(), size_of(dtype), std::multiplies<>());
    header[name] = {
        {"dtype", wide ? "F32" : "BF16"}, {"shape", shape}, {"data_offsets", {begin, end}}};
  }
  // JSON is UTF-8: of another name in the config, as of the data file, wrong bytes become U+FFFD
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + kLength - 1) / kLength * kLength, ' ');  // data is aligned
  const uint64_t length = text.size();
  NewFile file(path);
  const auto write = [&](const auto* values, std::size_t count) {
    file.write(reinterpret_cast<const char*>(values), count * sizeof *values);
  };
  write(&length, 1);
  write(text.data(), text.size());
  for (const auto& [name, shape] : weights.shapes) {
    const std::vector<float> values = weights.values(name);
    wide ? write(values.data(), values.size())
         : write(converted<bf16, float>(values.data(), values.size()).data(), values.size());
  }
  file.commit();
}
}  // namespace weft
