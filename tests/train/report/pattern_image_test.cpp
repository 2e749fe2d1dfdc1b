// SPDX-License-Identifier: MIT
// Pictures of patterns: what is where, and how large they are.
#include "train/report/pattern_image.h"

#include "src/patterns/pattern.h"
#include "tests/temp_dir.h"
#include "tests/train/shell_test.h"
#include "train/inspect/report.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/stat.h>

namespace weft {
namespace {
TEST(PatternImage, ImageShowsTheReceptiveFieldAndTheMatrix) {
  const auto pattern = make_pattern({"strided", 4}, 1);
  Image image = pattern_image(*pattern, {.head = 0, .n = 16, .position = 13, .row_length = 4});
  const auto field = [&](int row, int column) {
    return image.at(24 + column * 192 + 90, 24 + row * 192 + 90);
  };
  const auto matrix = [&](int i, int j) {
    return image.at(24 + 768 + 24 + j * 48 + 20, 24 + i * 48 + 20);
  };
  const auto same = [](Rgb a, Rgb b) {
    return a.red == b.red && a.green == b.green && a.blue == b.blue;
  };
  const Rgb seen = field(0, 1), unseen = field(0, 0), own = field(3, 1);
  EXPECT_FALSE(same(seen, unseen));
  EXPECT_FALSE(same(own, seen));
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 4; ++column)
      EXPECT_TRUE(same(field(row, column), row == 3 && column == 1 ? own
                                           : column == 1           ? seen
                                                                   : unseen))
          << row << column;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      EXPECT_EQ(same(matrix(i, j), seen), pattern->attends(0, i, j)) << i << ", " << j;
}

TEST(PatternImage, ImagesOfLongSequencesStaySmall) {
  const auto pattern = make_pattern({"fixed", 2000, 10}, 1);
  const Image image =
      pattern_image(*pattern, {.head = 0, .n = 5001, .position = 4100, .row_length = 2000});
  EXPECT_LE(image.width, 2 * 768 + 3 * 24);
  EXPECT_LE(image.height, 768 + 2 * 24);
  EXPECT_THROW(pattern_image(*pattern, {.head = 0, .n = 10, .position = 10, .row_length = 4}),
               Error);
}

TEST(PatternImage, PngFileIsWritten) {
  const TempDir dir;
  const std::string path = dir / "picture.png";
  write_png(path, pattern_image(*make_pattern({"local", 3}, 1),
                                {.n = 9, .position = 6, .row_length = 3}));
  const std::string file = read_file(path);
  EXPECT_TRUE(file.starts_with("\x89PNG\r\n\x1a\n"));
  EXPECT_TRUE(file.substr(file.size() - 8).starts_with("IEND"));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(PatternImage, InspectWritesIt) {
  const TempDir dir;
  for (const char* keys : {"4", "6"}) {
    InspectOptions o;
    o.device = "cpu", o.attention = "{kind: local, stride: 3, causal: false}";
    o.length = 4, o.keys = std::stoll(keys), o.position = 3, o.grid = {2, 3};
    o.png = dir / str("p", keys, ".png");
    std::ostringstream out;
    inspect(o, out);
    EXPECT_CONTAINS(out.str(), "\nrows: queries, columns: keys\n");
    EXPECT_EQ(read_file(o.png).substr(1, 3), "PNG");
    EXPECT_CONTAINS(out.str(), "wrote " + o.png);
  }
}

using PatternImageProgram = ShellTest;

TEST_F(PatternImageProgram, APipeIsWrittenAsItIs) {
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(shell("inspect --attention '{kind: local, stride: 4}' --length 8 --device cpu "
                  "--png pipe > /dev/null & cat pipe | head -c 4 | tail -c 3"),
            0)
      << err_;
  EXPECT_EQ(out_, "PNG");
}

TEST(PatternImage, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(write_png("/nowhere/picture.png", Image(2, 2)), Error);
}
}  // namespace
}  // namespace weft
