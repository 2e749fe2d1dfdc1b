// SPDX-License-Identifier: MIT
// What a person may ask of a part that is not built is refused with the switch that brings it.
#include "src/parts/parts.h"

#include "src/config/config.h"
#include "src/config/fields.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "tests/temp_dir.h"

#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

namespace weft {
namespace {
std::vector<std::string> words_of(const Part& part) {
  std::istringstream holds{std::string(part.holds)};
  std::vector<std::string> words;
  for (std::string word; holds >> word;) words.push_back(word);
  return words;
}

TEST(Parts, AnAbsentOneNamesItsSwitch) {
  std::set<std::string> names;
  for (const Part& part : parts()) {
    EXPECT_TRUE(names.insert(std::string(part.name)).second) << part.name << " is there twice";
    for (const std::string& word : words_of(part)) {
      const std::string text = absent_part_text(word);
      if (part.built)
        EXPECT_EQ(text, "") << word;
      else
        EXPECT_CONTAINS(text, str("configure with -D", part.option, "=ON"));
    }
  }
  EXPECT_EQ(absent_part_text("train.batch"), "");
  EXPECT_EQ(absent_part_text(""), "");
}

// Another value than the default.
void change(const Field::Value& value) {
  if (auto* const* flag = std::get_if<bool*>(&value)) **flag = !**flag;
  if (auto* const* number = std::get_if<int64_t*>(&value)) ++**number;
  if (auto* const* share = std::get_if<double*>(&value)) **share /= 2;
  if (auto* const* text = std::get_if<std::string*>(&value)) **text += "x";
}

TEST(Parts, KeysOfAbsentOnesKeepTheirDefaults) {
  Config plain;
  std::vector<std::string> keys;
  for_each_field(plain, [&](const Field& field) { keys.push_back(field.key); });
  check_config(plain);
  for (const Part& part : parts()) {
    if (part.built) continue;
    const std::vector<std::string> words = words_of(part);
    const std::set<std::string> held(words.begin(), words.end());
    for (const std::string& key : keys) {
      if (!held.contains(key) && !held.contains(key.substr(0, key.find('.')))) continue;
      Config config;
      for_each_field(config, [&](const Field& field) {
        if (field.key == key) change(field.value);
      });
      if (to_yaml(config) == to_yaml(plain)) continue;  // a share of 0, a list
      const std::string error = error_of([&] { check_config(config); });
      EXPECT_CONTAINS(error, key + ": ");
      EXPECT_CONTAINS(error, std::string(part.option));
    }
  }
}

TEST(Parts, APatternOfAnAbsentOneNamesItsSwitch) {
  for (const Part& part : parts())
    for (const std::string& word : words_of(part)) {
      if (part.built || word.find_first_of(".-") != std::string::npos) continue;
      const std::string error = error_of([&] { parse_pattern("{kind: " + word + "}", "here"); });
      EXPECT_CONTAINS(error, std::string(part.option));
    }
}
}  // namespace
}  // namespace weft
