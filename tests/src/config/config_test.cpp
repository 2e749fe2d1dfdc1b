// SPDX-License-Identifier: MIT
// Configs: what is written reads back, every error names its place and the way out, lookup by name,
// and the committed configs, reference and table of keys agree with the code.
#include "src/config/config.h"

#include "src/config/fields.h"
#include "src/config/names.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/parts/parts.h"
#include "tests/temp_dir.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace weft {
namespace {
const std::string kConfigs = std::string(WEFT_TEST_SOURCE) + "/configs/";

std::string parse_error(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { parse_config(yaml, "a.yaml", overrides); });
}

Config unusual_config() {
  Config c;
  c.name = "run 1: \"quoted\" \\ #";
  c.seed = 18446744073709551615u;
  c.precision = DType::f16;
  c.data.path = "/data/a file.h5";
  c.model.context = 1000;
  c.model.position_axes = {10, 10, 10};
  c.model.attention = {{"strided", 31, 1, 1}, {"fixed", 128, 8, 4}, {"local", 7, 2, 1}};
  c.model.dropout = 0.1;
  c.model.tied_output = true;
  c.train.learning_rate = 1.0 / 3;
  c.train.eps = 1e-300;
  c.train.batch = 8;
  c.train.context_schedule = {{0, 250}, {10, 1000}};
  return c;
}

TEST(Config, WhatIsWrittenReadsBack) {
  for (const bool documented : {false, true}) {
    for (const Config& c : {Config{}, unusual_config()}) {
      const std::string text = to_yaml(c, documented);
      const Config back = parse_config(text, "a.yaml");
      EXPECT_EQ(to_yaml(back), to_yaml(c)) << text;
      EXPECT_EQ(back.source, "a.yaml");
    }
  }
  const Config back = parse_config(to_yaml(unusual_config()), "a.yaml");
  EXPECT_EQ(back.name, unusual_config().name);
  EXPECT_EQ(back.seed, 18446744073709551615u);
  EXPECT_EQ(back.train.learning_rate, 1.0 / 3);
  EXPECT_EQ(back.train.eps, 1e-300);
  EXPECT_EQ(back.train.context_schedule, unusual_config().train.context_schedule);
  EXPECT_EQ(back.model.attention[1].num_verts, 4);
  EXPECT_EQ(back.model.attention.size(), 3u);
}

TEST(Config, PatternsAreWrittenWithTheFieldsThatTheyRead) {
  for (const char* text :
       {"{kind: all}", "{kind: all, causal: false, prefix: 3}",
        "{kind: local, stride: 5, length: 9}", "{kind: strided, stride: 5, documents: [0, 7, 12]}",
        "{kind: fixed, stride: 16, c: 3, num_verts: 2}",
        "{kind: fixed, stride: 16, num_verts: 1, block: 4}",
        "{kind: fixed, stride: 16, num_verts: 2, block: 4, vertsize: 2}"})
    EXPECT_EQ(to_yaml(parse_pattern(text, "here")), text);
  EXPECT_EQ(to_yaml(PatternSpec{"local", 7, 1, 1}), "{kind: local, stride: 7}");
  EXPECT_EQ(error_of([] { parse_pattern("[1]", "here"); }),
            "here: expected a pattern such as {kind: local, stride: 128}");
  EXPECT_CONTAINS(error_of([] { parse_pattern("{kind: [", "here"); }), "here:1: not valid YAML: ");
}

TEST(Config, ModelsRefuseWhatSeesTheFuture) {
  EXPECT_EQ(
      parse_error("model:\n  attention:\n  - {kind: local}\n  - {kind: all, causal: false}\n"),
      "a.yaml:4: model.attention: all(bidirectional) sees later positions, which the model shall "
      "predict; "
      "set causal: true (inspect draws such patterns, too)");
  const std::string bidirectional = "model:\n  attention: {kind: local, causal: false}\n";
  EXPECT_FALSE(
      parse_config(bidirectional, "a.yaml", {}, ConfigUse::picture).model.attention[0].causal);
}

TEST(Config, EmptyFileAndSectionsAreDefaults) {
  EXPECT_EQ(to_yaml(parse_config("", "a.yaml")), to_yaml(Config{}));
  EXPECT_EQ(to_yaml(parse_config("# nothing\nmodel:\ntrain: {}\n", "a.yaml")), to_yaml(Config{}));
}

TEST(Config, AttentionIsOnePatternOrAList) {
  const auto one =
      parse_config("model:\n  attention: {kind: local, stride: 64}\n", "a.yaml").model.attention;
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].kind, "local");
  EXPECT_EQ(one[0].stride, 64);
  const auto two =
      parse_config("model:\n  attention:\n    - kind: local\n    - kind: all\n", "a.yaml")
          .model.attention;
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].kind, "all");
}

TEST(Config, Overrides) {
  const Config c = parse_config(
      "train:\n  steps: 5\n", "a.yaml",
      {"train.steps=7", "model.attention=[{kind: local}]", "data.path=a=b.h5", "seed=3"});
  EXPECT_EQ(c.train.steps, 7);
  EXPECT_EQ(c.model.attention[0].kind, "local");
  EXPECT_EQ(c.data.path, "a=b.h5");
  EXPECT_EQ(c.seed, 3u);
}

TEST(Config, ErrorsOfKeys) {
  EXPECT_EQ(parse_error("model:\n  layers: 2\n  widht: 512\n"),
            "a.yaml:3: unknown key model.widht; did you mean model.width?");
  EXPECT_EQ(parse_error("width: 512\n"), "a.yaml:1: unknown key width; did you mean model.width?");
  EXPECT_EQ(parse_error("model:\n  init:\n    token_sdt: 1\n"),
            "a.yaml:3: unknown key model.init.token_sdt; did you mean model.init.token_std?");
  EXPECT_EQ(parse_error("modle:\n  width: 512\n"),
            "a.yaml:1: unknown key modle; did you mean model?");
  EXPECT_EQ(parse_error("data:\n  xyzzyx: 1\n"),
            "a.yaml:2: unknown key data.xyzzyx; known here: path, mix, mix_rate, mix_items, "
            "separator, labels, "
            "classes");
  EXPECT_EQ(parse_error("seed: 1\nname: a\nseed: 2\n"), "a.yaml:3: seed is given twice");
  EXPECT_EQ(parse_error("model: {attention: {kind: local, strid: 3}}\n"),
            "a.yaml:1: model.attention: unknown key strid of a pattern; did you mean stride? "
            "(known: kind, "
            "stride, c, num_verts, block, vertsize, causal, of, window, dilation, globals, random, "
            "seed, grid, "
            "filter, step, transposed, file, dataset, clusters, rounds, buckets, blocks, prefix, "
            "documents, "
            "length)");
  EXPECT_EQ(parse_error(
                "model:\n  attention:\n  - {kind: local, stride: 3}\n  - kind: local\n    c: 32\n"),
            "a.yaml:5: model.attention: a pattern {kind: local, stride: 128} does not read c; it "
            "reads kind, "
            "stride, causal, prefix, documents, length");
  EXPECT_CONTAINS(parse_error("model: {attention: {kind: fixed, block: 8, c: 8}}\n"),
                  "a.yaml:1: model.attention: a pattern {kind: fixed, stride: 128, num_verts: 1, "
                  "block: 8} does "
                  "not read c");
  EXPECT_CONTAINS(parse_error("model: {attention: {kind: fixed, vertsize: 2}}\n"),
                  "does not read vertsize");
  EXPECT_EQ(parse_error("model: {attention: {stride: 3}}\n"),
            "a.yaml:1: model.attention: a pattern needs a kind");
  EXPECT_EQ(parse_error("model:\n  attention:\n  - {kind: local}\n  - {kind: merged}\n"),
            "a.yaml:4: model.attention: of is required in a pattern of kind merged (merged: the "
            "patterns of the union; heads: the patterns that heads take in turn)");
  EXPECT_CONTAINS(parse_error("[1]: 2\n"),
                  "a.yaml:1: expected the name of a key, found a list of 1");
}

TEST(Config, ErrorsOfTypes) {
  EXPECT_EQ(parse_error("train:\n  batch: many\n"),
            "a.yaml:2: train.batch: expected an integer from 1 to 1048576, found many");
  EXPECT_EQ(parse_error("train:\n  steps: 1e6\n"),
            "a.yaml:2: train.steps: expected an integer of at least 1, found 1e6; write 1000000");
  EXPECT_EQ(parse_error("train:\n  steps: 1_000\n"),
            "a.yaml:2: train.steps: expected an integer of at least 1, found 1_000");
  EXPECT_EQ(parse_error("train:\n  steps: 2.5\n"),
            "a.yaml:2: train.steps: expected an integer of at least 1, found 2.5");
  EXPECT_EQ(parse_error("train:\n  steps: \"5\"\n"),
            "a.yaml:2: train.steps: expected an integer of at least 1, found the text \"5\"");
  EXPECT_EQ(parse_error("seed: -1\n"), "a.yaml:1: seed: expected an integer, found -1");
  EXPECT_EQ(parse_error("seed: 18446744073709551616\n"),
            "a.yaml:1: seed: expected an integer, found 18446744073709551616");
  EXPECT_EQ(parse_error("train: {graph: yes}\n"),
            "a.yaml:1: train.graph: expected true or false, found yes");
  EXPECT_EQ(parse_error("train:\n  learning_rate:\n"),
            "a.yaml:2: train.learning_rate: expected a number of more than 0, found nothing");
  EXPECT_EQ(parse_error("train: {learning_rate: .inf}\n"),
            "a.yaml:1: train.learning_rate: expected a number of more than 0, found .inf");
  EXPECT_EQ(parse_error("train: {learning_rate: nan}\n"),
            "a.yaml:1: train.learning_rate: expected a number of more than 0, found nan");
  EXPECT_EQ(parse_error("name: [a]\n"), "a.yaml:1: name: expected a text, found a list of 1");
  EXPECT_CONTAINS(parse_error("model: 3\n"),
                  "a.yaml:1: model: expected keys with values (kind, vocab, ");
  EXPECT_CONTAINS(parse_error("just words\n"),
                  "a.yaml:1: the config: expected keys with values (name, seed, ");
  EXPECT_EQ(
      parse_error("model: {position_axes: 96}\n"),
      "a.yaml:1: model.position_axes: expected a list of integers such as [96, 128], found 96");
  EXPECT_EQ(parse_error("train: {context_schedule: [[0, 1536, 3]]}\n"),
            "a.yaml:1: train.context_schedule: expected a list of [step, context] pairs such as "
            "[[0, 1536], "
            "[1500, 12288]], "
            "found a list of 3");
  EXPECT_CONTAINS(parse_error("model: {attention: fixed}\n"),
                  "model.attention: expected a pattern such as {kind: fixed, stride: 128, c: 32}, "
                  "or a list of them, "
                  "found fixed");
  EXPECT_CONTAINS(parse_error("model: {attention: []}\n"), "found a list of 0");
}

std::string kinds_text() {
  std::string text;
  const std::size_t count = patterns().size();
  for (std::size_t i = 0; i < count; ++i)
    text += (i == 0 ? "" : i + 1 == count ? " or " : ", ") + std::string(patterns()[i].kind);
  return text;
}

TEST(Config, ErrorsOfValues) {
  EXPECT_EQ(parse_error("seed: 1\nprecision: fp16\n"),
            "a.yaml:2: precision: expected f32, f16 or bf16, found fp16; did you mean f16?");
  EXPECT_EQ(parse_error("model: {dropout: 1}\n"),
            "a.yaml:1: model.dropout: expected a number of at least 0 and less than 1, found 1");
  EXPECT_EQ(parse_error("model:\n  attention:\n  - kind: loca\n"),
            str("a.yaml:3: model.attention.kind: expected ", kinds_text(),
                ", found loca; did you mean local?"));
  EXPECT_EQ(
      parse_error("model:\n  attention:\n  - {kind: all}\n  - {kind: fixed, stride: 16, c: 17}\n")
          .substr(0, 9),
      "a.yaml:4:");
  EXPECT_CONTAINS(parse_error("name: a/b\n"), "a.yaml:1: name: expected the name of a folder");
}

TEST(Config, TokensOfAnUpdateInPlaceOfSequences) {
  const std::string yaml = "model: {context: 128, position_axes: [128]}\ntrain:\n";
  const auto batch = [&](const std::string& train, const std::vector<std::string>& overrides = {}) {
    const Config config = parse_config(yaml + train, "a.yaml", overrides);
    EXPECT_EQ(config.train.batch_tokens, 0);  // said by train.batch from here on
    return config.train.batch;
  };
  EXPECT_EQ(batch("  batch_tokens: 1024\n"), 8);
  EXPECT_EQ(batch("  batch: 3\n  batch_tokens: 0\n"), 3);
  // What is set on the command line takes the place of what stands in the file.
  EXPECT_EQ(batch("  batch: 3\n", {"train.batch_tokens=256"}), 2);
  EXPECT_EQ(batch("  batch_tokens: 1024\n", {"train.batch=5"}), 5);
  EXPECT_EQ(batch("  batch_tokens: 1024\n", {"model.context=64"}), 16);
  EXPECT_EQ(parse_config(to_yaml(parse_config(yaml + "  batch_tokens: 1024\n", "a.yaml")), "b.yaml")
                .train.batch,
            8);
  EXPECT_EQ(parse_error(yaml + "  batch_tokens: 1000\n"),
            "a.yaml:3: train.batch_tokens 1000 is not a multiple of model.context 128; 896 or 1024 "
            "works");
  EXPECT_EQ(parse_error(yaml + "  batch_tokens: 5\n"),
            "a.yaml:3: train.batch_tokens 5 is not a multiple of model.context 128; 128 works");
  EXPECT_EQ(parse_error(yaml + "  batch_tokens: 1024\n  batch: 8\n"),
            "a.yaml:3: train.batch_tokens and train.batch (a.yaml:4) say the same thing; keep one "
            "of them");
  EXPECT_CONTAINS(parse_error(yaml + "  batch_tokens: 1024\n  accumulation: 3\n"),
                  "does not divide train.batch 8");
}

TEST(Config, ErrorsOfValuesThatDoNotFitTogether) {
  EXPECT_EQ(parse_error("model:\n  width: 500\n"),
            "a.yaml:2: model.width / model.heads = 500 / 8 = 62.5: a head needs a multiple of 8 "
            "from 8 to "
            "256 features; "
            "with these heads, width 448 or 512 works");
  EXPECT_EQ(
      parse_error("model:\n  heads: 1\n"),
      "a.yaml:2: model.width / model.heads = 512 / 1 = 512: a head needs a multiple of 8 from "
      "8 to 256 features; with these heads, width 256 works");
  EXPECT_CONTAINS(parse_error("model:\n  qk_ratio: 0.3\n"),
                  "a.yaml:2: model.qk_ratio * model.width / model.heads");
  EXPECT_CONTAINS(parse_error("model:\n  mlp_ratio: 0.001\n"),
                  "a.yaml:2: model.mlp_ratio * model.width");
  EXPECT_EQ(
      parse_error("model:\n  context: 12289\n"),
      "a.yaml:2: model.position_axes give 12288 positions, fewer than model.context 12289; a first "
      "axis of 97 is "
      "enough");
  EXPECT_CONTAINS(parse_error("model: {position_axes: [2, 2, 2, 2]}\n"),
                  "expected 1 to 3 axes, found 4");
  const std::string rotary = "model: {positions: rotary, context: 200, position_axes: ";
  EXPECT_EQ(parse_error(rotary + "[64]}\n"), "") << "one axis has no end";
  EXPECT_CONTAINS(parse_error(rotary + "[8, 8]}\n"), "a first axis of 25 is enough");
  EXPECT_CONTAINS(parse_error("model: {rotary_base: 0}\n"),
                  "model.rotary_base: expected a number of more than 0");
  EXPECT_EQ(parse_error("train:\n  batch: 4\n  accumulation: 3\n"),
            "a.yaml:3: train.accumulation 3 does not divide train.batch 4; accumulation 2 or batch "
            "6 works");
  const std::string schedule = "train:\n  context_schedule: ";
  EXPECT_CONTAINS(parse_error(schedule + "[[1, 1536]]"),
                  "a.yaml:2: train.context_schedule: expected the first pair to start");
  EXPECT_CONTAINS(parse_error(schedule + "[[0, 1536], [0, 12288]]"),
                  "expected ascending steps, found 0 after 0");
  EXPECT_CONTAINS(parse_error(schedule + "[[0, 24576]]"),
                  "expected contexts from 1 to model.context 12288");
  EXPECT_CONTAINS(parse_error(schedule + "[[0, 1000]]"),
                  "nearest contexts that work: 768 and 1024");
  EXPECT_CONTAINS(parse_error("train: {batch: 4, accumulation: 4, context_schedule: [[0, "
                              "16384]]}\nmodel: {context: 16384, "
                              "position_axes: [128, 128]}\n",
                              {"train.context_schedule=[[0, 15000]]"}),
                  "--set train.context_schedule: the 65536 tokens");
}

TEST(Config, ErrorsOfOverrides) {
  EXPECT_EQ(parse_error("", {"train.steps"}),
            "--set train.steps: expected KEY=VALUE, for example train.steps=100");
  EXPECT_EQ(parse_error("", {"train.stpes=3"}),
            "--set train.stpes: unknown key train.stpes; did you mean train.steps?");
  EXPECT_EQ(parse_error("", {"steps=3"}),
            "--set steps: unknown key steps; did you mean train.steps?");
  EXPECT_EQ(parse_error("", {"train.precision=f32"}),
            "--set train.precision: unknown key train.precision; did you mean precision, which "
            "stands at the top?");
  EXPECT_EQ(parse_error("train: {precision: f32}", {}),
            "a.yaml:1: unknown key train.precision; did you mean precision, which stands at the "
            "top?");
  EXPECT_EQ(parse_error("", {"train.width=64"}),
            "--set train.width: unknown key train.width; did you mean model.width?");
  EXPECT_EQ(parse_error("", {"train.steps=0"}),
            "--set train.steps: expected an integer of at least 1, found 0");
  EXPECT_EQ(parse_error("", {"model.attention={kind: nowhere}"}).substr(0, 45),
            "--set model.attention: model.attention.kind: ");
  EXPECT_EQ(parse_error("", {"data={path: a}"}),
            "--set data: is a section; set one of its keys: data.path, data.mix, data.mix_rate, "
            "data.mix_items, "
            "data.separator, data.labels, data.classes");
  EXPECT_CONTAINS(parse_error("", {"train.steps=[1"}),
                  "--set train.steps: the value is not valid YAML");
  EXPECT_CONTAINS(parse_error("model:\n  width: 512\n", {"model.heads=7"}),
                  "--set model.heads: model.width / model.heads");
  EXPECT_CONTAINS(parse_error("model:\n  heads: 4\n", {"model.width=130"}),
                  "--set model.width: model.width / model.heads = 130 / 4");
  EXPECT_CONTAINS(parse_error("train:\n  accumulation: 2\n", {"train.batch=5"}),
                  "--set train.batch: train.accumulation 2 does not divide");
}

TEST(Config, ErrorsOfYaml) {
  EXPECT_CONTAINS(parse_error("seed: 1\nmodel: {a: [\n"), "not valid YAML");
  EXPECT_EQ(parse_error("seed: 1\nname: a: b\n").substr(0, 26), "a.yaml:2: not valid YAML: ");
  for (const char* two : {"seed: 1\n---\nseed: 2\n", "{seed: 1}, name", "[], ", ", "})
    EXPECT_EQ(parse_error(two), "a.yaml: expected one YAML document, but something follows it")
        << two;
  EXPECT_EQ(parse_error("", {"model.attention={kind: all}, {kind: all}"}),
            "--set model.attention: expected one YAML document, but something follows it");
}

TEST(Config, StructsFilledByCodeAreCheckedToo) {
  Config c;
  check_config(c);
  c.train.batch = 0;
  EXPECT_EQ(error_of([&] { check_config(c); }),
            "train.batch: expected a number from 1 to 1048576, found 0");
  c = Config{};
  c.precision = DType::i32;
  EXPECT_EQ(error_of([&] { check_config(c); }),
            "precision: expected one of f32, f16, bf16, found another value");
}

TEST(Config, RandomTextNeverCrashes) {
  std::mt19937 random(1);
  const std::string whole = to_yaml(unusual_config(), true);
  const std::string letters = "[]{}:,-&*!?|>'\"%@`#\n\t \x80\x01";
  for (int round = 0; round < 500; ++round) {
    std::string text = whole.substr(0, random() % whole.size());
    for (unsigned k = 0; k < random() % 6; ++k)
      text.insert(random() % (text.size() + 1), 1, letters[random() % letters.size()]);
    parse_error(text);
  }
  parse_error(std::string(20000, '['));
  parse_error("&a [*a]");
  parse_error("model: &a {init: *a}");
}

TEST(Config, IsFoundByName) {
  TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::create_directory(dir / "configs");
  write_file(dir / "configs/small.yaml", "seed: 1\n");
  std::filesystem::create_directory(dir / "configs/folder");
  write_file(dir / "configs/folder/deep.yaml", "seed: 3\n");
  write_file(dir / "configs/folder/small.yaml", "seed: 4\n");
  write_file(dir / "here.yaml", "seed: 2\n");
  std::filesystem::current_path(dir.path());
  EXPECT_EQ(load_config("small").seed, 1u);
  EXPECT_EQ(load_config("small.yaml").source, "configs/small.yaml");
  EXPECT_EQ(load_config("deep").source, "configs/folder/deep.yaml") << "a folder inside configs/";
  EXPECT_EQ(load_config("here").seed, 2u);
  EXPECT_EQ(load_config(dir / "here.yaml", {"seed=5"}).seed, 5u);
  EXPECT_EQ(load_config("reference").source,
            std::filesystem::canonical(kConfigs + "reference.yaml"))
      << "from the source tree of the executable";
  const std::string error = error_of([] { load_config("smal.yaml"); });
  EXPECT_CONTAINS(
      error,
      "no config smal.yaml; did you mean small.yaml? Looked for smal.yaml, configs/smal.yaml");
  EXPECT_CONTAINS(error, "there are audio_1m.yaml, ");
  EXPECT_CONTAINS(error_of([&] { load_config(dir.path()); }), "no config");
  write_file(dir / "big.yaml", std::string(2 << 20, ' '));
  EXPECT_CONTAINS(error_of([] { load_config("big.yaml"); }), "big.yaml: has 2097152 bytes");
  std::filesystem::current_path(before);
}

TEST(Config, CommittedConfigsAreValid) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".yaml") continue;
    ++count;
    const std::string error = error_of([&] { load_config(entry.path()); });
    if (error.find("which this build leaves out") != std::string::npos) continue;
    EXPECT_EQ(error, "") << entry.path();
  }
  EXPECT_GE(count, 5);
}

// With WEFT_UPDATE=1 the file is brought up to date instead.
void expect_generated(const std::string& path, const std::string& text) {
  if (const char* update = std::getenv("WEFT_UPDATE"); update && std::string(update) == "1")
    write_file(path, text);
  const std::string there = read_file(path);
  const auto differs = std::ranges::mismatch(there, text).in1;
  EXPECT_TRUE(there == text)
      << path << " is old from line " << 1 + std::count(there.begin(), differs, '\n')
      << " on: run WEFT_UPDATE=1 build/cpu/bin/weft_tests --gtest_filter='Config.*Generated'";
}

bool with_every_part() {
  return std::ranges::all_of(parts(), [](const Part& part) { return part.built; });
}

TEST(Config, ReferenceIsGenerated) {
  if (!with_every_part()) GTEST_SKIP() << "it lists what all parts bring";
  expect_generated(kConfigs + "reference.yaml", to_yaml(Config{}, true));
}

// The tables of configs/README.md: the keys of a pattern, and the kinds that read them.
std::string config_table() {
  std::string out =
      "An entry of `model.attention`:\n\n| key | default | meaning |\n|---|---|---|\n";
  PatternSpec pattern;
  for_each_pattern_field(pattern, [&](const Field& f) {
    out += "| `" + f.key + "` | `" + value_text(f) + "` | ";
    for (const char c : full_comment(f)) out += c == '|' ? std::string("\\|") : std::string(1, c);
    out += " |\n";
  });
  out +=
      "\n| kind | reads besides `prefix`, `documents`, `length` | what a query sees "
      "|\n|---|---|---|\n";
  for (const PatternKind& p : patterns()) {
    const std::string fields = joined(p.fields(PatternSpec{p.kind}), "`, `");
    out += str("| `", p.kind, "` | ", fields.empty() ? "" : "`" + fields + "`", " | ", p.summary,
               " |\n");
  }
  return out;
}

TEST(Config, TableOfKeysIsGenerated) {
  if (!with_every_part()) GTEST_SKIP() << "it lists what all parts bring";
  const std::string path = kConfigs + "README.md", begin = "<!-- keys: generated -->\n",
                    end = "<!-- end -->\n";
  const std::string text = read_file(path);
  const std::size_t first = text.find(begin), last = text.find(end);
  ASSERT_TRUE(first != std::string::npos && last != std::string::npos && first < last);
  expect_generated(path, text.substr(0, first + begin.size()) + "\n" + config_table() + "\n" +
                             text.substr(last));
}
}  // namespace
}  // namespace weft
