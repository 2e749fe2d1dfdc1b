// SPDX-License-Identifier: MIT
#include "train/trainer/run_folder.h"

#include "src/config/config.h"
#include "src/config/differences.h"
#include "src/config/read_config.h"
#include "src/config/write_config.h"
#include "src/files/descriptor.h"
#include "src/files/files.h"
#include "train/program/run_argument.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <sstream>
#include <sys/file.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
std::string folder_of(const Config& config, const std::string& out) {
  return out.empty() ? (fs::path("runs") / config.name).string() : out;
}

// ---- metrics ----

void add_number(std::string& out, const char* key, double value) {
  char text[64] = "null";
  if (std::isfinite(value)) std::snprintf(text, sizeof text, "%.9g", value);
  out += str(out.empty() ? "{" : ", ", '"', key, "\": ", text);
}

void add_evaluation(std::string& out, const StepMetrics& m) {
  if (m.valid_bits) add_number(out, "valid_bits", *m.valid_bits);
  if (m.valid_bits_ema) add_number(out, "valid_bits_ema", *m.valid_bits_ema);
  if (m.valid_tokens) add_number(out, "valid_tokens", static_cast<double>(*m.valid_tokens));
}

// How the line of a step ends whose evaluation was given up.
constexpr const char* kGivenUp = ", \"valid_bits\": null}";

// The whole lines of `history` whose step is at most `last_step`. Error where it is there and
// cannot be read.
std::string lines_up_to(const std::string& history, int64_t last_step, std::string& last_line) {
  std::istringstream in;
  if (std::filesystem::exists(history)) in.str(read_text(history, int64_t{1} << 40));
  std::string kept;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const auto step = json_number(line, "step");
    if (!step || line.back() != '}' || *step > static_cast<double>(last_step)) continue;
    kept += line + "\n";
    last_line = line;
  }
  return kept;
}
}  // namespace

std::string deciding_difference(const Config& there, const Config& here,
                                const std::string& allowed) {
  for (const KeyDifference& d : config_differences(there, here)) {
    const bool is_allowed = d.rule == OnResume::asked && (allowed == "*" || allowed == d.key);
    if (d.rule == OnResume::free || d.rule == OnResume::told || is_allowed) continue;
    const std::string text = str(d.key, ": ", d.there, " in the checkpoint, ", d.here, " now");
    return d.rule == OnResume::same
               ? text
               : str(text, " (", d.effect, "; --allow-changes lets it differ)");
  }
  return "";
}

std::string RunFolder::checkpoint_to_resume(const Config& config, const std::string& out,
                                            const std::optional<std::string>& resume) {
  if (!resume) return "";
  const std::string path =
      resume->empty() ? (fs::path(folder_of(config, out)) / "latest.h5").string() : *resume;
  if (!fs::exists(path)) fail("nothing to resume: ", path, " does not exist");
  return path;
}

RunFolder::RunFolder(const Config& config, const std::string& out,
                     const std::optional<std::string>& resume, const std::string& allowed)
    : folder_(folder_of(config, out)) {
  if (fs::exists(folder_) && !fs::is_directory(folder_))
    fail(folder_, " is not a folder: choose another with --out");
  resumed_from_ = checkpoint_to_resume(config, out, resume);
  check_latest();
  if (!resume) return;
  const Config there = parse_config(checkpoint_config(resumed_from_), resumed_from_);
  const std::string difference = deciding_difference(there, config, allowed);
  if (!difference.empty())
    fail("cannot resume ", resumed_from_, " with another config: ", difference,
         ". Only these may differ: ", keys_on_resume(OnResume::told), ", ",
         keys_on_resume(OnResume::free), "; with --allow-changes also ",
         keys_on_resume(OnResume::asked),
         "; for another run leave out --resume and name a new --out; to start from these weights, "
         "--init ",
         resumed_from_);
  const auto add = [this](const std::string& key, const std::string& before, const std::string& now,
                          const std::string& effect) {
    changes_.push_back(str(key, " from ", before, " to ", now, effect.empty() ? "" : ": ", effect));
  };
  for (const KeyDifference& d : config_differences(there, config))
    add(d.key, d.there, d.here, d.effect);
  // The same file elsewhere is no difference that decides.
  for (const auto& [key, before, now] : {std::tuple{"data.path", there.data.path, config.data.path},
                                         {"data.mix", there.data.mix, config.data.mix}})
    if (before != now) add(key, before, now, "");
}

void RunFolder::check_latest() const {
  if (!fs::exists(path("latest.h5"))) return;
  if (resumed_from_.empty())
    fail(folder_, " holds a run already (latest.h5): go on with --resume ", folder_,
         ", or choose another folder with --out");
  if (!fs::equivalent(fs::absolute(resumed_from_).parent_path(), folder_))
    fail(folder_, " holds another run (latest.h5) than ", resumed_from_,
         ": choose another folder with --out");
}

std::string RunFolder::lock() {
  if (lock_ || !fs::is_directory(folder_)) return "";
  const std::string name = path("lock");
  // for NFS it can be written
  lock_ = Descriptor(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock_) fail(name, ": cannot be opened: ", std::strerror(errno));
  int tries = 10, error = 0;  // a process that was killed may take a moment to end
  while ((error = flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno) == EWOULDBLOCK &&
         --tries > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (error == EWOULDBLOCK) {
    char owner[300] = "";
    static_cast<void>(!pread(lock_.get(), owner, sizeof owner - 1, 0));
    fail(folder_, " is in use by another train (", owner,
         "): wait for its end, or choose another folder with --out");
  }
  if (error != 0)
    return str("warning: ", name, ": this file system has no locks (", std::strerror(error),
               "): nothing keeps another train out of this folder");
  const std::string owner = str(host_name(), ", pid ", getpid());
  if (ftruncate(lock_.get(), 0) == 0)
    static_cast<void>(write_all(lock_.get(), owner.data(), owner.size()));
  check_latest();  // one that has just ended may have left it
  return "";
}

std::string RunFolder::create(const Config& config, const std::vector<std::string>& options) {
  make_folder(folder_);
  const std::string warning = lock();
  write_whole_file(path("config.yaml"), [&](std::ostream& out) { out << to_yaml(config); });
  write_options(path("options.txt"), options);
  return warning;
}

std::string RunFolder::path(const std::string& file) const {
  return (fs::path(folder_) / file).string();
}

std::string RunFolder::history() const {
  return resumed_from_.empty() ? ""
                               : (fs::path(resumed_from_).parent_path() / "metrics.jsonl").string();
}

void RunFolder::save_numbered(Device& device, const ParameterStore& store, const TrainState& state,
                              const std::string& config_yaml, int64_t keep) const {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld.h5", static_cast<long long>(state.step));
  // First the numbered one: what ends between the two leaves a run that goes on from before both.
  save_checkpoint(path(name), device, store, state, config_yaml);
  // latest.h5 is always replaced, never written in place, so a second name for it is a checkpoint
  // of its own.
  const std::string temporary = path("latest.h5.tmp");
  std::error_code error, ignored;
  fs::remove(temporary, error);
  fs::create_hard_link(path(name), temporary, error);
  if (error) {  // a file system that has none
    copy_whole_file(path(name), path("latest.h5"));
  } else if (fs::rename(temporary, path("latest.h5"), error); error) {
    fs::remove(temporary, ignored);
    fail("cannot write ", path("latest.h5"), ": ", error.message());
  }
  sync_names_beside(path(name));  // before any that it replaces goes
  if (keep <= 0) return;
  prune(state.step, keep);
}

void RunFolder::prune(int64_t last_step, int64_t keep) const {
  std::vector<std::pair<int64_t, fs::path>> numbered;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const int64_t step = step_of_name(entry.path().filename().string());
    if (step >= 0 && step <= last_step) numbered.emplace_back(step, entry.path());
  }
  std::ranges::sort(numbered);
  const int64_t surplus = std::ssize(numbered) - keep;
  for (int64_t i = 0; i < surplus; ++i) {
    std::error_code ignored;
    fs::remove(numbered[i].second, ignored);
  }
}

double StepMetrics::bits() const { return loss / std::numbers::ln2; }

std::string to_json(const StepMetrics& m) {
  std::string out;
  const std::pair<const char*, double> numbers[] = {
      {"step", m.step}, {"loss", m.loss},           {"bits", m.bits()},
      {"lr", m.lr},     {"grad_norm", m.grad_norm}, {"tokens_per_s", m.tokens_per_s},
      {"mfu", m.mfu},   {"context", m.context},     {"elapsed_s", m.elapsed_s}};
  for (const auto& [key, value] : numbers) add_number(out, key, value);
  if (m.loss_scale) add_number(out, "loss_scale", *m.loss_scale);
  if (m.skipped) add_number(out, "skipped", static_cast<double>(*m.skipped));
  add_evaluation(out, m);
  return out + "}";
}

std::optional<double> json_number(const std::string& line, const std::string& key) {
  const std::string quoted = str('"', key, "\": ");
  const std::size_t at = line.find(quoted);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = line.c_str() + at + quoted.size();
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  return end == begin ? std::nullopt : std::optional<double>(value);
}

MetricsLog::MetricsLog(std::string path, const std::string& history, int64_t resumed_step)
    : path_(std::move(path)) {
  std::string kept = resumed_step > 0 ? lines_up_to(history, resumed_step, last_line_) : "";
  lacks_evaluation_ = last_line_.ends_with(kGivenUp) &&
                      json_number(last_line_, "step") == static_cast<double>(resumed_step);
  if (lacks_evaluation_) kept.resize(kept.size() - last_line_.size() - 1);
  write_whole_file(path_, [&](std::ostream& out) { out << kept; });
}

double MetricsLog::elapsed_s(int64_t resumed_step, int64_t tokens_per_step) const {
  const auto step = json_number(last_line_, "step"), elapsed = json_number(last_line_, "elapsed_s"),
             rate = json_number(last_line_, "tokens_per_s");
  if (!step || !elapsed) return 0;
  const double tokens =
      (static_cast<double>(resumed_step) - *step) * static_cast<double>(tokens_per_step);
  return *elapsed + (rate && *rate > 0 ? tokens / *rate : 0);
}

void MetricsLog::append(const StepMetrics& metrics) { append_line(to_json(metrics)); }

void MetricsLog::append_evaluation(const StepMetrics& metrics) {
  std::string line = last_line_.substr(0, last_line_.size() - std::string(kGivenUp).size());
  add_evaluation(line, metrics);
  append_line(line + "}");
  lacks_evaluation_ = false;
}

void MetricsLog::append_line(const std::string& line) const {
  std::ofstream out(path_, std::ios::binary | std::ios::app);
  out << line + "\n" << std::flush;
  if (!out) fail("cannot write ", path_, ": is the disk full?");
}
}  // namespace weft
