// SPDX-License-Identifier: MIT
// The .npy reader: every type and version, and one refusal for each way in which a file can be
// wrong.
#include "src/files/npy.h"

#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace weft {
namespace {
// A file of version 1.0, 2.0 or 3.0 with this dict and data.
std::string file(const std::string& dict, const std::string& data, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte)
    bytes += static_cast<char>(dict.size() >> 8 * byte & 0xff);
  return bytes + dict + data;
}

std::string dict(const std::string& type, const std::string& shape,
                 const std::string& order = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }   \n";
}

TEST(Npy, ReadsEveryTypeAndVersion) {
  const std::string one_two("\x01\x02\x03\x04\x05\x06\x07\x80\xff\xff\xff\xff\xff\xff\xff\xff", 16);

  struct Case {
    const char* type;
    int item;
    int64_t first, last;
  };

  for (const Case& c : {Case{"|b1", 1, 1, 255},
                        {"|u1", 1, 1, 255},
                        {"|i1", 1, 1, -1},
                        {"<i2", 2, 0x201, -1},
                        {"<u2", 2, 0x201, 65535},
                        {"<i4", 4, 0x4030201, -1},
                        {"<u4", 4, 0x4030201, 4294967295},
                        {"<i8", 8, -0x7ff8f9fafbfcfdff, -1}})
    for (const int version : {1, 2, 3}) {
      const std::string shape = str("(2, ", 8 / c.item, ")");
      const std::string bytes = file(dict(c.type, shape), one_two, version);
      const NpyArray a = parse_npy(bytes, "a.npy");
      EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 8 / c.item}));
      EXPECT_EQ(a.size(), 16 / c.item);
      EXPECT_EQ(a.value(0), c.first) << c.type;
      EXPECT_EQ(a.value(a.size() - 1), c.last) << c.type;
    }
}

TEST(Npy, ReadsWhatNumpyMayWrite) {
  const auto shape = [](const std::string& text, int64_t bytes) {
    return parse_npy(file(text, std::string(static_cast<std::size_t>(bytes), '\1')), "a").shape;
  };
  EXPECT_EQ(shape("{\"shape\": (3,), \"fortran_order\": False, \"descr\": \"|u1\"}", 3),
            (std::vector<int64_t>{3}));
  EXPECT_EQ(shape(dict("|u1", "()"), 1), std::vector<int64_t>{});
  EXPECT_EQ(shape(dict("|u1", "(0, 7)"), 0), (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(shape("{'descr':'|u1','fortran_order':False,'shape':(1,2,3)}", 6),
            (std::vector<int64_t>{1, 2, 3}));
}

TEST(Npy, HeadersAreThoseOfNumpy) {
  const std::string header = npy_header("|b1", {14, 14});
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_TRUE(header.substr(10).starts_with(
      "{'descr': '|b1', 'fortran_order': False, 'shape': (14, 14), }  "));
  EXPECT_EQ(header.back(), '\n');
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5}, {2, 3}, {1, 1, 4}}) {
    std::string bytes = npy_header("<i2", shape);
    EXPECT_EQ(bytes.size() % 64, 0u);
    for (int64_t k = 0, n = shape[0] * (shape.size() > 1 ? shape[1] : 1) *
                            (shape.size() > 2 ? shape[2] : 1);
         k < n; ++k)
      bytes += std::string("\x05\x00", 2);
    EXPECT_EQ(parse_npy(bytes, "a").shape, shape);
  }
}

std::string error(const std::string& bytes) {
  return error_of([&] { parse_npy(bytes, "a.npy"); });
}

TEST(Npy, TruncatedFilesAreRefusedAtEveryLength) {
  const std::string whole = file(dict("|u1", "(3, 4)"), std::string(12, '\0'));
  EXPECT_EQ(error(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_TRUE(
        error(whole.substr(0, length)).starts_with("a.npy: is ") ||
        error(whole.substr(0, length)).starts_with("a.npy: its header promises 12 bytes of data"))
        << length << ": " << error(whole.substr(0, length));
  EXPECT_EQ(
      error(whole + "x"),
      "a.npy: its header promises 12 bytes of data, the file holds 13; something was added to it");
  EXPECT_EQ(error(whole.substr(0, whole.size() - 1)),
            "a.npy: its header promises 12 bytes of data, the file holds 11; it is truncated: copy "
            "or make "
            "it again");
}

TEST(Npy, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(error(""), "a.npy: is not a .npy file (0 bytes of something else)");
  EXPECT_EQ(error("PK\x03\x04 an archive"),
            "a.npy: is not a .npy file (15 bytes of something else)");
  EXPECT_EQ(error(file(dict("|u1", "(1,)"), "x", 4)),
            "a.npy: is of .npy version 4.0; expected 1.0, 2.0 or 3.0");
  EXPECT_EQ(error(file(dict("|u1", "(1,)"), "x", 200)),
            "a.npy: is of .npy version 200.0; expected 1.0, 2.0 or 3.0");
  std::string long_header = file(dict("|u1", "(1,)"), "x", 2);
  long_header[11] = '\x7f';
  EXPECT_EQ(error(long_header),
            "a.npy: is truncated: its header should have 2130706493 bytes, 62 are left");
  EXPECT_EQ(error(file(dict("|u1", "(2, 3)", "True"), std::string(6, '\0'))),
            "a.npy: is stored in Fortran order; save it as numpy.ascontiguousarray(a)");
  for (const char* type : {"<f4", ">i4", "<u8", "|O", "<c16", "|u2", ""})
    EXPECT_EQ(error(file(dict(type, "(1,)"), "x")),
              str("a.npy: holds elements of type '", type,
                  "'; expected bool, int8 to int64 or uint8 to uint32, little-endian; in numpy: "
                  "a.astype(numpy.uint32), or numpy.uint8 for pixels"));
  EXPECT_CONTAINS(
      error(file("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", "x")),
      "holds elements of type '[...]'");
}

TEST(Npy, DamagedHeadersAreRefused) {
  const auto damage = [](const std::string& text) {
    const std::string what = error(file(text, "x")),
                      start = "a.npy: the header of the .npy file is damaged: ";
    EXPECT_TRUE(what.starts_with(start)) << what;
    return what.substr(std::min(start.size(), what.size()), what.rfind(" (at") - start.size());
  };
  EXPECT_EQ(damage(""), "expected '{'");
  EXPECT_EQ(damage("{"), "expected a quoted word");
  EXPECT_EQ(damage("{}"), "'descr' is missing");
  EXPECT_EQ(damage("{'descr': '|u1', 'shape': (1,)}"), "'fortran_order' is missing");
  EXPECT_EQ(damage("{'descr': '|u1', 'fortran_order': False}"), "'shape' is missing");
  EXPECT_EQ(damage("{'descr': '|u1', 'descr': '|u1'}"), "'descr' is given twice");
  EXPECT_EQ(damage("{'color': 3}"), "unknown key 'color'");
  EXPECT_EQ(damage("{'descr' '|u1'}"), "expected ':'");
  EXPECT_EQ(damage("{'descr': '|u1' 'shape': (1,)}"), "expected '}'");
  EXPECT_EQ(damage("{'descr': '|u1"), "a quoted word does not end");
  EXPECT_EQ(damage("{'" + std::string(40, 'a') + "': 1}"), "a quoted word does not end");
  EXPECT_EQ(damage("{'a\x01': 1}"), "a quoted word holds unprintable characters");
  EXPECT_EQ(damage(dict("|u1", "(1,)", "Maybe")), "fortran_order is neither True nor False");
  EXPECT_EQ(damage(dict("|u1", "1")), "expected '('");
  EXPECT_EQ(damage(dict("|u1", "(-1,)")), "a size in shape is not a number that can be");
  EXPECT_EQ(damage(dict("|u1", "(9223372036854775808,)")),
            "a size in shape is not a number that can be");
  EXPECT_EQ(damage(dict("|u1", "(1 2)")), "expected ')'");
  std::string many;
  for (int k = 0; k < 33; ++k) many += "1,";
  EXPECT_EQ(damage(dict("|u1", "(" + many + ")")), "shape has more than 32 dimensions");
  EXPECT_EQ(damage(dict("|u1", "(1,)") + "{}"), "something follows the dict");
}

TEST(Npy, SizesThatOverflowAreRefused) {
  const std::string expected =
      "a.npy: its header promises more than 2^63 bytes of data, the file holds 1; it is truncated: "
      "copy or "
      "make it again";
  EXPECT_EQ(error(file(dict("|u1", "(4294967296, 4294967296)"), "x")), expected);
  EXPECT_EQ(error(file(dict("<i8", "(2305843009213693952,)"), "x")), expected);
  EXPECT_EQ(
      error(file(dict("|u1", "(9223372036854775807, 0, 9223372036854775807)"), "x")),
      "a.npy: its header promises 0 bytes of data, the file holds 1; something was added to it");
}
}  // namespace
}  // namespace weft
