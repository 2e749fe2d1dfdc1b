// SPDX-License-Identifier: MIT
// libweft_sampler beside the model itself: logits bit for bit, alone and in a batch; mistakes; its
// example, and the Python package over it.
#include "train/sampling/sampler.h"

#include "src/config/config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "src/parts/parts.h"
#include "tests/run_python.h"
#include "tests/train/training.h"
#include "train/program/loaded_model.h"
#include "train/sampling/capi/weft_sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft {
namespace {
using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;

class SamplerLibrary : public testing::Test {
 protected:
  SamplerLibrary() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    train(small_config(dir.path()), {.out = dir / "run", .device = "cpu"});
    expect_ok(weft_sampler_open(path.c_str(), WEFT_CPU, &sampler));
  }

  ~SamplerLibrary() override { weft_sampler_close(sampler); }

  static void expect_ok(weft_status status) {
    ASSERT_EQ(status, WEFT_OK) << weft_sampler_last_error();
  }

  weft_sampler_text* open(int64_t batch = 1, int64_t length = 0) const {
    weft_sampler_text* text = nullptr;
    expect_ok(weft_sampler_text_open(sampler, batch, length, &text));
    return text;
  }

  static void feed(weft_sampler_text* text, const Tokens& tokens, int64_t batch = 1) {
    expect_ok(weft_sampler_text_feed(text, tokens.data(), std::ssize(tokens) / batch));
  }

  static Logits logits(weft_sampler_text* text, int64_t batch = 1) {
    Logits values(static_cast<std::size_t>(32 * batch));
    expect_ok(weft_sampler_text_logits(text, values.data()));
    return values;
  }

  // Logits after each of these pieces, in a text of its own.
  std::vector<Logits> after(const std::vector<Tokens>& pieces) const {
    std::vector<Logits> all;
    weft_sampler_text* text = open();
    for (const Tokens& piece : pieces) {
      feed(text, piece);
      all.push_back(logits(text));
    }
    weft_sampler_text_close(text);
    return all;
  }

  TempDir dir;
  std::string path = dir / "run/latest.h5";
  weft_sampler* sampler = nullptr;
};

Tokens counted(int64_t count, int64_t first) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((first + 7 * i) % 32));
  return tokens;
}

TEST_F(SamplerLibrary, LogitsAreTheRowsOfTheModel) {
  const auto loaded = load_model(path, "cpu");
  const Tokens tokens = counted(64, 3);
  const Tensor input(*loaded->device->pool, {1, 64}, DType::i32);
  loaded->device->upload(input, tokens.data());
  Ctx ctx = loaded->inference();
  const std::vector<double> rows = to_host(*loaded->device, loaded->model->logits(ctx, input));
  std::vector<Tokens> pieces = {{}, {}};
  for (int64_t at = 0; at < 63; at += std::ssize(pieces.back()))
    pieces.emplace_back(tokens.begin() + at,
                        tokens.begin() + std::min<int64_t>(63, at + 1 + at % 5));
  int64_t size = 0;
  const std::vector<Logits> got = after(pieces);
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    size += std::ssize(pieces[p]);
    for (int64_t i = 0; i < 32; ++i) EXPECT_NEAR(got[p][i], rows[32 * size + i], 1e-4) << size;
  }
  EXPECT_EQ(size, 63);
}

// A batch of three texts; each alone; and two models, whose texts grow in turn.
TEST_F(SamplerLibrary, ATextHasTheSameBitsAloneAndInABatch) {
  for (const int64_t first : {0, 1, 10}) {
    const std::vector<Tokens> heads = {counted(first, 0), counted(first, 5), counted(first, 5)};
    const std::vector<Tokens> tails = {counted(9, 2), counted(9, 1), counted(9, 30)};
    const auto together = [](const std::vector<Tokens>& rows) {
      Tokens all;
      for (const Tokens& row : rows) all.insert(all.end(), row.begin(), row.end());
      return all;
    };
    weft_sampler_text *batch = open(3), *other = open(2, 40);
    feed(batch, together(heads), 3);
    const Logits at_first = logits(batch, 3);
    feed(other, together({heads[2], heads[0]}), 2);
    logits(other, 2);
    feed(batch, together(tails), 3);
    const Logits later = logits(batch, 3);
    EXPECT_EQ(later, logits(batch, 3));
    for (int64_t b = 0; b < 3; ++b) {
      const std::vector<Logits> alone = after({heads[b], tails[b]});
      EXPECT_EQ(alone[0], Logits(at_first.begin() + 32 * b, at_first.begin() + 32 * (b + 1)));
      EXPECT_EQ(alone[1], Logits(later.begin() + 32 * b, later.begin() + 32 * (b + 1)));
    }
    weft_sampler_text_close(other);
    weft_sampler_text_close(batch);
  }
}

// The most likely token each time, as the program draws it.
TEST_F(SamplerLibrary, DrawsWhatSampleDraws) {
  const auto loaded = load_model(path, "cpu");
  Tokens want;
  sample(*loaded->device, *loaded->model, loaded->config.model,
         {.prompt = counted(12, 4), .length = 50, .temperature = 0},
         [&](int64_t, int64_t, int32_t token) { want.push_back(token); });
  weft_sampler_text* text = open();
  feed(text, counted(12, 4));
  Tokens got;
  while (got.size() < 50) {
    const Logits values = logits(text);
    got.push_back(static_cast<int32_t>(std::ranges::max_element(values) - values.begin()));
    feed(text, {got.back()});
  }
  weft_sampler_text_close(text);
  EXPECT_EQ(got, want);
}

TEST_F(SamplerLibrary, TextsOfAModelGrowInThreadsAndOutliveIt) {
  const std::vector<Tokens> pieces = {counted(5, 1), counted(7, 2), counted(1, 3)};
  const std::vector<Logits> want = after(pieces);
  std::vector<std::vector<Logits>> got(4);
  std::vector<std::thread> threads;
  for (auto& one : got) threads.emplace_back([&] { one = after(pieces); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : got) EXPECT_EQ(one, want);
  weft_sampler_text* text = open();
  weft_sampler_close(std::exchange(sampler, nullptr));
  feed(text, pieces[0]);
  EXPECT_EQ(logits(text), want[0]);
  weft_sampler_text_close(text);
}

TEST_F(SamplerLibrary, MistakesAreNamed) {
  weft_sampler* none = sampler;
  weft_sampler_text* no_text = nullptr;
  const auto expect = [](weft_status got, weft_status want, const std::string& words) {
    EXPECT_EQ(got, want) << words;
    EXPECT_NE(std::string(weft_sampler_last_error()).find(words), std::string::npos)
        << words << ": " << weft_sampler_last_error();
  };
  const weft_status wrong = WEFT_INVALID_ARGUMENT;
  expect(weft_sampler_open((dir / "no.h5").c_str(), WEFT_CPU, &none), wrong, "no.h5");
  EXPECT_EQ(none, nullptr);
  expect(weft_sampler_open((dir / "corpus.h5").c_str(), WEFT_CPU, &none), wrong, "data file");
  expect(weft_sampler_open(nullptr, WEFT_CPU, &none), wrong, "path is NULL");
  expect(weft_sampler_open(path.c_str(), -2, &none), wrong, "device must be WEFT_CPU");
  expect(weft_sampler_open(path.c_str(), WEFT_CPU, nullptr), wrong, "sampler is NULL");
  expect(weft_sampler_text_open(nullptr, 1, 0, &no_text), wrong, "sampler is NULL");
  expect(weft_sampler_text_open(sampler, 0, 0, &no_text), wrong, "batch must be 1 to");
  expect(weft_sampler_text_open(sampler, 1, 65, &no_text), wrong, "length must be 1 to");
  expect(weft_sampler_text_open(sampler, 1, 9, nullptr), wrong, "text is NULL");
  weft_sampler_info info = {};
  expect(weft_sampler_get_info(sampler, &info), wrong, "info.size must be");
  info.size = sizeof info;
  expect_ok(weft_sampler_get_info(sampler, &info));
  EXPECT_EQ(info.vocab, 32);
  EXPECT_EQ(info.context, 64);
  EXPECT_EQ(info.step, 20);
  EXPECT_EQ(info.ema, 1);
  weft_sampler_text* text = open(2, 8);
  const Tokens good = counted(8, 0), bad = {1, 2, 3, 32}, negative = {1, -1};
  feed(text, {9, 9, 8, 8}, 2);
  expect(weft_sampler_text_feed(text, bad.data(), 2), wrong,
         "tokens[3] is 32, the model knows 0 to 31");
  expect(weft_sampler_text_feed(text, negative.data(), 1), wrong, "tokens[1] is -1");
  expect(weft_sampler_text_feed(text, good.data(), -1), wrong, "count must be 0 or more");
  expect(weft_sampler_text_feed(text, nullptr, 1), wrong, "tokens is NULL");
  expect(weft_sampler_text_feed(nullptr, good.data(), 1), wrong, "text is NULL");
  expect(weft_sampler_text_feed(text, counted(16, 0).data(), 6), wrong,
         "at most 7 tokens: it has 2");
  expect(weft_sampler_text_logits(text, nullptr), wrong, "logits is NULL");
  expect(weft_sampler_text_logits(nullptr, nullptr), wrong, "text is NULL");
  const Logits both = logits(text, 2);  // what was refused left nothing
  EXPECT_EQ(Logits(both.begin(), both.begin() + 32), after({{9, 9}})[0]);
  weft_sampler_text_close(text);
  weft_sampler_text_close(nullptr);
}

TEST_F(SamplerLibrary, ModelsThatAreToldOfSequencesAreRefused) {
  if (!absent_part_text("data.labels").empty()) GTEST_SKIP() << "a part is not built";
  const Config config =
      small_config(dir.path(), {"data.labels=true", "data.classes=4", "model.vocab=256",
                                "model.context=48", "model.position_axes=[4, 4, 3]"});
  const auto device = make_device("cpu");
  ParameterStore store;
  const auto model = make_model(config, store, *device);
  store.allocate(*device, DType::f32, 1, false, false);
  save_checkpoint(dir / "told.h5", *device, store, {}, to_yaml(config));
  weft_sampler* none = nullptr;
  EXPECT_EQ(weft_sampler_open((dir / "told.h5").c_str(), WEFT_CPU, &none), WEFT_UNSUPPORTED);
  EXPECT_NE(std::string(weft_sampler_last_error()).find("told of each sequence"), std::string::npos)
      << weft_sampler_last_error();
}

TEST_F(SamplerLibrary, TheExampleRuns) {
  const std::string program = dir / "example";
  const std::string compile =
      WEFT_TEST_CC " -std=c99 -pedantic -Wall -Wextra -Werror -I" WEFT_TEST_SOURCE
                   "/src/capi -I" WEFT_TEST_SOURCE "/train/sampling/capi " WEFT_TEST_SOURCE
                   "/train/sampling/capi/example.c -o " +
      program + " -L" WEFT_TEST_LIB " -lweft_sampler -Wl,-rpath," WEFT_TEST_LIB;
  ASSERT_EQ(std::system(compile.c_str()), 0) << compile;
  const std::string prompt = "\x04\x0b\x12";
  ASSERT_EQ(std::system((program + " " + path + " '" + prompt + "' > " + dir / "out").c_str()), 0);
  Tokens text = {4, 11, 18};
  const std::string drawn = read_file(dir / "out");
  ASSERT_EQ(drawn.size(), 60u);
  weft_sampler_text* greedy = open();
  feed(greedy, text);
  const Logits values = logits(greedy);
  EXPECT_EQ(drawn[0], std::ranges::max_element(values) - values.begin());
  weft_sampler_text_close(greedy);
}

int forks = 0;

// A program may have threads and handlers that do not survive it.
TEST_F(SamplerLibrary, DoesNotCopyTheProcess) {
  ASSERT_EQ(pthread_atfork([] { ++forks; }, nullptr, nullptr), 0);
  weft_sampler* another = nullptr;
  expect_ok(weft_sampler_open(path.c_str(), WEFT_CPU, &another));
  EXPECT_EQ(forks, 0);
  weft_sampler_close(another);
}

// With the library of this build, and as installed beside the package.
TEST_F(SamplerLibrary, ThePythonClassIsTheSame) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a Python without sanitizers cannot load a library with them";
#endif
  if (const auto [status, text] = python("-c 'import numpy, pytest'"); status != 0)
    GTEST_SKIP() << text;
  const std::string run = "-m pytest -q -p no:cacheprovider tests/src/python/test_sampler.py",
                    site = dir / "site", checkpoint = "WEFT_TEST_CHECKPOINT=" + path + " ";
  const std::string install =
      "mkdir " + site + " && cp -r " WEFT_TEST_SOURCE "/src/python/weft_attention " + site +
      " && " WEFT_TEST_CMAKE " --install " WEFT_TEST_BUILD " --component python --prefix " + site +
      "/weft_attention > /dev/null";
  ASSERT_EQ(std::system(install.c_str()), 0) << install;
  for (const std::string& with :
       {checkpoint, checkpoint + "PYTHONPATH=" + site +
                        " env -u WEFT_SAMPLER_LIBRARY -u WEFT_ATTENTION_LIBRARY"}) {
    const auto [status, text] = python(run, with);
    EXPECT_EQ(status, 0) << text;
    EXPECT_NE(text.find(" passed"), std::string::npos) << text;
    EXPECT_EQ(text.find("skipped"), std::string::npos) << text;
  }
}
}  // namespace
}  // namespace weft
