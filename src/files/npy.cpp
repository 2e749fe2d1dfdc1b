// SPDX-License-Identifier: MIT
// .npy: magic, version, length of the header, a Python dict {'descr', 'fortran_order', 'shape'},
// the data.
#include "src/files/npy.h"

#include "kernels/view.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <set>
#include <system_error>

namespace weft {
namespace {
constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kMostDimensions = 32;

// The dict of the header, read from left to right.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& where)
      : text_(text),
        where_(where) {}

  void read(NpyArray& array) {
    std::set<std::string> seen;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      if (!seen.insert(key).second) bad("'" + key + "' is given twice");
      expect(':');
      if (key == "descr")
        type(array);
      else if (key == "fortran_order")
        order();
      else if (key == "shape")
        shape(array.shape);
      else
        bad("unknown key '" + key + "'");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    for (const char* key : {"descr", "fortran_order", "shape"})
      if (!seen.contains(key)) bad(str("'", key, "' is missing"));
    skip_spaces();
    if (at_ != text_.size()) bad("something follows the dict");
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail(where_, ": the header of the .npy file is damaged: ", what, " (at its character ", at_,
         ")");
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool accept(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) bad(str("expected '", wanted, "'"));
  }

  std::string quoted() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') bad("expected a quoted word");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos || end - at_ > 32) bad("a quoted word does not end");
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    if (!std::ranges::all_of(word, [](char c) { return c >= ' ' && c <= '~'; }))
      bad("a quoted word holds unprintable characters");
    at_ = end + 1;
    return std::string(word);
  }

  void type(NpyArray& array) {
    skip_spaces();
    const bool structured = at_ < text_.size() && text_[at_] == '[';
    const std::string name = structured ? "[...]" : quoted();
    for (const std::string_view known : {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8"})
      if (name == known) {
        array.kind = known[1];
        array.item = known[2] - '0';
        return;
      }
    fail(where_, ": holds elements of type '", name,
         "'; expected bool, int8 to int64 or uint8 to uint32, little-endian; in numpy: "
         "a.astype(numpy.uint32), or numpy.uint8 for pixels");
  }

  void order() {
    skip_spaces();
    if (text_.substr(at_, 4) == "True")
      fail(where_, ": is stored in Fortran order; save it as numpy.ascontiguousarray(a)");
    if (text_.substr(at_, 5) != "False") bad("fortran_order is neither True nor False");
    at_ += 5;
  }

  void shape(std::vector<int64_t>& shape) {
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      int64_t size = -1;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc{} || size < 0) bad("a size in shape is not a number that can be");
      at_ = static_cast<std::size_t>(end - text_.data());
      shape.push_back(size);
      if (shape.size() > kMostDimensions)
        bad(str("shape has more than ", kMostDimensions, " dimensions"));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (std::size_t k = bytes.size(); k-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[k]);
  return value;
}

// Bytes of an array of this shape; false when they do not fit into 64 bits.
bool bytes_of(const NpyArray& array, int64_t& bytes) {
  bytes = array.item;
  if (std::ranges::count(array.shape, 0) > 0) bytes = 0;
  for (const int64_t size : array.shape) {
    if (size > 0 && bytes > std::numeric_limits<int64_t>::max() / size) return false;
    bytes *= size;
  }
  return true;
}
}  // namespace

int64_t NpyArray::value(int64_t index) const {
  const uint64_t raw = little_endian(data.substr(static_cast<std::size_t>(index * item), item));
  const int unused = 64 - 8 * item;  // bits above the element
  if (kind == 'i') return static_cast<int64_t>(raw << unused) >> unused;
  return static_cast<int64_t>(raw);
}

bool is_npy(std::string_view bytes) { return bytes.starts_with(kNpyMagic); }

NpyArray parse_npy(std::string_view bytes, const std::string& where) {
  if (!is_npy(bytes))
    fail(where, ": is not a .npy file (", bytes.size(), " bytes of something else)");
  const std::size_t version_at = kNpyMagic.size(), length_at = version_at + 2;
  const int version = bytes.size() > version_at ? bytes[version_at] : 0;
  const std::size_t length_bytes = version == 1 ? 2 : 4, header_at = length_at + length_bytes;
  if (bytes.size() < header_at)
    fail(where, ": is truncated: ", bytes.size(), " bytes are left of it");
  if (version < 1 || version > 3 || bytes[version_at + 1] != 0)
    fail(where, ": is of .npy version ", int{static_cast<uint8_t>(bytes[version_at])}, ".",
         int{static_cast<uint8_t>(bytes[version_at + 1])}, "; expected 1.0, 2.0 or 3.0");
  const uint64_t length = little_endian(bytes.substr(length_at, length_bytes));
  if (length > bytes.size() - header_at)
    fail(where, ": is truncated: its header should have ", length, " bytes, ",
         bytes.size() - header_at, " are left");
  NpyArray array;
  HeaderReader(bytes.substr(header_at, length), where).read(array);
  array.data = bytes.substr(header_at + length);
  int64_t expected = 0;
  const bool fits = bytes_of(array, expected);
  if (!fits || static_cast<uint64_t>(expected) != array.data.size())
    fail(where, ": its header promises ", fits ? std::to_string(expected) : "more than 2^63",
         " bytes of data, the file holds ", array.data.size(),
         !fits || static_cast<uint64_t>(expected) > array.data.size()
             ? "; it is truncated: copy or make it again"
             : "; something was added to it");
  return array;
}

std::string npy_header(std::string_view type, const std::vector<int64_t>& shape) {
  std::string dict = str("{'descr': '", type, "', 'fortran_order': False, 'shape': (");
  for (const int64_t size : shape) dict += str(size, ", ");
  if (shape.size() > 1) dict.resize(dict.size() - 2);  // a tuple of one keeps its comma
  dict += "), }";
  const std::size_t preamble = kNpyMagic.size() + 4;  // magic, version, length of the header
  dict.append(63 - (preamble + dict.size()) % 64, ' ').push_back('\n');
  const char version_and_length[4] = {1, 0, static_cast<char>(dict.size() & 0xff),
                                      static_cast<char>(dict.size() >> 8)};
  return std::string(kNpyMagic).append(version_and_length, 4).append(dict);
}
}  // namespace weft
