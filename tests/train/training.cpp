// SPDX-License-Identifier: MIT
// Corpora, runs and processes for the tests of the programs.
#include "tests/train/training.h"

#include "data/dataset.h"
#include "kernels/philox.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "src/files/hdf5.h"
#include "train/program/json.h"
#include "train/program/progress.h"
#include "train/trainer/trainer.h"

#include <cstddef>
#include <fcntl.h>
#include <signal.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>

namespace weft {
void write_tokens(const std::string& path, const std::vector<uint16_t>& tokens, int64_t vocab,
                  const std::vector<double>& split) {
  write_token_file(path, tokens, vocab, split, "made by a test");
}

void write_corpus(const std::string& path, int64_t count, int64_t vocab) {
  std::vector<uint16_t> tokens;
  for (uint32_t word = 0; static_cast<int64_t>(tokens.size()) < count; ++word) {
    const uint32_t kind = philox4x32({word, 0, 0, 0}, 5)[0] % 7;
    for (uint32_t i = 0; i < 3 + kind; ++i)
      tokens.push_back(
          static_cast<uint16_t>((kind * 11 + i * i + 1) % static_cast<uint32_t>(vocab)));
  }
  tokens.resize(static_cast<std::size_t>(count));
  write_tokens(path, tokens, vocab, {0.8, 0.1, 0.1});
}

std::string small_yaml(const std::string& folder) {
  return str(
      "name: small\nseed: 3\nprecision: f32\ndata:\n  path: ", folder,
      "/corpus.h5\n"
      "model:\n  vocab: 32\n  context: 64\n  layers: 2\n  width: 32\n  heads: 2\n  dropout: 0.1\n"
      "  position_axes: [8, 8]\n"
      "  attention:\n    - {kind: local, stride: 8}\n    - {kind: strided, stride: 8}\n"
      "train:\n  steps: 20\n  batch: 4\n  learning_rate: 3e-3\n  warmup: 5\n  ema_decay: 0.9\n"
      "  log_every: 4\n  eval_every: 8\n  save_every: 6\n  eval_tokens: 500\n");
}

RunConfig::RunConfig(const Config& config)
    : config_(std::make_shared<const Config>(config)) {}

RunConfig small_config(const std::string& folder, const std::vector<std::string>& overrides) {
  return parse_config(small_yaml(folder), folder + "/small.yaml", overrides);
}

std::string train(const Config& config, const TrainOptions& options) {
  std::ostringstream text;
  Progress progress(text, false);
  Processes alone;
  Trainer(config, options, progress, alone).run();
  return text.str();
}

std::vector<double> metric(const std::string& metrics_path, const std::string& key) {
  std::istringstream in(read_file(metrics_path));
  std::vector<double> values;
  for (std::string line; std::getline(in, line);)
    if (const auto value = json_number(line, key)) values.push_back(*value);
  return values;
}

void expect_same_tensors(const std::string& checkpoint, const std::string& other) {
  const Hdf5File left = Hdf5File::open(checkpoint), right = Hdf5File::open(other);
  ASSERT_EQ(left.list("/"), right.list("/"));
  for (const std::string& name : left.list("/")) {
    const std::vector<int64_t> shape = left.shape_of(name);
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    std::vector<float> x(static_cast<std::size_t>(size)), y(x.size());
    left.read(name, StoredType::f32, shape, x.data());
    right.read(name, StoredType::f32, shape, y.data());
    EXPECT_TRUE(x == y) << name << " of " << checkpoint << " and " << other;
  }
}

std::string timeless_metrics(const std::string& metrics_path) {
  std::istringstream in(read_file(metrics_path));
  std::string text;
  for (std::string line; std::getline(in, line);) {
    for (const char* key : {"\"tokens_per_s\": ", "\"mfu\": ", "\"elapsed_s\": "}) {
      const std::size_t begin = line.find(key), end = line.find_first_of(",}", begin);
      EXPECT_NE(begin, std::string::npos) << line;
      if (begin != std::string::npos) line.erase(begin, end - begin);
    }
    text += line + "\n";
  }
  return text;
}

Process::Process(const TempDir& dir, const std::string& program,
                 const std::vector<std::string>& arguments, const ProcessOptions& options)
    : out_(dir / ((options.name.empty() ? program : options.name) + ".out")),
      err_(dir / ((options.name.empty() ? program : options.name) + ".err")) {
  const std::string path = program.starts_with("/") ? program : str(WEFT_TEST_BIN, "/", program);
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> environment = options.environment;
  pid_ = fork();
  if (pid_ != 0) return;
  dup2(open(out_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDOUT_FILENO);
  dup2(open(err_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), STDERR_FILENO);
  for (std::string& variable : environment) putenv(variable.data());
  const auto bytes = static_cast<rlim_t>(options.limit_bytes);
  const rlimit limit{bytes, bytes};
  if (options.limit_bytes > 0) setrlimit(RLIMIT_FSIZE, &limit);
  execv(path.c_str(), argv.data());
  _exit(127);
}

Process::~Process() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  wait();
}

void Process::signal(int number) const { kill(pid_, number); }

int Process::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
}  // namespace weft
