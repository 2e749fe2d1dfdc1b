// SPDX-License-Identifier: MIT
// The pickle reader: batches as Python 2 and 3 write them, built by hand and by a Python that is there;
// damage of every kind gives an Error, and hostile pickles cost little.
#include "data/formats/pickle/pickle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/data/formats/pickles.h"
#include "tests/temp_dir.h"

namespace weft {
namespace {

using Kind = PickleValue::Kind;

// A batch of two images of three bytes, in the layout of CIFAR-10's data_batch files.
std::string batch(int fortran = 0x89) {
  return protocol(2) + "}q\1(" + str2("batch_label") + "q\2" + str2("training batch 1 of 5") +
         str2("labels") + "q\3]q\4(" + op('K', "\6") + op('K', "\7") + "e" + str2("data") +
         array2(shape2(2, 3), "abcdef", fortran) + str2("filenames") + "](" + str2("a.png") + str2("b.png") +
         "eu.";
}

void expect_batch(const std::string& bytes, const std::string& what) {
  const Pickle pickle = parse_pickle(bytes, what);
  const PickleValue& root = pickle.root();
  ASSERT_EQ(root.kind, Kind::dict) << what;
  ASSERT_NE(root.find("labels"), nullptr) << what;
  EXPECT_EQ(pickled_integers(*root.find("labels"), what, "labels"), (std::vector<std::int64_t>{6, 7}))
      << what;
  EXPECT_EQ(root.find("batch_label")->text, "training batch 1 of 5") << what;
  EXPECT_EQ(root.find("filenames")->items.at(1)->text, "b.png") << what;
  EXPECT_EQ(root.find("data "), nullptr) << what;
  const PickleValue* data = root.find("data");
  ASSERT_TRUE(data && data->kind == Kind::array) << what;
  EXPECT_EQ(data->array->array.shape, (std::vector<std::int64_t>{2, 3})) << what;
  EXPECT_EQ(data->array->array.kind, 'u') << what;
  EXPECT_EQ(data->array->array.item, 1) << what;
  EXPECT_EQ(row_major_bytes(*data->array), "abcdef") << what;
}

TEST(Pickle, ReadsABatchOfPython2) { expect_batch(batch(), "batch"); }

TEST(Pickle, FortranOrderIsTurned) {
  const std::string bytes = batch(0x88);
  const Pickle pickle = parse_pickle(bytes, "batch");
  const PickledArray& a = *pickle.root().find("data")->array;
  EXPECT_TRUE(a.column_major);
  EXPECT_EQ(row_major_bytes(a), "acebdf");
  const PickledArray three{{'i', 2, {2, 2, 2}, "A0B1C2D3E4F5G6H7"}, true};
  EXPECT_EQ(row_major_bytes(three), "A0E4C2G6B1F5D3H7");
}

TEST(Pickle, PlainValues) {
  const auto one = [](const std::string& bytes, auto&& look) {
    const std::string whole = protocol(2) + bytes + ".";
    look(parse_pickle(whole, "p").root());
  };
  const auto integer = [&](const std::string& bytes, std::int64_t want) {
    one(bytes, [&](const PickleValue& v) {
      EXPECT_EQ(v.kind, Kind::integer);
      EXPECT_EQ(v.integer, want);
    });
  };
  integer(op('K', "\xff"), 255);
  integer(op('M', "\x01\x02"), 513);
  integer(op('J', little_endian(0xfffffffe, 4)), -2);
  integer(op(0x8a, op(0)), 0);
  integer(op(0x8a, op(2, "\xff\x80")), -32513);
  integer(op(0x8a, op(8, little_endian(std::uint64_t{1} << 63, 8))),
          std::numeric_limits<std::int64_t>::min());
  one(op('G', std::string("\x3f\xf8\0\0\0\0\0\0", 8)), [](const PickleValue& v) { EXPECT_EQ(v.real, 1.5); });
  one("N", [](const PickleValue& v) { EXPECT_EQ(v.kind, Kind::none); });
  one(op(0x88), [](const PickleValue& v) { EXPECT_TRUE(v.kind == Kind::boolean && v.integer == 1); });
  one("(K\1K\2K\3t", [](const PickleValue& v) { EXPECT_TRUE(v.kind == Kind::tuple && v.items.size() == 3); });
  one("(K\1K\2l", [](const PickleValue& v) { EXPECT_TRUE(v.kind == Kind::list && v.items.size() == 2); });
  one("(U\1aK\2d", [](const PickleValue& v) { EXPECT_EQ(v.find("a")->integer, 2); });
  one("}U\1aK\2sU\1aK\3s", [](const PickleValue& v) { EXPECT_EQ(v.find("a")->integer, 3); });
  one("]U\1aa", [](const PickleValue& v) { EXPECT_EQ(v.items.at(0)->text, "a"); });
  one("c_codecs\nencode\nX" + little_endian(3, 4) + "a\xc3\xbf" + "X" + little_endian(6, 4) + "latin1" +
          op(0x86) + "R",
      [](const PickleValue& v) {
        EXPECT_EQ(v.kind, Kind::bytes);
        EXPECT_EQ(v.text, "a\xff");
      });
}

TEST(Pickle, NothingIsEverRun) {
  const auto error = [](const std::string& bytes) {
    return error_of([&] { parse_pickle(protocol(2) + bytes + ".", "evil.pkl"); });
  };
  EXPECT_EQ(error("cposix\nsystem\n" + str2("echo") + op(0x85) + "R"),
            "evil.pkl: is no pickle of plain data: it names posix.system; only numpy arrays and plain values "
            "are read, nothing is ever run (opcode at byte 2)");
  EXPECT_CONTAINS(error("X" + little_endian(2, 4) + "osX" + little_endian(6, 4) + "system" + op(0x93)),
                  "it names os.system");
  EXPECT_CONTAINS(error("cnumpy\nnd\x1b[array\n"), "it names numpy.nd?[array");
  EXPECT_CONTAINS(error("i__main__\nX\n"),
                  "opcode 0x69 ('i') is none that plain data needs (opcode at byte 2)");
  EXPECT_CONTAINS(error(op(0x81)), "opcode 0x81 is none");
  EXPECT_CONTAINS(error("cnumpy\ndtype\n"), "holds a class, not data");
  EXPECT_CONTAINS(error("]cnumpy\ndtype\na"), "a class among the data");
  EXPECT_CONTAINS(error("cnumpy\nndarray\n)R"), "a call of a class that data does not need");
}

TEST(Pickle, MistakesAreNamed) {
  const auto error = [](const std::string& bytes) {
    return error_of([&] { parse_pickle(protocol(2) + bytes, "p"); });
  };
  EXPECT_EQ(error_of([&] { parse_pickle("(dp0\n.", "p"); }), "p: is no pickle of protocol 2 to 5");
  EXPECT_CONTAINS(error_of([&] { parse_pickle(protocol(6) + "N.", "p"); }),
                  "is no pickle of protocol 2 to 5");
  EXPECT_CONTAINS(error(protocol(2) + "N."), "at its beginning alone");
  EXPECT_CONTAINS(error("."), "a value is missing on the stack");
  EXPECT_CONTAINS(error("NN."), "left on the stack");
  EXPECT_CONTAINS(error("N.N"), "1 bytes follow its end");
  EXPECT_CONTAINS(error("(NNd"), "truncated");
  EXPECT_CONTAINS(error("(Nd."), "a key without a value");
  EXPECT_CONTAINS(error("t."), "a mark is missing");
  EXPECT_CONTAINS(error("N(" + op(0x85) + "."), "a value is missing on the stack");
  EXPECT_CONTAINS(error("h\1."), "memo entry 1 was never made");
  EXPECT_CONTAINS(error("Nr" + little_endian(0xfffffff0, 4) + "."), "memo entry 4294967280; at most");
  EXPECT_CONTAINS(error("]q\1h\1a."), "a value inside itself");
  EXPECT_CONTAINS(error("]q\1]q\2h\1ah\1h\2a."), "a value grows after");
  EXPECT_CONTAINS(error("X" + little_endian(1000, 4) + "."), "1000 bytes should follow, 1 do");
  EXPECT_CONTAINS(error(op(0x8a, op(9))), "an integer of 9 bytes");
  EXPECT_CONTAINS(error(array2(shape2(2, 4), "abcdef") + "."), "should have 8 bytes and has 6");
  EXPECT_CONTAINS(error(array2(shape2(2, 3), "abcdef", 0x89, "O8") + "."), "elements that are not bool");
  EXPECT_CONTAINS(error(array2(shape2(1, 3), "abcdef", 0x89, "u2", ">") + "."), "big-endian");
  const std::string huge = op(0x8a, op(8, little_endian(std::uint64_t{1} << 62, 8)));
  EXPECT_CONTAINS(error(array2(huge + huge + op(0x86), "") + "."), "more than 2^63 bytes");
  std::string deep = "]";
  for (int k = 0; k < 40; ++k) deep += op(0x85);
  EXPECT_CONTAINS(error(deep + "."), "more than 32 deep");
}

TEST(Pickle, HostileOnesCostLittle) {
  const std::string many(5000000, 'N');
  EXPECT_CONTAINS(error_of([&] { parse_pickle(protocol(2) + many, "p"); }), "more than 2097152 values");
  // The same text encoded again and again would grow without end.
  std::string again = "X" + little_endian(100000, 4) + std::string(100000, 'a') + "q\1X" +
                      little_endian(6, 4) + "latin1q\2" + "c_codecs\nencode\nq\3";
  for (int k = 0; k < 10000; ++k) again += "h\3h\1h\2" + op(0x86) + "R";
  EXPECT_CONTAINS(error_of([&] { parse_pickle(protocol(2) + again, "p"); }), "again and again");
  // Sharing makes 2^30 leaves of 30 pairs; they are never copied.
  std::string bomb = "Nq";
  bomb += '\0';
  for (int k = 0; k < 30; ++k) bomb += op('h', op(k)) + op('h', op(k)) + op(0x86) + op('q', op(k + 1));
  EXPECT_CONTAINS(error_of([&] { parse_pickle(protocol(2) + bomb + ".", "p"); }), "left on the stack");
}

TEST(Pickle, DamageGivesAnErrorOrAValue) {
  const std::string whole = batch();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of([&] { parse_pickle(std::string(whole.data(), size), "p"); }), "") << size;
  int errors = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    errors += !error_of([&] { parse_pickle(damaged, "p"); }).empty();
  }
  EXPECT_GT(errors, static_cast<int>(4 * whole.size())) << "flipped bits that are noticed";
}

TEST(Pickle, IntegersOfAnotherShapeAreNamed) {
  const auto error = [](const std::string& bytes) {
    const std::string whole = protocol(2) + bytes + ".";
    return error_of([&] { pickled_integers(parse_pickle(whole, "p").root(), "p", "labels"); });
  };
  EXPECT_EQ(error("N"), "p: labels is none, expected a list of integers");
  EXPECT_EQ(error("](K\1Ne"), "p: item 1 of labels is none, expected an integer");
  EXPECT_CONTAINS(error(array2(shape2(2, 3), "abcdef")), "labels is an array of 2 axes");
  const std::string row = protocol(2) + array2("K\2" + op(0x85), "\1\t") + ".";
  EXPECT_EQ(pickled_integers(parse_pickle(row, "p").root(), "p", "labels"),
            (std::vector<std::int64_t>{1, 9}));
}

TEST(Pickle, ReadsWhatPythonWrites) {
  const char* chosen = std::getenv("WEFT_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  if (std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no numpy in " << python << "; name a Python that has it in WEFT_PYTHON";
  TempDir dir;
  write_file(dir / "make.py", R"(import numpy, pickle, sys
data = numpy.frombuffer(b"abcdef", dtype=numpy.uint8).reshape(2, 3)
for protocol in range(2, 6):
  for order in "CF":
    for key in (str, str.encode):
      batch = {key("data"): numpy.array(data, order=order), key("labels"): [6, 7], key("filenames"): [b"a.png", b"b.png"],
               key("batch_label"): b"training batch 1 of 5", key("mean"): numpy.zeros(3), key("empty"): b"",
               key("labels64"): numpy.array([6, -7]), key("nothing"): numpy.zeros((0, 3), dtype=numpy.uint8)}
      with open(f"{sys.argv[1]}/{protocol}{order}{key.__name__}", "wb") as f:
        pickle.dump(batch, f, protocol=protocol)
)");
  ASSERT_EQ(std::system(str(python, " ", dir / "make.py", " ", dir.path()).c_str()), 0);
  for (const char version : {'2', '3', '4', '5'})
    for (const char order : {'C', 'F'})
      for (const char* key : {"str", "encode"}) {
        const std::string name = str(version, order, key), bytes = read_file(dir / name);
        expect_batch(bytes, name);
        const Pickle pickle = parse_pickle(bytes, name);
        EXPECT_EQ(pickle.root().find("data")->array->column_major, order == 'F');
        EXPECT_EQ(pickle.root().find("mean")->array->array.kind, 'f');
        EXPECT_EQ(pickle.root().find("empty")->text, "");
        EXPECT_EQ(pickled_integers(*pickle.root().find("labels64"), name, "labels"),
                  (std::vector<std::int64_t>{6, -7}));
        EXPECT_EQ(row_major_bytes(*pickle.root().find("nothing")->array), "");
      }
}

}  // namespace
}  // namespace weft
