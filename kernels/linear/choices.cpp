// SPDX-License-Identifier: MIT
// The file of choices: a line with the format, one with the environment, then lines of key and number.
#include "kernels/linear/choices.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <utility>

#include "kernels/view.h"

namespace weft {
namespace {

constexpr const char* kFormat = "weft linear choices 1";
constexpr int kLargest = 1000;  // a number beyond it was not written here

// FNV-1a (Fowler, Noll, Vo): a short name for a line of text.
std::string hash_text(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << hash;
  return out.str();
}

}  // namespace

LinearChoices::LinearChoices(const std::string& folder, std::string environment)
    : environment_(std::move(environment)) {
  if (folder.empty()) return;
  path_ = folder + "/linear-" + hash_text(environment_) + ".txt";
  choices_ = read();
}

int LinearChoices::find(const std::string& key) const {
  const auto at = choices_.find(key);
  return at == choices_.end() ? -1 : at->second;
}

void LinearChoices::add(const std::string& key, int choice) {
  choices_[key] = choice;
  if (path_.empty()) return;
  choices_.merge(read());  // keeps ours where both have a key
  write();
}

// A file that is not what write() leaves is as good as none.
std::map<std::string, int> LinearChoices::read() const {
  std::map<std::string, int> found;
  std::ifstream in(path_, std::ios::binary);
  std::string format, environment, line;
  if (!std::getline(in, format) || format != kFormat || !std::getline(in, environment) ||
      environment != environment_)
    return {};
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string key, rest;
    int choice = -1;
    if (!(fields >> key >> choice) || fields >> rest || choice < 0 || choice > kLargest) return {};
    found[key] = choice;
  }
  return found;
}

void LinearChoices::write() const {
  namespace fs = std::filesystem;
  std::error_code trouble;
  fs::create_directories(fs::path(path_).parent_path(), trouble);
  const std::string beside = str(path_, '.', getpid());
  {
    std::ofstream out(beside, std::ios::binary);
    out << kFormat << '\n' << environment_ << '\n';
    for (const auto& [key, choice] : choices_) out << key << ' ' << choice << '\n';
    out.flush();
    if (!out) {
      fs::remove(beside, trouble);
      return;
    }
  }
  fs::rename(beside, path_, trouble);
  if (trouble) fs::remove(beside, trouble);
}

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) return cache + "/weft";
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.cache/weft" : "";
}

bool tuning_enabled() {
  static const bool enabled = [] {
    const char* text = std::getenv("WEFT_TUNE");
    if (!text || !*text) return true;
    const std::string value = text;
    WEFT_CHECK(value == "0" || value == "1", "WEFT_TUNE must be 0 or 1, got '", value, "'");
    return value == "1";
  }();
  return enabled;
}

}  // namespace weft
