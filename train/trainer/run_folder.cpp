// SPDX-License-Identifier: MIT
#include "train/trainer/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace fs = std::filesystem;

namespace weft {
namespace {

std::string folder_of(const Config& config, const std::string& out) {
  return out.empty() ? (fs::path("runs") / config.name).string() : out;
}

std::int64_t step_of(const fs::path& file) {  // -1: not a numbered checkpoint
  const std::string name = file.filename().string();
  if (name.size() != 16 || !name.starts_with("step_") || !name.ends_with(".h5")) return -1;
  const std::string digits = name.substr(5, 8);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::atoll(digits.c_str());
}

}  // namespace

std::string deciding_difference(const Config& there, const Config& here, const std::string& allowed) {
  for (const KeyDifference& d : config_differences(there, here)) {
    const bool is_allowed = d.rule == OnResume::asked && (allowed == "*" || allowed == d.key);
    if (d.rule == OnResume::free || d.rule == OnResume::told || is_allowed) continue;
    const std::string text = str(d.key, ": ", d.there, " in the checkpoint, ", d.here, " now");
    return d.rule == OnResume::same ? text : str(text, " (", d.effect, "; --allow-changes lets it differ)");
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

RunFolder::RunFolder(const Config& config, const std::string& out, const std::optional<std::string>& resume,
                     const std::string& allowed)
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
         ". Only these may differ: ", keys_on_resume(OnResume::told), ", ", keys_on_resume(OnResume::free),
         "; with --allow-changes also ", keys_on_resume(OnResume::asked), "; for another run choose --out");
  for (const KeyDifference& d : config_differences(there, config))
    if (!d.effect.empty()) changes_.push_back(str(d.key, " from ", d.there, " to ", d.here, ": ", d.effect));
}

void RunFolder::check_latest() const {
  if (!fs::exists(path("latest.h5"))) return;
  if (resumed_from_.empty())
    fail(folder_,
         " holds a run already (latest.h5): go on with --resume, or choose another folder with --out");
  if (!fs::equivalent(fs::absolute(resumed_from_).parent_path(), folder_))
    fail(folder_, " holds another run (latest.h5) than ", resumed_from_,
         ": choose another folder with --out");
}

std::string RunFolder::lock() {
  if (lock_ || !fs::is_directory(folder_)) return "";
  const std::string name = path("lock");
  lock_ =
      Descriptor(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));  // NFS locks what can be written
  if (!lock_) fail(name, ": cannot be opened: ", std::strerror(errno));
  int tries = 10, error = 0;  // a process that was killed may take a moment to end
  while ((error = flock(lock_.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno) == EWOULDBLOCK && --tries > 0)
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
  if (ftruncate(lock_.get(), 0) == 0) static_cast<void>(write_all(lock_.get(), owner.data(), owner.size()));
  check_latest();  // one that has just ended may have left it
  return "";
}

std::string RunFolder::create(const Config& config) {
  make_folder(folder_);
  const std::string warning = lock();
  write_whole_file(path("config.yaml"), [&](std::ostream& out) { out << to_yaml(config); });
  return warning;
}

std::string RunFolder::path(const std::string& file) const { return (fs::path(folder_) / file).string(); }

std::string RunFolder::history() const {
  return resumed_from_.empty() ? "" : (fs::path(resumed_from_).parent_path() / "metrics.jsonl").string();
}

void RunFolder::save_numbered(Device& device, const ParameterStore& store, const TrainState& state,
                              const std::string& config_yaml, std::int64_t keep) const {
  char name[32];
  std::snprintf(name, sizeof name, "step_%08lld.h5", static_cast<long long>(state.step));
  // First the numbered one: what ends between the two leaves a run that goes on from before both.
  save_checkpoint(path(name), device, store, state, config_yaml);
  // latest.h5 is always replaced, never written in place, so a second name for it is a checkpoint of its own.
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

void RunFolder::prune(std::int64_t last_step, std::int64_t keep) const {
  std::vector<std::pair<std::int64_t, fs::path>> numbered;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::int64_t step = step_of(entry.path());
    if (step >= 0 && step <= last_step) numbered.emplace_back(step, entry.path());
  }
  std::sort(numbered.begin(), numbered.end());
  const std::int64_t surplus = static_cast<std::int64_t>(numbered.size()) - keep;
  for (std::int64_t i = 0; i < surplus; ++i) {
    std::error_code ignored;
    fs::remove(numbered[static_cast<std::size_t>(i)].second, ignored);
  }
}

}  // namespace weft
