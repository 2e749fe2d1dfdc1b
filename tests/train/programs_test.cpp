// SPDX-License-Identifier: MIT
// The programs as people run them: train, evaluate, sample.
#include "src/files/checkpoint.h"
#include "src/files/hdf5.h"
#include "tests/train/training.h"
#include "train/evaluation/evaluate_run.h"
#include "train/evaluation/evaluator.h"
#include "train/program/loaded_model.h"
#include "train/trainer/run_folder.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <numbers>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
class ProgramsTest : public testing::Test {
 protected:
  ProgramsTest() {
    write_corpus(dir / "corpus.h5", 6000, 32);
    train(small_config(dir.path()), {.out = dir / "run", .device = "cpu"});
  }

  // What the program writes to stdout; its exit code must be 0.
  std::string output(const std::string& program, const std::vector<std::string>& arguments) {
    Process process(dir, program, arguments);
    EXPECT_EQ(process.wait(), 0) << process.err();
    notes_ = process.err();
    return process.out();
  }

  std::string sampled(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--checkpoint", checkpoint(), "--device", "cpu"};
    if (std::ranges::find(more, "--length") == more.end())
      arguments.insert(arguments.end(), {"--length", "20"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return output("sample", arguments);
  }

  std::string checkpoint() const { return dir / "run/latest.h5"; }

  TempDir dir;
  std::string notes_;
};

TEST_F(ProgramsTest, TrainIsTheLibrary) {
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  const std::string out = output(
      "train", {"--config", dir / "small.yaml", "--device", "cpu", "--out", dir / "program"});
  EXPECT_TRUE(read_file(dir / "program/latest.h5") == read_file(checkpoint()));
  for (const char* part :
       {"small", "CPU", "parameters", "layers 0: local(stride 8)", "256 tokens", "planned",
        "step 1/20", "step 20/20",
        "\nlines       time since the start; bits: of the batch, bits per byte; ", "MFU",
        "finished 20 steps in 0:", " bits per byte (moving average of the weights) at step "})
    EXPECT_CONTAINS(out, part);
  EXPECT_EQ(out.find('\r'), std::string::npos) << "no passing lines in a file";
}

TEST_F(ProgramsTest, EvaluateIsTheLibraryAndWhatTrainingSaid) {
  const std::string line =
      output("evaluate", {"--checkpoint", checkpoint(), "--device", "cpu", "--split", "valid",
                          "--min-context", "60", "--batch", "3", "--weights", "last"});
  const auto loaded = load_model(checkpoint(), "cpu", Weights::last);
  const TokenDataset data(dir / "corpus.h5", "valid", 32);
  const EvalResult result = evaluate(*loaded->device, *loaded->model, data,
                                     {.context = 64, .min_context = 60, .batch = 3});
  EXPECT_NEAR(json_number(line, "bits").value_or(0), result.bits, 1e-7);
  EXPECT_EQ(json_number(line, "tokens"), data.size());
  EXPECT_EQ(json_number(line, "min_context"), 60);
  EXPECT_EQ(json_number(line, "step"), 20);
  EXPECT_CONTAINS(line, "\"split\": \"valid\"");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_CONTAINS(notes_, "bits per byte over 600 tokens, last weights of step 20\n");

  // The last evaluation of training was of the first 500 tokens: here, one split of a file.
  std::vector<int32_t> first(500);
  data.read(0, first);
  std::vector<uint16_t> file(first.begin(), first.end());
  file.resize(1000);
  write_tokens(dir / "first.h5", file, 32, {0.5, 0.25, 0.25});
  for (const auto& [key, weights] : {std::pair{"valid_bits", "--weights=last"},
                                     {"valid_bits_ema", "--weights=ema"},
                                     {"valid_bits_ema", "--ema"},
                                     {"valid_bits_ema", "--batch=4"}}) {
    const std::vector<std::string> arguments{"--checkpoint", checkpoint(), "--device",
                                             "cpu",          "--data",     dir / "first.h5",
                                             "--split",      "train",      weights};
    EXPECT_NEAR(json_number(output("evaluate", arguments), "bits").value_or(0),
                metric(dir / "run/metrics.jsonl", key).back(), 1e-6)
        << key;
  }
}

TEST_F(ProgramsTest, SampledTokensAreThoseOfTheText) {
  std::string text = sampled({"--prompt", "\x05\x07"}), numbers;
  text.pop_back();  // the end of the line
  EXPECT_EQ(text.substr(0, 4), "[\x05\x07]");
  text.erase(0, 4);
  EXPECT_EQ(text.size(), 20u);
  for (const char c : text) numbers += str(int{c}, ' ');
  EXPECT_EQ(sampled({"--tokens", "--prompt", "5 7"}), "[5 7 ]" + numbers + "\n");
}

// The prompt is told from what the model adds: in brackets, on a terminal dim. Files have none.
TEST_F(ProgramsTest, SampleShowsThePromptOfEachText) {
  const std::vector<std::string> two{"--prompt", "\x1d\x1e", "--seed", "5", "--count", "2"};
  const std::string piped = sampled(two);
  EXPECT_EQ(piped.find("[\x1d\x1e]"), 0u);
  EXPECT_CONTAINS(piped, "\n==== sample 2 ====\n[\x1d\x1e]");
  std::vector<std::string> to_file = two;
  to_file.insert(to_file.end(), {"--out", dir / "text"});
  sampled(to_file);
  EXPECT_EQ(read_file(dir / "text").substr(0, 20), piped.substr(4, 20));
  write_file(dir / "long", std::string(1500, '\x03'));
  EXPECT_CONTAINS(sampled({"--prompt-file", dir / "long"}),
                  "[... " + std::string(1000, '\x03') + "]");
  const std::string command = str(WEFT_TEST_BIN "/sample --checkpoint ", checkpoint(),
                                  " --device cpu --length 5 --tokens --prompt '5 7'");
  Process terminal(dir, "/usr/bin/script", {"-qec", command, "/dev/null"}, {.name = "terminal"});
  EXPECT_EQ(terminal.wait(), 0) << terminal.err();
  const std::string shown = terminal.out();
  EXPECT_CONTAINS(shown, "\033[2m5 7 \033[0m");
  EXPECT_EQ(shown.find('['), shown.find("[2m")) << shown;
}

// Windows that overlap see tokens again; files have them once, at the place where they were scored.
TEST_F(ProgramsTest, LossesHaveEachTokenOnce) {
  output("evaluate", {"--checkpoint", checkpoint(), "--device", "cpu", "--split", "valid",
                      "--min-context", "40", "--losses", dir / "l.h5"});
  const TokenDataset data(dir / "corpus.h5", "valid", 32);
  const std::vector<int64_t> shape{data.size()};
  std::vector<int32_t> tokens(static_cast<std::size_t>(data.size())), written(tokens.size());
  std::vector<float> nats(tokens.size());
  data.read(0, tokens);
  const Hdf5File file = Hdf5File::open(dir / "l.h5");
  file.read("/tokens", StoredType::i32, shape, written.data());
  file.read("/losses", StoredType::f32, shape, nats.data());
  EXPECT_EQ(written, tokens);
}

TEST_F(ProgramsTest, SampleWritesWhatWasAskedFor) {
  const std::string one = sampled({"--seed", "5"});
  EXPECT_EQ(one.size(), 21u);  // and a line end
  EXPECT_EQ(notes_, "moving average of the weights of step 20\n");
  EXPECT_EQ(sampled({"--seed", "5"}), one);
  EXPECT_NE(sampled({"--seed", "6"}), one);
  const std::string three = sampled({"--seed", "5", "--count", "3", "--batch", "2"});
  EXPECT_EQ(three.substr(0, 20), one.substr(0, 20));
  EXPECT_CONTAINS(three, "==== sample 3 ====");
  EXPECT_EQ(sampled({"--seed", "5", "--count", "3", "--batch", "1"}), three);
  EXPECT_EQ(sampled({"--seed", "5", "--out", dir / "text"}), "");
  EXPECT_EQ(read_file(dir / "text"), one.substr(0, 20));
  EXPECT_EQ(sampled({"--temperature", "0", "--seed", "1"}),
            sampled({"--top-k", "1", "--seed", "2"}));
  write_file(dir / "prompt", "\x03\x04");
  EXPECT_EQ(sampled({"--prompt-file", dir / "prompt", "--stats"}),
            sampled({"--prompt", "\x03\x04", "--stats"}));
  for (const char* part : {"20 tokens in", "tokens/s", "keys read", "cache"})
    EXPECT_CONTAINS(notes_, part);
  EXPECT_CONTAINS(sampled({"--temperature", "0", "--json"}).substr(20), "\n");
  EXPECT_CONTAINS(notes_, "greedy");
  for (const char* key : {"\"tok_s\": ", "\"first_ms\": "}) EXPECT_CONTAINS(notes_, key);
}

// A sample ends before the stop text, whichever batch it is in, and wherever that begins.
TEST_F(ProgramsTest, SampleStopsBeforeAText) {
  const std::string whole = sampled({"--seed", "5", "--count", "3"});
  const std::string one = whole.substr(0, 20), stop = one.substr(7, 2);
  const std::string begin = one.substr(0, one.find(stop));
  EXPECT_EQ(sampled({"--seed", "5", "--stop", stop}), begin + "\n");
  const std::string three = sampled({"--seed", "5", "--count", "3", "--stop", stop});
  EXPECT_EQ(three.substr(0, begin.size() + 17), begin + "\n==== sample 2 ==");
  EXPECT_EQ(sampled({"--seed", "5", "--stop", std::string(3, one[19])}),
            one + "\n");  // held back, then written
}

TEST_F(ProgramsTest, SampleSaysWhatItForgets) {
  EXPECT_EQ(sampled({"--seed", "5", "--length", "3000"}).size(), 3001u);  // a hundred windows
  EXPECT_CONTAINS(notes_,
                  "the context holds 64 tokens: when it is full, the last 32 are read again");
}

// Of a prompt that fills the context only the last half of the context is read.
TEST_F(ProgramsTest, SampleSaysHowMuchOfAPromptIsNotRead) {
  const auto after = [&](const std::string& prompt) {
    return sampled({"--temperature", "0", "--length", "8", "--prompt", prompt})
        .substr(prompt.size() + 2);
  };
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += static_cast<char>(1 + i * i % 13);
  const std::string text = after(prompt);
  EXPECT_CONTAINS(notes_,
                  "\nthe prompt has 100 tokens, the context 64: the first 68 are not read, which "
                  "leaves room for new ones\n");
  EXPECT_EQ(after(std::string(68, '\x1d') + prompt.substr(68)), text);
  const std::string full = after(prompt.substr(36));
  EXPECT_EQ(full, text) << "the same last 32 tokens";
  EXPECT_CONTAINS(notes_, "the prompt has 64 tokens, the context 64: the first 32 are not read");
  after(prompt.substr(37));
  EXPECT_EQ(notes_.find("not read"), std::string::npos) << notes_;
}

// Ctrl-C ends the text, with its line end and figures.
TEST_F(ProgramsTest, SampleEndsATextOnRequest) {
  const std::vector<std::string> endless{"--checkpoint", checkpoint(), "--device", "cpu",
                                         "--length",     "100000000",  "--json"};
  Process process(dir, "sample", endless);
  const fs::path out = fs::path(dir.path()) / "sample.out";
  while (!fs::exists(out) || fs::file_size(out) < 100)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 0) << process.err();
  const std::string text = process.out(), notes = process.err();
  EXPECT_EQ(text.back(), '\n');
  EXPECT_CONTAINS(notes, str("{\"tokens\": ", text.size() - 1, ", "));
}

TEST_F(ProgramsTest, SampleIsInteractiveOrWritesFiles) {
  Process process(
      dir, "sample",
      {"--checkpoint", checkpoint(), "--length", "5", "--interactive", "--out", dir / "t"});
  EXPECT_EQ(process.wait(), 1);
  EXPECT_CONTAINS(process.err(), "--interactive");
}

// The second line goes on behind the first answer, and the program ends with stdin.
TEST_F(ProgramsTest, SampleAnswersAPerson) {
  const auto typed = [&](const std::string& lines) {
    Process process(
        dir, "/bin/bash",
        {"-c", "printf '" + lines + "' | " WEFT_TEST_BIN "/sample --checkpoint " + checkpoint() +
                   " --device cpu --interactive --length 5 --temperature 0"},
        {.name = "shell"});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  };
  const std::string first = typed("\\003\\004\\n"), both = typed("\\003\\004\\n\\005\\n");
  EXPECT_EQ(first.size(), 6u);
  EXPECT_EQ(both.substr(0, 6), first);
  const std::string prompt = "\x03\x04" + first.substr(0, 5) + "\x05";
  EXPECT_EQ("[" + prompt + "]" + both.substr(6),
            sampled({"--temperature", "0", "--length", "5", "--prompt", prompt}));
}
}  // namespace
}  // namespace weft
