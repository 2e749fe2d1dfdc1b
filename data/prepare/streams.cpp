// SPDX-License-Identifier: MIT
// prepare text, copy, tokens, novels and enwik8.
#include "data/dataset.h"
#include "data/prepare/prepare.h"
#include "data/prepare/raw_file.h"
#include "kernels/philox.h"
#include "kernels/view.h"
#include "src/files/files.h"
#include "src/files/overwrites.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
std::string prepare_text(const PrepareText& o) {
  if (o.files.empty()) fail("prepare text: name at least one file");
  check_overwrites({{"--out", o.out}}, o.files);
  std::vector<char> bytes;
  std::vector<std::string> sources;
  std::string lines;
  for (const std::string& file : o.files) {
    const auto piece = read_raw_file(file, kMostTokens - std::ssize(bytes));
    lines += str("read ", file, ": ", piece.size(), " bytes\n");
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    sources.push_back(file_name(file));
  }
  return lines + write_token_file(o.out, bytes, 256, o.split, "bytes of text", sources);
}

double copy_entropy(int64_t vocab, double resample) {
  const auto v = static_cast<double>(vocab);
  // of each other token; of the copied one
  const double other = resample / v, same = 1 - resample + other;
  const auto bits = [](double p) { return p > 0 ? -p * std::log2(p) : 0; };
  return bits(same) + (v - 1) * bits(other);
}

std::string prepare_copy(const PrepareCopy& o) {
  if (o.vocab < 2 || o.vocab > 65536) fail("--vocab: expected 2 to 65536, got ", o.vocab);
  if (o.length > kMostTokens) fail("--length: expected at most ", kMostTokens, ", got ", o.length);
  if (o.distance < 1 || o.length <= o.distance)
    fail("--distance: expected 1 to less than --length ", o.length, ", got ", o.distance);
  if (!(o.resample > 0 && o.resample <= 1))
    fail("--resample: expected more than 0 and at most 1, got ", o.resample);
  std::vector<uint16_t> tokens(o.length);
  for (int64_t t = 0; t < o.length; ++t) {
    const Philox4 bits =
        philox4x32({static_cast<uint32_t>(t), static_cast<uint32_t>(t >> 32), 0, 0}, o.seed);
    const bool renewed = t < o.distance || bits[0] < o.resample * 0x1p32;
    const uint64_t uniform = (uint64_t{bits[1]} << 32 | bits[2]) >> 16;  // 48 bits: times 2^16 fits
    tokens[t] = renewed ? static_cast<uint16_t>(uniform * static_cast<uint64_t>(o.vocab) >> 48)
                        : tokens[t - o.distance];
  }
  const double entropy = copy_entropy(o.vocab, o.resample);
  const std::string what = str("copy task: token t is token t - ", o.distance,
                               ", or with probability ", o.resample, " uniform; seed ", o.seed);
  return str("entropy: ", entropy, " bits a token when the token ", o.distance,
             " before is seen, else ", std::log2(static_cast<double>(o.vocab)), "\n",
             write_token_file(o.out, tokens, o.vocab, o.split, what));
}

namespace {
// Whether only every `nth` of the numbers is not 0.
bool zero_between(const NpyArray& numbers, int64_t nth) {
  if (numbers.size() % nth != 0) return false;
  for (int64_t i = 0; i < numbers.size(); ++i)
    if (i % nth != 0 && numbers.value(i) != 0) return false;
  return true;
}

// Bare numbers do not say their type: wider ones, read as narrow ones, are small numbers and zeros.
void check_width(const std::string& path, const NpyArray& numbers) {
  if (!zero_between(numbers, 2)) return;
  const int width = numbers.item == 2 && zero_between(numbers, 4) ? 8 : 2 * numbers.item;
  fail(path, ": read as numbers of ", numbers.item, " bytes, all but every ",
       width / numbers.item == 2 ? "second" : "fourth", " one are 0, as in a file of numbers of ",
       width, " bytes; ",
       width == 4 ? "for these say --dtype u32" : "save these by numpy.save, as .npy",
       "; if they are right as they are, say --dtype u", 8 * numbers.item);
}
}  // namespace

std::string prepare_tokens(const PrepareTokens& o) {
  check_overwrites({{"--out", o.out}}, {o.file});
  if (file_beginning(o.file).empty()) fail(o.file, ": is empty");
  const auto size = std::filesystem::file_size(o.file);  // mapped: it need not fit into memory
  const int opened = open(o.file.c_str(), O_RDONLY | O_CLOEXEC);
  const auto unmap = [=](void* bytes) { munmap(bytes, size); };
  const std::unique_ptr<void, decltype(unmap)> mapped(
      mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened, 0), unmap);
  if (mapped.get() == MAP_FAILED) fail(o.file, ": cannot be read: ", std::strerror(errno));
  close(opened);
  const std::string_view file(static_cast<const char*>(mapped.get()), size);
  NpyArray tokens{'u', o.dtype == "u32" || (o.dtype.empty() && o.vocab > 65536) ? 4 : 2, {}, file};
  if (is_npy(file)) {
    if (!o.dtype.empty())
      fail("--dtype: ", o.file, " is a .npy file, which says its type; leave it out");
    tokens = parse_npy(file, o.file);
    if (tokens.shape.size() != 1)
      fail(o.file, ": has ", tokens.shape.size(), " axes, expected one; in numpy: a.reshape(-1)");
  } else if (o.dtype.empty() && file.starts_with("PK\3\4")) {
    fail(o.file, ": is a zip archive, such as numpy.savez makes, expected one array; save that by ",
         "numpy.save, as .npy; of bare numbers say --dtype");
  } else if (size % tokens.item != 0) {
    fail(o.file, ": has ", size, " bytes, no whole number of tokens of ", tokens.item,
         " bytes; name their type with --dtype");
  } else if (o.dtype.empty()) {
    check_width(o.file, tokens);
  }
  return write_token_file(o.out, tokens, o.vocab, o.split, "numbers of a tokenizer",
                          {file_name(o.file)}, {{"bytes", o.bytes}});
}

// ---- downloaded texts. A novel loses its byte-order mark, carriage returns and newlines at both
// ends

namespace {
namespace fs = std::filesystem;

constexpr std::string_view kMark = "\xef\xbb\xbf";  // byte-order mark of UTF-8

// The novels by name. `out`: the file to write, which may be none of them.
std::map<std::string, std::string> read_folder(const fs::path& folder, const std::string& out) {
  std::error_code none;
  const fs::path corpus = fs::is_directory(folder / "corpus", none) ? folder / "corpus" : folder;
  if (!fs::is_directory(corpus, none)) fail(folder.string(), ": is no folder, expected a clone");
  std::map<std::string, std::string> novels;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    if (entry.path().extension() != ".txt") continue;
    check_overwrites({{"--out", out}}, {entry.path()});
    const std::vector<char> bytes = read_raw_file(entry.path());
    novels[entry.path().filename()] = {bytes.begin(), bytes.end()};
  }
  if (novels.empty()) fail(corpus.string(), ": has no .txt files, expected those of corpus/");
  return novels;
}

std::map<std::string, std::string> download(const PrepareNovels& o) {
  const std::string way_out = "; clone " + o.repository + " on another machine, check out " +
                              o.commit + ", and give the folder with --from DIR";
  if (!is_installed("tar")) fail("tar is not installed" + way_out);
  const DownloadFolder folder(o.out + ".download");
  const std::string archive = folder / "novels.tar.gz", clone = folder / "clone";
  download_file(o.repository + "/archive/" + o.commit + ".tar.gz", archive, "30 MB", way_out);
  make_folder(clone);
  if (!run_command("tar -xzf " + shell_quoted(archive) + " -C " + shell_quoted(clone) +
                   " --strip-components=1 2>/dev/null"))
    fail("what ", o.repository, " gave is not a whole tar.gz file", way_out);
  return read_folder(clone, o.out);
}

void append_novel(std::vector<char>& all, std::string text) {
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  std::erase(text, '\r');
  const std::size_t first = text.find_first_not_of('\n'), last = text.find_last_not_of('\n');
  if (first != std::string::npos)
    all.insert(all.end(), text.begin() + first, text.begin() + last + 1);
  all.insert(all.end(), 3, '\n');
}

// enwik8: the first 10^8 bytes of the English Wikipedia of 2006-03-03, as bytes, 90 / 5 / 5
// million.
constexpr std::size_t kLength = 100000000;
constexpr const char* kMd5 = "a1fa5ffddb56f4953e226637dabbb36a";
constexpr std::string_view kBeginning =
    "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.3/\"";

std::vector<char> download(const PrepareEnwik8& o) {
  const std::string way_out =
      "; get " + o.url + " on another machine, unzip it, and give the file with --from enwik8";
  if (!is_installed("unzip")) fail("unzip is not installed" + way_out);
  const DownloadFolder folder(o.out + ".download");
  const std::string zip = folder / "enwik8.zip";
  download_file(o.url, zip, "36 MB", way_out);
  if (!run_command("unzip -q -o " + shell_quoted(zip) + " -d " + shell_quoted(folder / "") +
                   " 2>/dev/null"))
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
  if (!text.starts_with(kBeginning))
    fail(where, ": does not begin as enwik8 does (", kBeginning, ")");
  if (text.size() > kLength) fail(where, ": has ", text.size(), " bytes, enwik8 has ", kLength);
  if (!o.allow_prefix)
    fail(where, ": has ", text.size(), " bytes, enwik8 has ", kLength,
         "; --allow-prefix takes its beginning alone");
  return str("the first ", text.size(), " bytes of enwik8 (not checked further)");
}
}  // namespace

std::string prepare_novels(const PrepareNovels& o) {
  const auto novels = o.from.empty() ? download(o) : read_folder(o.from, o.out);
  std::vector<char> bytes;
  for (const auto& [name, text] : novels) append_novel(bytes, text);
  if (const std::string sum = md5(bytes); sum != o.md5)
    fail(o.from.empty() ? o.repository : o.from, ": ", novels.size(), " files give ", bytes.size(),
         " bytes with md5 ", sum, ", expected ", o.md5, ": check out commit ", o.commit);
  const std::string what = str(novels.size(), " English novels, ", bytes.size(), " bytes");
  return str(what, "\n",
             write_token_file(o.out, bytes, 256, {0.9, 0.05, 0.05}, what, {o.repository}));
}

std::string prepare_enwik8(const PrepareEnwik8& o) {
  check_overwrites({{"--out", o.out}}, {o.from});
  const std::vector<char> bytes =
      o.from.empty() ? download(o) : read_raw_file(o.from, 2 * int64_t{kLength});
  const std::string what = check_is_enwik8(bytes, o);
  return str(what, "\n", write_token_file(o.out, bytes, 256, {0.9, 0.05, 0.05}, what, {"enwik8"}));
}
}  // namespace weft
