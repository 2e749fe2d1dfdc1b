// SPDX-License-Identifier: MIT
// The numbers of models/TOUR.md: the real layers, with the weights that its chapter 1 names, print
// what the tour shows. The tour's own program computes them in Python (models/tour/eight.py).
#include "kernels/attention/definition.h"
#include "src/attention_maps.h"
#include "src/config/read_config.h"
#include "tests/models/model_testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <numbers>
#include <numeric>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {
constexpr std::string_view kText = "tokentok", kLetters = "token";
constexpr std::size_t kRows = 8, kWidth = 8;
constexpr int64_t kRow = 6;             // the row whose steps the tour shows
constexpr double kHalfADigit = 0.5e-4;  // what rounding to four decimals takes
constexpr double kBound = 1.01 * kHalfADigit;

// ---- what the tour says ----

std::string tour() {
  std::ifstream file(WEFT_TEST_SOURCE "/models/TOUR.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The lines that the tour shows below `$ python3 models/tour/eight.py <options>`.
std::vector<std::string> output_of(const std::string& options) {
  std::istringstream text(tour());
  std::vector<std::string> lines;
  bool found = false;
  for (std::string line; std::getline(text, line);) {
    if (found && (line.starts_with("$ ") || line.starts_with("```"))) return lines;
    if (found) lines.push_back(line);
    found = found || line == "$ python3 models/tour/eight.py" + options;
  }
  ADD_FAILURE() << "models/TOUR.md shows no output of eight.py" << options;
  return {};
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<double> numbers_in(const std::string& line) {
  std::vector<double> numbers;
  for (const std::string& word : words_of(line))
    if (word.find('.') != std::string::npos && word != ".") numbers.push_back(std::stod(word));
  return numbers;
}

// ---- the model of the tour ----

const std::map<std::string, double>& gains() {
  static const std::map<std::string, double> numbers = {
      {"embedding", -1.0},
      {"query", -1.0},
      {"key", 1.0},
      {"value", -1.0},
      {"projection", std::sqrt(7.0) / 8},
      {"up", 1.0},
      {"down", 0.25},
      {"output", 4.0},
  };
  return numbers;
}

// A parameter's elements that are one of the numbers; all others are 0, those of norms 1.
struct Place {
  std::string parameter;
  std::vector<std::size_t> elements;
};

Place place_of(const std::string& name) {
  const auto diagonal = [](std::size_t first_row) {
    std::vector<std::size_t> elements;
    for (std::size_t f = 0; f < kWidth; ++f) elements.push_back((first_row + f) * kWidth + f);
    return elements;
  };
  std::vector<std::size_t> letters;
  for (std::size_t f = 0; f < kLetters.size(); ++f)
    letters.push_back(static_cast<unsigned char>(kLetters[f]) * kWidth + f);
  if (name == "embedding") return {"token_embedding", letters};
  if (name == "output") return {"output.weight", letters};
  if (name == "query") return {"blocks.0.attention.qkv.weight", diagonal(0)};
  if (name == "key") return {"blocks.0.attention.qkv.weight", diagonal(kWidth)};
  if (name == "value") return {"blocks.0.attention.qkv.weight", diagonal(2 * kWidth)};
  if (name == "projection") return {"blocks.0.attention.proj.weight", diagonal(0)};
  return {"blocks.0.mlp." + name + ".weight", diagonal(0)};
}

struct Eight : SmallModel {
  Eight()
      : SmallModel(load_config(WEFT_TEST_SOURCE "/models/tour/eight.yaml"), DType::f64) {
    Ctx ctx = engine.ctx();
    for (const ParamInfo& p : store.params()) {
      const double rest = p.name.ends_with("norm.weight") ? 1 : 0;
      std::vector<double> values(static_cast<std::size_t>(p.size), rest);
      for (const auto& [name, gain] : gains())
        if (const Place place = place_of(name); place.parameter == p.name)
          for (const std::size_t element : place.elements) values.at(element) = gain;
      engine.upload(store.master().slice(p.offset, p.shape), values);
    }
    store.refresh_compute(ctx);
  }

  Tensor text() { return engine.tensor({1, kRows}, {kText.begin(), kText.end()}, DType::i32); }

  // The parameter as kernels read it.
  Var weight(const std::string& name) const {
    for (std::size_t i = 0; i < store.params().size(); ++i)
      if (store.params()[i].name == name) return store.var({static_cast<int32_t>(i)});
    ADD_FAILURE() << "the model has no " << name;
    return {};
  }

  Var normed(Ctx& ctx, const Var& x, const std::string& norm) const {
    return layernorm(ctx, x, weight(norm + ".weight"), weight(norm + ".bias"));
  }

  std::vector<double> row(const Var& x, int64_t number = kRow) {
    const std::vector<double> all = engine.host(x.value);
    const auto columns = static_cast<std::ptrdiff_t>(all.size() / kRows);
    return {all.begin() + number * columns, all.begin() + (number + 1) * columns};
  }
};

// What the layers compute of all rows, one after the other.
struct Steps {
  Var embedded, normed, packed, attended, middle, end, logits;
};

Steps steps_of(Eight& eight) {
  Ctx ctx = eight.engine.ctx();
  const std::string block = "blocks.0.";
  const AttentionShape shape{1, kWidth, kWidth};
  Steps s;
  s.embedded = embedding(
      ctx, eight.text(),
      {eight.weight("token_embedding"), eight.weight("start"), {{eight.weight("position.0"), 1}}});
  s.normed = eight.normed(ctx, s.embedded, block + "attention_norm");
  s.packed = linear(ctx, s.normed, eight.weight(block + "attention.qkv.weight"),
                    eight.weight(block + "attention.qkv.bias"));
  const DeviceMaps maps(*eight.engine.device, *eight.model->patterns()[0], 1,
                        {static_cast<int64_t>(kRows), static_cast<int64_t>(kRows)}, kWidth);
  s.attended = sparse_attention(ctx, s.packed, shape, maps.maps());
  const Var branch = linear(ctx, s.attended, eight.weight(block + "attention.proj.weight"), Var{});
  s.middle = residual_dropout(ctx, s.embedded, branch, 0);
  const Var hidden = mlp(ctx, eight.normed(ctx, s.middle, block + "mlp_norm"),
                         eight.weight(block + "mlp.up.weight"), eight.weight(block + "mlp.up.bias"),
                         eight.weight(block + "mlp.down.weight"), Activation::relu2);
  s.end = residual_dropout(ctx, s.middle, hidden, 0);
  s.logits =
      linear(ctx, eight.normed(ctx, s.end, "final_norm"), eight.weight("output.weight"), Var{});
  return s;
}

// The query, key or value of all rows, out of (q | k | v).
definition::Matrix third(Eight& eight, const Var& packed, std::size_t which) {
  definition::Matrix rows;
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::vector<double> all = eight.row(packed, static_cast<int64_t>(i));
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(which * kWidth);
    rows.emplace_back(first, first + kWidth);
  }
  return rows;
}

definition::Head head_of(Eight& eight, const Var& packed) {
  return {third(eight, packed, 0), third(eight, packed, 1), third(eight, packed, 2),
          1 / std::sqrt(static_cast<double>(kWidth)),
          [](std::size_t i, std::size_t j) { return j <= i && (i - j) % 4 == 0; }};
}

// The weights of the keys that query i sees.
std::vector<double> weights_of(const definition::Head& head, std::size_t i) {
  const definition::Output out = definition::forward(head);
  std::vector<double> weights;
  for (std::size_t j = 0; j < kRows; ++j)
    if (head.attends(i, j))
      weights.push_back(std::exp(head.scale * definition::dot(head.q[i], head.k[j]) - out.lse[i]));
  return weights;
}

void expect_shown(const std::vector<double>& shown, const std::vector<double>& computed,
                  const std::string& what) {
  ASSERT_EQ(shown.size(), computed.size()) << what;
  for (std::size_t i = 0; i < shown.size(); ++i)
    EXPECT_NEAR(shown[i], computed[i], kBound) << what << ", number " << i;
}

// ---- the tests ----

TEST(Tour, LossesOfTheRowsAreThoseOfTheModel) {
  Eight eight;
  Ctx ctx = eight.engine.ctx();
  const definition::Head head = head_of(eight, steps_of(eight).packed);
  const std::vector<double> losses =
      eight.engine.host(eight.model->token_losses(ctx, eight.text()).value);
  const std::vector<std::string> lines = output_of("");
  ASSERT_EQ(lines.size(), kRows + 2) << "a heading, a line for each row, the mean";
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::vector<std::string> words = words_of(lines[i + 1]);
    std::vector<std::string> wanted = {std::to_string(i),
                                       i == 0 ? "start" : std::string(1, kText[i - 1])};
    for (std::size_t j = 0; j < kRows; ++j)
      if (head.attends(i, j)) wanted.push_back(std::to_string(j));
    ASSERT_GT(words.size(), wanted.size());
    EXPECT_EQ(std::vector(words.begin(), words.begin() + std::ssize(wanted)), wanted);
    EXPECT_EQ(words.back(), std::string(1, kText[i]));
    std::vector<double> numbers = weights_of(head, i);
    numbers.push_back(losses[i]);
    expect_shown(numbers_in(lines[i + 1]), numbers, str("row ", i));
  }
  const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / kRows;
  expect_shown(numbers_in(lines.back()), {mean, mean / std::numbers::ln2}, "the mean");
}

TEST(Tour, StepsOfRowSixAreThoseOfTheLayers) {
  Eight eight;
  const Steps s = steps_of(eight);
  std::vector<double> query = eight.row(s.packed), logits;
  query.resize(kWidth);
  const std::vector<double> all = eight.row(s.logits);
  for (const unsigned char letter : kLetters) logits.push_back(all[letter]);
  const std::map<std::string, std::vector<double>> steps = {{"embedded", eight.row(s.embedded)},
                                                            {"normed", eight.row(s.normed)},
                                                            {"query", query},
                                                            {"attended", eight.row(s.attended)},
                                                            {"middle", eight.row(s.middle)},
                                                            {"end", eight.row(s.end)},
                                                            {"logits", logits}};
  std::size_t found = 0;
  for (const std::string& line : output_of(" --row 6")) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty() || !steps.contains(words[0])) continue;
    ++found;
    expect_shown(numbers_in(line), steps.at(words[0]), words[0]);
  }
  EXPECT_EQ(found, steps.size());
}

TEST(Tour, WeightsOfTheAttentionAreTheDefinitions) {
  Eight eight;
  const Steps s = steps_of(eight);
  const definition::Head head = head_of(eight, s.packed);
  const definition::Output out = definition::forward(head);
  const std::vector<std::string> lines = output_of(" --attention");
  ASSERT_EQ(lines.size(), kRows + 1) << "a heading, a line for each query";
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::vector<std::string> words = words_of(lines[i + 1]);
    ASSERT_EQ(words.size(), kRows + 1);
    for (std::size_t j = 0; j < kRows; ++j)
      EXPECT_EQ(words[j + 1] != ".", head.attends(i, j)) << "query " << i << ", key " << j;
    expect_shown(numbers_in(lines[i + 1]), weights_of(head, i), str("query ", i));
    expect_near(eight.row(s.attended, static_cast<int64_t>(i)), out.y[i], 1e-12, str("row ", i));
  }
}

// Numbers of four decimals in the text of chapters 1 and 4 are those of an output, or follow from
// the roots of 7 and 8, and from the two scores of row 6.
TEST(Tour, NumbersOfTheTextFollowFromTheModel) {
  Eight eight;
  const definition::Head head = head_of(eight, steps_of(eight).packed);
  const auto score = [&](std::size_t j) {
    return head.scale * definition::dot(head.q[kRow], head.k[j]);
  };
  const double shrink = std::exp(score(6) - score(2));
  std::vector<double> known = {
      std::sqrt(7.0), 1 / std::sqrt(7.0), std::sqrt(7.0) / 8, std::sqrt(8.0), shrink, 1 + shrink};
  for (const char* options : {"", " --row 6", " --attention"})
    for (const std::string& line : output_of(options))
      for (const double number : numbers_in(line)) known.push_back(std::abs(number));
  std::string text = tour();
  text = text.substr(text.find("\n## 1. "), text.find("\n## 2. ") - text.find("\n## 1. ")) +
         text.substr(text.find("\n## 4. "), text.find("\n## 5. ") - text.find("\n## 4. "));
  text = std::regex_replace(text, std::regex("```[^`]*```"), "");
  const std::regex four_decimals("[0-9]+\\.[0-9]{4}(?![0-9])");
  std::size_t found = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), four_decimals), end; at != end; ++at) {
    ++found;
    const double number = std::stod(at->str());
    EXPECT_TRUE(std::ranges::any_of(
        known, [&](double value) { return std::abs(value - number) <= kBound; }))
        << at->str() << " is no number of the model";
  }
  EXPECT_GE(found, 15U);
}

// A number of the model stands at several elements: its slope is the sum of their gradients.
TEST(Tour, SlopesAreSumsOfGradients) {
  Eight eight;
  eight.differentiate(eight.text());
  std::size_t found = 0;
  for (const auto& [name, unused] : gains()) {
    const std::string command = "$ python3 models/tour/eight.py --gradient " + name + "\n";
    if (tour().find(command) == std::string::npos) continue;
    ++found;
    const Place place = place_of(name);
    double slope = 0;
    for (const ParamInfo& p : eight.store.params()) {
      if (p.name != place.parameter) continue;
      const std::vector<double> gradients =
          eight.engine.host(eight.store.gradients().slice(p.offset, p.shape));
      for (const std::size_t element : place.elements) slope += gradients.at(element);
    }
    expect_shown(numbers_in(output_of(" --gradient " + name).at(0)), {slope}, name);
  }
  EXPECT_GE(found, 2U) << "the tour shows too few slopes";
}
}  // namespace
}  // namespace weft
