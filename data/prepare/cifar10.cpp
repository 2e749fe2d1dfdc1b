// SPDX-License-Identifier: MIT
// prepare cifar10: the official binary files, as a folder, as the tar.gz, or one by one.
#include <algorithm>
#include <filesystem>
#include <map>

#include "data/formats/archive.h"
#include "data/formats/image_files.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "src/config/names.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32, kBatches = 5;
constexpr const char* kMd5 = "c32a1d4ab5d03f1284b67883e8d87530";  // of cifar-10-binary.tar.gz
constexpr const char* kFirstPickle = "data_batch_1";  // the Python version has the same names without .bin
constexpr const char* kForm = "cifar-10-binary.tar.gz, which prepare downloads without --from";

// A raw file: its name in errors, and its bytes.
struct Source {
  std::string where, name;  // name: without folders
  bool test = false;
  std::vector<char> bytes;
};

const std::vector<std::string>& official_names() {
  static const std::vector<std::string> names = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                 "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
  return names;
}

bool is_official(const std::string& name) { return std::ranges::count(official_names(), name) > 0; }
bool is_test(const std::string& name) { return name == "test_batch.bin" || name == "test_batch"; }

// Throws Error, naming `where`, unless all official files are there.
void check_complete(const std::string& where, const std::function<bool(const std::string&)>& there) {
  std::vector<std::string> missing;
  for (const std::string& name : official_names())
    if (!there(name)) missing.push_back(name);
  if (missing.empty()) return;
  if (there(kFirstPickle)) fail_on_pickle(where, kForm);
  if (missing.size() < official_names().size()) fail(where, ": lacks ", joined(missing), " of CIFAR-10");
  fail(where, ": has no files of CIFAR-10: expected ", joined(missing));
}

std::vector<Source> from_folder(const std::string& folder) {
  std::string found = folder;
  for (const char* inner : {"cifar-10-batches-py", "cifar-10-batches-bin"})
    if (std::error_code ignored; fs::is_directory(folder + "/" + inner, ignored))
      found = folder + "/" + inner;
  check_complete(found, [&](const std::string& name) {
    std::error_code ignored;
    return fs::exists(found + "/" + name, ignored);
  });
  std::vector<Source> sources;
  for (const std::string& name : official_names())
    sources.push_back({found + "/" + name, name, is_test(name), read_raw_file(found + "/" + name)});
  return sources;
}

std::vector<Source> from_archive(const std::string& path) {
  std::map<std::string, std::vector<char>> members;
  for_each_member(
      path,
      [](const std::string& member) {
        return is_official(file_name(member)) || file_name(member) == kFirstPickle;
      },
      [&](const std::string& member, std::string bytes) {
        if (!members.try_emplace(file_name(member), bytes.begin(), bytes.end()).second)
          fail(path, ": has two members ", file_name(member));
      },
      {.member = std::int64_t{256} << 20, .total = std::int64_t{1} << 30});
  check_complete(path, [&](const std::string& name) { return members.contains(name); });
  std::vector<Source> sources;
  for (const std::string& name : official_names())
    sources.push_back({path + ": " + name, name, is_test(name), std::move(members[name])});
  return sources;
}

std::vector<Source> downloaded(const PrepareCifar10& o) {
  const std::string way_out =
      "; get " + o.url + " on another machine and give the file, or the folder it unpacks to, with --from";
  const DownloadFolder folder(o.out + ".download");
  const std::string path = folder / "cifar-10-binary.tar.gz";
  download_file(o.url, path, "162 MB", way_out);
  if (const std::string sum = md5(read_raw_file(path)); sum != kMd5)
    fail(o.url, ": the download has md5 ", sum, ", the archive has ", kMd5, way_out);
  return from_archive(path);
}

std::vector<Source> sources_of(const PrepareCifar10& o) {
  std::error_code ignored;
  const bool one = o.from.size() == 1;
  const bool folder = one && fs::is_directory(o.from[0], ignored);
  const bool archive = one && !folder && is_archive(file_beginning(o.from[0]));
  if ((o.from.empty() || folder || archive) && !o.test.empty())
    fail("--test: a folder or archive has its test images; --test goes with --from FILES");
  if (o.from.empty()) return downloaded(o);
  if (folder) return from_folder(o.from[0]);
  if (archive) return from_archive(o.from[0]);
  std::vector<Source> sources;
  for (const std::string& path : o.from)
    sources.push_back({path, file_name(path), is_test(file_name(path)), read_raw_file(path)});
  for (const std::string& path : o.test)
    sources.push_back({path, file_name(path), true, read_raw_file(path)});
  return sources;
}

// Appends its images; returns how many.
std::int64_t append(const Source& source, std::int64_t batch, ImageSplit& out) {
  const std::int64_t before = image_count(out, square_rgb(kSide));
  const std::string_view bytes(source.bytes.data(), source.bytes.size());
  if (is_pickle(bytes)) fail_on_pickle(source.where, kForm);
  append_cifar_records(bytes, source.where, out);
  const std::int64_t count = image_count(out, square_rgb(kSide)) - before;
  if (is_official(source.name) && count != batch)
    fail(source.where, ": has ", count, " images, the official file of this name has ", batch,
         ": truncated? (Give other files another name)");
  return count;
}

}  // namespace

std::string prepare_cifar10(const PrepareCifar10& o) {
  const ImageShape shape = square_rgb(kSide);
  ImageSplit train, test;
  std::string lines;
  std::vector<std::string> names;
  std::map<std::string, std::string> sums;  // md5 -> file
  for (const Source& source : sources_of(o)) {
    const auto [other, fresh] = sums.try_emplace(md5(source.bytes), source.where);
    if (!fresh) fail(source.where, ": is the same as ", other->second);
    const std::int64_t count = append(source, o.batch, source.test ? test : train);
    lines += str("read ", source.where, ": ", count, source.test ? " test" : " training", " images\n");
    names.push_back(source.name);
  }
  const std::int64_t all = image_count(train, shape), tests = image_count(test, shape);
  if (all == 0) fail("--from: there are test images, but none to train on");
  const bool full = all == kBatches * o.batch && tests == o.batch;
  const std::int64_t count = o.valid >= 0 ? o.valid : full ? o.batch / 5 : 512;
  const ImageSplit valid = full ? take_chosen(train, shape, count, kSplitSeed, "--valid")
                                : take_last(train, shape, count, "--valid");
  const std::string what =
      full ? str("CIFAR-10: of ", all, " training images ", count, ", chosen with the seed ", kSplitSeed,
                 ", validate")
           : str("images of CIFAR-10: the last ", count, " of ", all, " training images validate");
  return str(lines, what, "\n", write_image_file(o.out, shape, train, valid, test, what, names));
}

}  // namespace weft
