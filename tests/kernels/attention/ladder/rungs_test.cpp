// SPDX-License-Identifier: MIT
// The tables of the rungs are true of their files, and the README tells each of them.
#include "kernels/attention/ladder/ladder.h"
#include "tests/kernels/attention/ladder/cases/ladder_problem.h"
#include "tests/train/training.h"
#include "train/program/progress.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace weft::ladder {
namespace {
const std::string kFolder = WEFT_TEST_SOURCE "/kernels/attention/";

const std::span<const Rung> kTables[] = {cpu_rungs(), cuda_rungs()};

std::vector<std::string> files_of(const Rung& rung) {
  std::istringstream in(rung.files);
  std::vector<std::string> files;
  for (std::string file; in >> file;) files.push_back(file);
  return files;
}

// Words, numbers, strings and signs that are left without comments.
int tokens_of(const std::string& code) {
  static const std::regex comment(R"(//[^\n]*)"),
      token(R"re("(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.']*|[^\s\w])re");
  const std::string bare = std::regex_replace(code, comment, "");
  return static_cast<int>(std::distance(std::sregex_iterator(bare.begin(), bare.end(), token), {}));
}

TEST(LadderTable, CountsTokensAsTheRuleSays) {
  EXPECT_EQ(tokens_of("a += 2.5f * b[i];  // not counted\n"), 10);
  EXPECT_EQ(tokens_of("f(\"a string\", x_1)"), 6);
}

bool is_in_ladder(const std::string& file) { return file.starts_with("ladder/"); }

// The tokens of the real kernels are told with less care: they change for reasons of their own.
TEST(LadderTable, TokensAreThoseOfTheFiles) {
  for (const auto table : kTables)
    for (const Rung& rung : table) {
      int tokens = 0;
      for (const std::string& file : files_of(rung)) tokens += tokens_of(read_file(kFolder + file));
      const double allowed = is_in_ladder(files_of(rung).front()) ? 0 : 0.05 * tokens;
      EXPECT_NEAR(rung.tokens, tokens, allowed) << rung.name << ": correct the table of rungs.cpp";
    }
}

TEST(LadderTable, ARungIsOneFileOfAtMost150Lines) {
  for (const auto table : kTables) {
    std::set<std::string> names, files;
    for (const Rung& rung : table) {
      const std::string own = files_of(rung).front(), code = read_file(kFolder + own);
      EXPECT_TRUE(names.insert(rung.name).second) << rung.name;
      EXPECT_TRUE(files.insert(own).second) << own;
      if (!is_in_ladder(own)) continue;
      EXPECT_LE(std::ranges::count(code, '\n'), 150) << own;
      EXPECT_CONTAINS(own, str("_", rung.name, ".c"));
    }
  }
  EXPECT_EQ(files_of(cpu_rungs().back()).front(), "attention.cpp");
}

// The lines of a text without the blanks around them.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    lines.push_back(first == std::string::npos ? "" : line.substr(first));
  }
  return lines;
}

// All lines of the files of a rung.
std::set<std::string> code_of(const Rung& rung) {
  std::set<std::string> lines;
  for (const std::string& file : files_of(rung))
    for (const std::string& line : lines_of(read_file(kFolder + file))) lines.insert(line);
  return lines;
}

// Sections of a table's rungs, from `at` on, in order: each with a row and a diff whose lines are
// those of the code. Those of a minus are in a rung before.
void expect_told(const std::string& readme, std::size_t at, const std::string& heading,
                 std::span<const Rung> rungs) {
  std::set<std::string> before;
  for (std::size_t r = 0; r < rungs.size(); ++r) {
    SCOPED_TRACE(rungs[r].name);
    EXPECT_NE(readme.find(str("\n| ", rungs[r].name, " |"), at), std::string::npos) << "no row";
    const std::size_t section =
        readme.find(str("\n", heading, " ", r + 1, ". ", rungs[r].name, "\n"), at);
    ASSERT_NE(section, std::string::npos);
    const std::size_t begin = readme.find("```diff\n", section),
                      end = readme.find("\n```\n", begin);
    ASSERT_LT(begin, readme.find(str("\n", heading, " "), section + 1)) << "no diff";
    const std::vector<std::string> diff = lines_of(readme.substr(begin + 8, end - begin - 8));
    EXPECT_LE(diff.size(), 15u);
    const std::set<std::string> code = code_of(rungs[r]);
    for (const std::string& line : diff) {
      ASSERT_TRUE(line.starts_with('+') || (line.starts_with('-') && r > 0)) << line;
      const auto& of = line.starts_with('+') ? code : before;
      EXPECT_TRUE(of.contains(lines_of(line.substr(1)).front())) << line;
    }
    before.insert(code.begin(), code.end());
  }
}

TEST(LadderTable, TheReadmeTellsEveryRung) {
  const std::string readme = read_file(kFolder + "ladder/README.md");
  const std::size_t gpu = readme.find("\n## On a GPU\n");
  ASSERT_NE(gpu, std::string::npos);
  expect_told(readme.substr(0, gpu), 0, "##", cpu_rungs());
  expect_told(readme, gpu, "###", cuda_rungs());
}

// Pairs in millions, with one digit.
std::string millions(int64_t pairs) { return fixed_text(static_cast<double>(pairs) * 1e-6, 1); }

TEST(LadderReadme, CountsPairsAndTilesAsTheTablesDo) {
  std::string readme = read_file(kFolder + "ladder/README.md");
  std::ranges::replace(readme, '\n', ' ');
  const auto tables = [](const char* kind) {
    PatternSpec spec;
    spec.kind = kind;  // stride 128, c 32
    const auto pattern = make_pattern(spec, 1);
    return std::pair(build_tile_tables(InOrder(*pattern), 0, 12288),
                     build_tile_tables(*pattern, 0, 12288));
  };
  const auto [in_order, of_pattern] = tables("fixed");
  EXPECT_CONTAINS(readme, str("the pattern needs ", millions(in_order.pairs.needed), " million"));
  EXPECT_CONTAINS(readme, str("hold ", millions(in_order.pairs.executed), " million pairs"));
  EXPECT_CONTAINS(readme, str("hold ", millions(of_pattern.pairs.executed),
                              " million pairs instead of ", millions(in_order.pairs.executed)));
  EXPECT_EQ(in_order.row_tile.size(), 9408u);
  EXPECT_CONTAINS(readme, "9,408");
  const auto [rows, columns] = tables("strided");
  EXPECT_CONTAINS(readme, str("hold ", fixed_text(rows.pairs.waste(), 0), " times as many"));
  EXPECT_CONTAINS(readme, str("columns ", fixed_text(columns.pairs.waste(), 1), " times"));
}

// The cells of the row of a rung, after its name; 0 where a cell is empty.
std::vector<double> row_of(const std::string& readme, const Rung& rung, std::size_t from) {
  const std::size_t row = readme.find(str("\n| ", rung.name, " |"), from);
  std::istringstream in(readme.substr(row + 1, readme.find('\n', row + 1) - row - 1));
  std::vector<double> cells;
  std::string cell;
  std::getline(in, cell, '|'), std::getline(in, cell, '|');
  while (std::getline(in, cell, '|')) {
    std::erase(cell, ',');
    cells.push_back(std::strtod(cell.c_str(), nullptr));
  }
  return cells;
}

// flop: of the forward pass, in the unit of the rate times milliseconds.
void expect_consistent(const std::string& readme, std::size_t from, std::span<const Rung> rungs,
                       double flop) {
  double before[2] = {0, 0};
  for (const Rung& rung : rungs) {
    SCOPED_TRACE(rung.name);
    const std::vector<double> cells = row_of(readme, rung, from);
    ASSERT_EQ(cells.size(), 9u);
    EXPECT_EQ(cells.back(), rung.tokens);
    for (const int direction : {0, 1}) {
      const double ms = cells[4 * direction], rate = cells[4 * direction + 1],
                   gain = cells[4 * direction + 3];
      double& last = before[direction];
      if (ms == 0) continue;
      EXPECT_NEAR(rate, (direction ? 2.5 : 1) * flop / ms, 0.05 * (rate + 1)) << "rate";
      EXPECT_NEAR(gain, last > 0 ? last / ms : 0, 0.01 * gain + 0.005) << "gain";
      last = ms;
    }
  }
}

TEST(LadderReadme, RatesAndGainsFollowFromTheTimes) {
  const std::string readme = read_file(kFolder + "ladder/README.md");
  const std::size_t gpu = readme.find("\n## On a GPU\n");
  constexpr double kPairs = 19470336, kFlop = 4 * 64 * kPairs;
  expect_consistent(readme, 0, cpu_rungs(), kFlop * 1e-6);
  expect_consistent(readme, gpu, cuda_rungs(), 16 * kFlop * 1e-9);
}
}  // namespace
}  // namespace weft::ladder
