// SPDX-License-Identifier: MIT
// The drawings of patterns made by hand (tests/golden/patterns, and drawings/ beside the tests of a
// part): at least one of each kind, so that tests which go through them take in new kinds by
// themselves.
#pragma once

#include "src/config/read_config.h"
#include "src/parts/parts.h"
#include "src/patterns/spec.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
struct Drawing {
  std::string file;
  PatternSpec spec;
  int heads = 1, head = 0;
  std::string text;
};

// The pattern as in a config, "heads 2 head 1", an empty line, the drawing.
inline Drawing read_drawing(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string pattern, heads, empty, word;
  std::getline(in, pattern);
  std::getline(in, heads);
  std::getline(in, empty);
  EXPECT_EQ(empty, "") << path;
  Drawing d;
  d.file = path.stem();
  d.spec = parse_pattern(pattern, path);
  if (!d.spec.file.empty()) d.spec.file = std::filesystem::path(WEFT_TEST_SOURCE) / d.spec.file;
  for (std::istringstream words(heads); words >> word;) {
    if (word == "heads")
      words >> d.heads;
    else if (word == "head")
      words >> d.head;
    else
      ADD_FAILURE() << path << ": unknown word " << word;
  }
  std::ostringstream rest;
  rest << in.rdbuf();
  d.text = rest.str();
  return d;
}

// Whether the file draws a kind of a part that this build leaves out.
inline bool draws_absent(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string before, kind;
  std::getline(in, before, ' ');  // "{kind: local, ..."
  std::getline(in, kind, ',');
  return !absent_part_text(kind).empty();
}

// All of them, by name.
inline std::vector<Drawing> drawings() {
  std::vector<std::filesystem::path> files;
  const auto tests = std::filesystem::path(WEFT_TEST_SOURCE) / "tests";
  for (const auto& folder : {tests / "golden/patterns", tests / "src/patterns"})
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder))
      if (file.path().extension() == ".txt" && !draws_absent(file.path()))
        files.push_back(file.path());
  std::sort(files.begin(), files.end());
  std::vector<Drawing> all;
  for (const auto& file : files) all.push_back(read_drawing(file));
  return all;
}
}  // namespace weft
