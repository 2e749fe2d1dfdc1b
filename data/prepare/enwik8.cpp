// SPDX-License-Identifier: MIT
// prepare enwik8: the first 10^8 bytes of the English Wikipedia of 2006-03-03, as bytes, 90 / 5 / 5 million.

#include "data/dataset.h"
#include "data/formats/download.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "kernels/view.h"

namespace weft {
namespace {

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
