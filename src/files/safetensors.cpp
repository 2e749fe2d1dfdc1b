// SPDX-License-Identifier: MIT
#include "src/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "src/files/files.h"
#include "src/files/hdf5.h"

namespace weft {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::int64_t kLengthBytes = 8, kLongestHeader = 100'000'000, kMostElements = std::int64_t{1} << 48;
constexpr std::size_t kDeepest = 8;
constexpr const char* kMetadata = "__metadata__";

struct Array {
  DType dtype = DType::f32;
  Shape shape;
  std::int64_t begin = 0, end = 0;  // bytes behind the header
};

// What is thrown inside says what is wrong with the file, or with the array `name` of it.
[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  fail(str(path, ": is not a safetensors file of weights: ", what));
}

// Keys that stand twice in an object, which the library would let pass, and objects in objects in objects ...
json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (static_cast<std::size_t>(depth) > kDeepest) refuse(path, "its header is nested too deep");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      refuse(path, str("its header has ", parsed.get<std::string>(), " twice"));
    return true;
  };
  json header = json::parse(text, watch);
  if (!header.is_object()) refuse(path, "its header is no JSON object");
  return header;
}

std::int64_t whole_number(const json& value, std::int64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    throw Error(str("expected a whole number up to ", most, ", found ", value.dump()));
  return value.get<std::int64_t>();
}

Array array_of(const json& entry, std::int64_t data_bytes) {
  Array array;
  if (!entry.is_object() || entry.size() != 3)
    throw Error(str("expected dtype, shape and data_offsets, found ", entry.dump()));
  const std::string dtype = entry.at("dtype").get<std::string>();
  if (dtype != "F32" && dtype != "BF16") throw Error(str("dtype ", dtype, ", expected F32 or BF16"));
  array.dtype = dtype == "F32" ? DType::f32 : DType::bf16;
  std::int64_t size = 1;
  for (const json& axis : entry.at("shape").get_ref<const json::array_t&>()) {
    array.shape.push_back(whole_number(axis, kMostElements));
    if (array.shape.back() == 0 || size > kMostElements / array.shape.back())
      throw Error(str("shape ", entry.at("shape").dump(), ", expected 1 to ", kMostElements, " elements"));
    size *= array.shape.back();
  }
  const json::array_t& offsets = entry.at("data_offsets").get_ref<const json::array_t&>();
  if (offsets.size() != 2) throw Error("data_offsets, expected begin and end");
  array.begin = whole_number(offsets[0], data_bytes);
  array.end = whole_number(offsets[1], data_bytes);
  if (array.end - array.begin != size * size_of(array.dtype))
    throw Error(str("data_offsets ", entry.at("data_offsets").dump(), " for ", shape_text(array.shape),
                    " in ", dtype));
  return array;
}

// Arrays lie one behind the other, from the first byte to the last.
void check_places(const std::string& path, const std::map<std::string, Array>& arrays,
                  std::int64_t data_bytes) {
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [name, array] : arrays) order.emplace_back(array.begin, name);
  std::ranges::sort(order);
  std::int64_t end = 0;
  for (const auto& [begin, name] : order) {
    if (begin != end)
      refuse(path, str(name, " begins at byte ", begin, " of the data, the array before it ends at ", end));
    end = arrays.at(name).end;
  }
  if (end != data_bytes) refuse(path, str("its arrays have ", end, " bytes, the file has ", data_bytes));
}

std::vector<float> read_array(const std::string& path, const std::string& name, const Array& array,
                              std::int64_t data_begin) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(static_cast<std::size_t>(array.end - array.begin));
  if (!file.seekg(data_begin + array.begin) ||
      !file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())))
    fail(str(path, ": ", name, " cannot be read"));
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_of(array.dtype)));
  if (array.dtype == DType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    std::vector<bf16> halves(values.size());
    std::memcpy(halves.data(), bytes.data(), bytes.size());
    std::copy(halves.begin(), halves.end(), values.begin());
  }
  return values;
}

std::string header_text(const std::string& path, std::int64_t& bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  bytes = file && std::filesystem::is_regular_file(path) ? static_cast<std::int64_t>(file.tellg()) : -1;
  if (bytes < 0) fail(str(path, ": cannot be read"));
  std::uint64_t length = 0;
  if (bytes < kLengthBytes || !file.seekg(0) || !file.read(reinterpret_cast<char*>(&length), sizeof length))
    refuse(path, str("it has ", bytes, " bytes"));
  if (length > static_cast<std::uint64_t>(std::min(bytes - kLengthBytes, kLongestHeader)))
    refuse(path, str("its header would have ", length, " bytes, the file has ", bytes));
  std::string text(length, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length))) fail(str(path, ": cannot be read"));
  return text;
}

std::string metadata(const json& header, const char* key) {
  const json& all = header.at(kMetadata);
  if (!all.contains(key)) throw Error(str("its metadata has no ", key, ": weft did not write it"));
  return all.at(key).get<std::string>();
}

}  // namespace

WeightsFile safetensors_weights(const std::string& path) {
  WeightsFile weights{.path = path, .config = ""};
  std::int64_t bytes = 0;
  const std::string text = header_text(path, bytes);
  const std::int64_t begin = kLengthBytes + static_cast<std::int64_t>(text.size());
  std::map<std::string, Array> arrays;
  std::string where = "its header";
  try {
    const json header = parse_header(path, text);
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) continue;
      where = name;
      arrays[name] = array_of(entry, bytes - begin);
      weights.shapes[name] = arrays[name].shape;
    }
    where = kMetadata;
    weights.config = metadata(header, "weft.config");
    weights.step = whole_number(json::parse(metadata(header, "weft.step")), kMostElements);
    const std::string which = metadata(header, "weft.weights");
    if (which != "ema" && which != "last")
      throw Error(str("weft.weights is ", which, ", expected ema or last"));
    weights.ema = which == "ema";
  } catch (const json::exception& e) { refuse(path, str(where, ": ", e.what())); } catch (const Error& e) {
    if (std::string(e.what()).starts_with(path)) throw;
    refuse(path, str(where, ": ", e.what()));
  }
  check_places(path, arrays, bytes - begin);
  weights.read = [path, begin, arrays = std::move(arrays)](const std::string& name) {
    return read_array(path, name, arrays.at(name), begin);
  };
  return weights;
}

void save_safetensors(const std::string& path, const WeightsFile& weights, DType dtype) {
  WEFT_CHECK(dtype == DType::f32 || dtype == DType::bf16, "weights travel as f32 or bf16, not as ",
             name_of(dtype));
  nlohmann::ordered_json header;
  header[kMetadata] = {{"format", "pt"},
                       {"weft.config", weights.config},
                       {"weft.step", str(weights.step)},
                       {"weft.weights", weights.ema ? "ema" : "last"}};
  std::int64_t end = 0;
  for (const auto& [name, shape] : weights.shapes) {
    const std::int64_t begin = end;
    end += std::accumulate(shape.begin(), shape.end(), size_of(dtype), std::multiplies<>());
    header[name] = {
        {"dtype", dtype == DType::f32 ? "F32" : "BF16"}, {"shape", shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');  // data is aligned
  const std::uint64_t length = text.size();
  NewFile file(path);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(text.data(), text.size());
  for (const auto& [name, shape] : weights.shapes) {
    const std::vector<float> values = weights.values(name);
    if (dtype == DType::f32) {
      file.write(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      continue;
    }
    std::vector<bf16> halves(values.size());
    std::ranges::transform(values, halves.begin(), [](float x) { return bf16(x); });
    file.write(reinterpret_cast<const char*>(halves.data()), halves.size() * sizeof(bf16));
  }
  file.commit();
}

}  // namespace weft
