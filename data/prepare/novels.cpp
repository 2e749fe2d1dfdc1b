// SPDX-License-Identifier: MIT
// prepare novels and prepare enwik8, texts that are downloaded. novels: 100 English novels in the public
// domain, one after the other. Each loses its byte-order mark, its carriage returns and the newlines at both
// ends; three newlines follow it.
#include <filesystem>
#include <map>

#include "data/dataset.h"
#include "data/formats/archive.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "kernels/view.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "\xef\xbb\xbf";  // byte-order mark of UTF-8

bool is_novel(const fs::path& name) {
  return name.extension() == ".txt" && name.parent_path().filename() == "corpus";
}

std::map<std::string, std::string> download(const PrepareNovels& o) {
  const std::string way_out = "; clone " + o.repository + " on another machine, check out " + o.commit +
                              ", and give the folder with --from DIR";
  const DownloadFolder folder(o.out + ".download");
  const std::string archive = folder / "novels.tar.gz";
  download_file(o.repository + "/archive/" + o.commit + ".tar.gz", archive, "30 MB", way_out);
  std::map<std::string, std::string> novels;
  for_each_member(archive, is_novel, [&](const std::string& name, std::string bytes) {
    novels[fs::path(name).filename()] = std::move(bytes);
  });
  return novels;
}

std::map<std::string, std::string> read_folder(const fs::path& folder) {
  std::error_code none;
  const fs::path corpus = fs::is_directory(folder / "corpus", none) ? folder / "corpus" : folder;
  if (!fs::is_directory(corpus, none)) fail(folder.string(), ": is no folder, expected a clone");
  std::map<std::string, std::string> novels;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    if (entry.path().extension() != ".txt") continue;
    const std::vector<char> bytes = read_raw_file(entry.path());
    novels[entry.path().filename()] = {bytes.begin(), bytes.end()};
  }
  if (novels.empty()) fail(corpus.string(), ": has no .txt files, expected those of corpus/");
  return novels;
}

void append_novel(std::vector<char>& all, std::string text) {
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  std::erase(text, '\r');
  const std::size_t first = text.find_first_not_of('\n'), last = text.find_last_not_of('\n');
  if (first != std::string::npos)
    all.insert(all.end(), text.begin() + static_cast<std::ptrdiff_t>(first),
               text.begin() + static_cast<std::ptrdiff_t>(last) + 1);
  all.insert(all.end(), 3, '\n');
}

}  // namespace

std::string prepare_novels(const PrepareNovels& o) {
  const auto novels = o.from.empty() ? download(o) : read_folder(o.from);  // by name
  std::vector<char> bytes;
  for (const auto& [name, text] : novels) append_novel(bytes, text);
  if (const std::string sum = md5(bytes); sum != o.md5)
    fail(o.from.empty() ? o.repository : o.from, ": ", novels.size(), " files give ", bytes.size(),
         " bytes with md5 ", sum, ", expected ", o.md5, ": check out commit ", o.commit);
  const std::string what = str(novels.size(), " English novels, ", bytes.size(), " bytes");
  return str(what, "\n", write_token_file(o.out, bytes, 256, {0.9, 0.05, 0.05}, what, {o.repository}));
}

namespace {

// enwik8: the first 10^8 bytes of the English Wikipedia of 2006-03-03, as bytes, 90 / 5 / 5 million.
constexpr std::size_t kLength = 100000000;
constexpr const char* kMd5 = "a1fa5ffddb56f4953e226637dabbb36a";
constexpr std::string_view kBeginning = "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.3/\"";

std::vector<char> download(const PrepareEnwik8& o) {
  const std::string way_out =
      "; get " + o.url + " on another machine, unzip it, and give the file with --from enwik8";
  if (!is_installed("unzip")) fail("unzip is not installed" + way_out);
  const DownloadFolder folder(o.out + ".download");
  const std::string zip = folder / "enwik8.zip";
  download_file(o.url, zip, "36 MB", way_out);
  if (!run_command("unzip -q -o " + shell_quoted(zip) + " -d " + shell_quoted(folder / "") + " 2>/dev/null"))
    fail("what ", o.url, " gave is not a whole zip file", way_out);
  return read_raw_file(folder / "enwik8");
}

// Returns what to call it.
std::string check_is_enwik8(const std::vector<char>& bytes, const PrepareEnwik8& o) {
  const std::string where = o.from.empty() ? o.url : o.from;
  const std::string_view text(bytes.data(), bytes.size());
  if (text.starts_with("PK"))
    fail(where, ": is a zip file; unzip it and give the file enwik8 that is inside");
  if (text.size() == kLength) {
    if (const std::string sum = md5(bytes); sum != kMd5)
      fail(where, ": has md5 ", sum, ", enwik8 has ", kMd5);
    return "enwik8";
  }
  if (!text.starts_with(kBeginning)) fail(where, ": does not begin as enwik8 does (", kBeginning, ")");
  if (text.size() > kLength) fail(where, ": has ", text.size(), " bytes, enwik8 has ", kLength);
  if (!o.allow_prefix)
    fail(where, ": has ", text.size(), " bytes, enwik8 has ", kLength,
         "; --allow-prefix takes its beginning alone");
  return str("the first ", text.size(), " bytes of enwik8 (not checked further)");
}

}  // namespace

std::string prepare_enwik8(const PrepareEnwik8& o) {
  const std::vector<char> bytes =
      o.from.empty() ? download(o) : read_raw_file(o.from, 2 * std::int64_t{kLength});
  const std::string what = check_is_enwik8(bytes, o);
  return str(what, "\n", write_token_file(o.out, bytes, 256, {0.9, 0.05, 0.05}, what, {"enwik8"}));
}

}  // namespace weft
