// SPDX-License-Identifier: MIT
// report.html and TensorBoard's files: what a page says of a run, and that keeping one changes no
// weight.
#include "train/report/run_page.h"

#include "src/config/config.h"
#include "tests/run_python.h"
#include "tests/temp_dir.h"
#include "tests/train/training.h"
#include "train/report/chart.h"
#include "train/report/event_file.h"
#include "train/trainer/run_folder.h"

#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_file(path.string(), text);
}

std::string line(int64_t step, double bits, std::optional<double> valid) {
  StepMetrics m{
      .step = step,
      .loss = bits * 0.693147180559945,
      .lr = 1e-3,
      .grad_norm = 1,
      .tokens_per_s = 1000,
  };
  m.elapsed_s = static_cast<double>(step), m.valid_bits = valid;
  return to_json(m) + "\n";
}

bool has(const std::string& page, const std::string& what) {
  return page.find(what) != std::string::npos;
}

TEST(RunPage, ShowsWhatAFolderHolds) {
  const TempDir dir;
  const fs::path run = (dir / "one");
  write(run / "metrics.jsonl",
        line(1, 8, {}) + line(10, 4.5, 4.25) + line(20, 3.5, 3.125) + "{\"step\": 30, \"lo");
  write(run / "about.txt", "device a <fast> one");
  write(run / "samples/00000010.txt", "tea & \xff\x01 \xc3\xa9");
  write(run / "samples/00000020.wav", "RIFF");
  write(run / "samples/00000030.txt", "of a step that was taken back");
  const std::string page = run_page({run.string()});
  EXPECT_TRUE(
      has(page, "step 20, 0:20 of training, best validation 3.1250 bits per token at step 20"))
      << page;
  EXPECT_TRUE(has(page, "device a &lt;fast&gt; one"));
  EXPECT_TRUE(has(page, "tea &amp; \xef\xbf\xbd\xef\xbf\xbd \xc3\xa9"));
  EXPECT_TRUE(
      has(page, "step 20</figcaption><audio controls src='data:audio/wav;base64,UklGRg=='>"));
  EXPECT_FALSE(has(page, "taken back"));
  for (const char* outside : {"<script", "http:", "https:", "src='/", "url("})
    EXPECT_FALSE(has(page, outside));

  write((dir / "two/metrics.jsonl"), line(1, 8, {}));
  const std::string both = run_page({run.string(), (dir / "two") + "/"});
  EXPECT_TRUE(has(both, "one, valid <b>3.125</b>"));
  EXPECT_TRUE(has(both, "two, train <b>8</b>"));
  write((dir / "two/config.yaml"), small_yaml(dir.path()) + "# <mine>\n");
  const std::string two = run_page({dir / "two"});
  EXPECT_TRUE(has(two, "<h2>Config</h2>") && has(two, "# &lt;mine&gt;")) << two;
  EXPECT_FALSE(has(page, "<h2>Config</h2>"));
  EXPECT_CONTAINS(error_of([&] { run_page({dir / "three"}); }), "is no folder of a run");
}

// Of a byte model as everywhere else.
TEST(RunPage, NamesTheUnitOfBits) {
  const TempDir dir;
  const auto page_of = [&](const std::string& from, const std::string& to) {
    std::string yaml = small_yaml(dir.path());
    if (!from.empty()) yaml.replace(yaml.find(from), from.size(), to);
    write(dir / "run/config.yaml", yaml);
    write(dir / "run/metrics.jsonl", line(1, 8, {}) + line(2, 7, 6));
    return run_page({dir / "run"});
  };
  const std::string bytes = page_of("", "");
  EXPECT_TRUE(has(bytes, "<figcaption>bits per byte</figcaption>"));
  EXPECT_TRUE(has(bytes, "best validation 6.0000 bits per byte at step 2"));
  EXPECT_FALSE(has(bytes, "bits per token"));
  EXPECT_TRUE(has(page_of("vocab: 32", "vocab: 300"), "<figcaption>bits per token</figcaption>"));
  EXPECT_TRUE(has(page_of("[8, 8]", "[8, 4, 2]"), "<figcaption>bits per dimension</figcaption>"));
}

// The charts by axis `number` of a page of one run: between its <div> and the next.
std::string charts_of(const std::string& page, int number) {
  const std::size_t begin = page.find(str("<div class='f x", number, "'>"));
  return page.substr(begin, page.find("</div>", begin) - begin);
}

// Three sets of charts, of which the style sheet shows the one that is checked.
TEST(RunPage, XIsStepTokensOrSeconds) {
  const TempDir dir;
  const fs::path run = dir / "run";
  write(run / "metrics.jsonl", line(10, 8, {}) + line(1000, 7, 6));
  const std::string bare = run_page({run.string()});
  EXPECT_FALSE(has(bare, "id=x1")) << "tokens of an update are not known without a config";
  write(run / "config.yaml", small_yaml(dir.path()));  // 256 tokens an update
  const std::string page = run_page({run.string()});
  for (const char* part :
       {"<input type=radio name=x id=x0 checked><label for=x0>step</label>",
        "<input type=radio name=x id=x1><label for=x1>tokens</label>",
        "<input type=radio name=x id=x2><label for=x2>seconds of training</label>",
        "#x1:checked~:is(.x0,.x2)"})
    EXPECT_TRUE(has(page, part)) << part;
  EXPECT_TRUE(has(charts_of(page, 0), ">step</text>") && has(charts_of(page, 0), ">1000</text>"));
  EXPECT_TRUE(has(charts_of(page, 1), ">tokens</text>") && has(charts_of(page, 1), ">250k</text>"));
  EXPECT_TRUE(has(charts_of(page, 2), ">seconds of training</text>"));
  EXPECT_FALSE(has(charts_of(page, 2), "250k"));
}

// Each in its colour: a faint line of the batches, and the validation.
TEST(RunPage, RunsLieOverEachOther) {
  const TempDir dir;
  std::vector<std::string> runs;
  for (const char* name : {"a/tiny", "b/tiny", "c/other"}) {
    runs.push_back(dir / name);
    write(fs::path(runs.back()) / "metrics.jsonl", line(1, 8, {}) + line(2, 7, 6));
  }
  const std::string charts = charts_of(run_page(runs), 0);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_TRUE(has(charts, str("<g class=t style='--c:var(--c", i, ")'>"))) << i;
    EXPECT_TRUE(has(charts, html_text(runs[i]) + ", valid <b>6</b>")) << "tiny alone is no name";
  }
  EXPECT_EQ(charts.find("bits per token"), charts.rfind("<figcaption>bits per token") + 12)
      << "one chart";
  write(fs::path(runs[1]) / "config.yaml", small_yaml(dir.path()));
  const std::string units = charts_of(run_page(runs), 0);
  EXPECT_TRUE(has(units, "<figcaption>bits per byte") && has(units, "<figcaption>bits per token"))
      << "what is no number of the same thing does not share a chart";
}

TEST(RunPage, SaysWhenValidationRisesWhileTrainingFalls) {
  const TempDir dir;
  const auto page_of = [&](double last_valid, double last_bits) {
    write(dir / "run/metrics.jsonl",
          line(1, 8, {}) + line(2, 5, 4) + line(3, 4.5, 4.1) + line(4, last_bits, last_valid));
    return run_page({dir / "run"});
  };
  EXPECT_TRUE(has(page_of(4.2, 4.25),
                  "<p class=w>validation rises while training falls: 4.0000 bits per token at "
                  "step 2, now 4.2000; batches 6.5000, since then 4.3750."));
  EXPECT_FALSE(has(page_of(4.01, 4.25), "validation rises")) << "no more than evaluations differ";
  EXPECT_FALSE(has(page_of(3.9, 4.25), "validation rises"));
  EXPECT_FALSE(has(page_of(4.2, 12), "validation rises")) << "training does not fall";
}

TEST(RunPage, TheProgramTakesOneRunOrMore) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) write(dir / name + "/metrics.jsonl", line(1, 8, {}));
  const auto said = [&](const std::vector<std::string>& arguments) {
    Process process(dir, "report", arguments);
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  };
  EXPECT_CONTAINS(said({dir / "a"}), dir / "a/report.html: 1 run, ");
  EXPECT_EQ(read_file(dir / "a/report.html"), run_page({dir / "a"}));
  EXPECT_CONTAINS(said({dir / "a", dir / "b", "--out", dir / "c.html"}), "c.html: 2 runs, ");
  EXPECT_EQ(read_file(dir / "c.html"), run_page({dir / "a", dir / "b"}));
  Process refused(dir, "report", {dir / "a", dir / "b"});
  EXPECT_CONTAINS(error_line_of(refused), "add --out FILE.html");
}

TEST(RunPage, ChartsPutPointsWhereTheyBelong) {
  const std::string svg =
      svg_of({.title = "t", .x_name = "x", .series = {{"a", 0, true, {{0, 0}, {10, 5}}}}});
  EXPECT_TRUE(has(svg, "points='50.0,192.0 410.0,8.0'")) << svg;
  EXPECT_TRUE(has(svg, ">a <b>5</b>"));
  EXPECT_EQ(svg_of({
                .title = "t",
                .x_name = "x",
                .series = {{"a", 0, false, {{0, NAN}}}, {"b", 1, false, {}}},
            }),
            "");
}

TEST(RunPage, TrainingKeepsOneAndChangesNoWeight) {
  const TempDir dir;
  write_corpus(dir / "corpus.h5", 2000, 32);
  const auto train = [&](const std::string& out,
                         const std::function<void(const Evaluated&)>& hook) {
    const Config config = small_config(dir.path(), {"train.steps=4", "train.eval_every=2",
                                                    "train.ema_decay=0.5", "train.eval_tokens=64"});
    weft::train(config, {.out = dir / out, .hooks = {{.name = "report", .evaluated = hook}}});
    return read_file((dir / out + "/latest.h5"));
  };
  EXPECT_EQ(train("with", keep_report()), train("without", {}));
  const std::string page = read_file((dir / "with/report.html"));
  EXPECT_TRUE(has(page, "step 4 of 4"));
  EXPECT_TRUE(has(page, "<figcaption>step 2</figcaption>"));
  EXPECT_TRUE(has(page, "data:image/png;base64,iVBORw0KGgo"));
  EXPECT_FALSE(fs::exists((dir / "without/report.html")));
}

// The bytes of Event {wall_time, step: 7, summary {value {tag: "bits/train", simple_value}}}, read
// independently.
TEST(EventFile, HasTheFrameAndTheFieldsOfTensorBoard) {
  const TempDir dir;
  const EventFile file(dir.path());
  file.append({.step = 7, .loss = 0.693147180559945});
  const fs::path path = fs::directory_iterator((dir / "tensorboard"))->path();
  const std::string bytes = read_file(path.string());
  uint64_t first = 0, second = 0;
  std::memcpy(&first, bytes.data(), 8);
  EXPECT_EQ(bytes.substr(12 + 9, first - 9),
            "\x1a\x0d"
            "brain.Event:2");
  std::memcpy(&second, bytes.data() + 12 + first + 4, 8);
  EXPECT_EQ(bytes.size(), 12 + first + 4 + 12 + second + 4);
  const std::string event = bytes.substr(12 + first + 4 + 12, second);
  EXPECT_EQ(event.substr(9, 2), "\x10\x07");
  EXPECT_TRUE(has(event, std::string("\x0a\x11\x0a\x0a"
                                     "bits/train"
                                     "\x15\x00\x00\x80\x3f",
                                     19)));
}

// What TensorBoard itself reads of a run, two starts together, against metrics.jsonl; exit code 77:
// it is missing.
constexpr const char* kRead = R"(import json, sys
try:
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
except ImportError as missing:
    print(missing)
    sys.exit(77)
read = EventMultiplexer({"run": sys.argv[1] + "/tensorboard"}).Reload().GetAccumulator("run")
lines = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
assert len(lines) > 4 and any("valid_bits" in line for line in lines)
for tag, key in {"bits/train": "bits", "bits/valid": "valid_bits", "learning_rate": "lr", "gradient_norm": "grad_norm",
                 "tokens_per_s": "tokens_per_s"}.items():
    want = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    got = [(event.step, event.value) for event in read.Scalars(tag)]
    assert [step for step, _ in got] == [step for step, _ in want], (tag, got, want)
    assert all(abs(a - b) <= 1e-4 * abs(b) for (_, a), (_, b) in zip(got, want)), (tag, got, want)
)";

TEST(EventFile, TensorBoardReadsWhatTrainWrites) {
  const TempDir dir;
  write_file(dir / "read.py", kRead);
  if (const auto [status, text] = python(dir / "read.py"); status == 77) GTEST_SKIP() << text;
  write_corpus(dir / "corpus.h5", 2000, 32);
  write_file(dir / "small.yaml", small_yaml(dir.path()));
  std::vector<std::string> arguments = {
      "--config", dir / "small.yaml", "--device",    "cpu",
      "--out",    dir / "run",        "--no-report", "--tensorboard"};
  for (const char* more : {"--max-steps=8", "--resume"}) {
    arguments.push_back(more);
    Process process(dir, "train", arguments);
    EXPECT_EQ(process.wait(), 0) << process.err();
    arguments.pop_back();
  }
  const auto [status, text] = python(dir / "read.py" + " " + dir / "run");
  EXPECT_EQ(status, 0) << text;
}

TEST(ReportProgram, KeepsTheFilesOfTheRun) {
  const TempDir dir;
  const fs::path run = dir / "run";
  for (const char* file : {"metrics.jsonl", "best.h5", "config.yaml"}) {
    write(run / "metrics.jsonl", line(1, 8, {}));
    const std::string out = (run / file).string();
    if (!fs::exists(out)) write(out, "model: {}\n");
    const std::string before = read_file(out);
    Process process(dir, "report", {run.string(), "--out", out});
    EXPECT_TRUE(has(error_line_of(process), "is a file of the run")) << file;
    EXPECT_EQ(read_file(out), before);
  }
  fs::remove(run / "config.yaml");
  Process process(dir, "report", {run.string(), "--out", (run / "report.html").string()});
  EXPECT_EQ(process.wait(), 0) << process.err();
}
}  // namespace
}  // namespace weft
