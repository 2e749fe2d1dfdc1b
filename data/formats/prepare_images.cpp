// SPDX-License-Identifier: MIT
// prepare cifar10, images, imagenet64 and imagenet32.
#include "data/formats/archive.h"
#include "data/formats/image_files.h"
#include "data/formats/image_set.h"
#include "data/formats/prepare.h"
#include "data/prepare/raw_file.h"
#include "src/config/names.h"
#include "src/files/overwrites.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

struct Folder {
  std::vector<std::string> images, folders;  // full paths, sorted
  int64_t others = 0;
};

Folder listed(const std::string& path) {
  Folder folder;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    std::string ending = at->path().extension().string();
    std::ranges::transform(ending, ending.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (at->is_directory(ignored))
      folder.folders.push_back(at->path().string());
    else if (ending == ".png")
      folder.images.push_back(at->path().string());
    else
      ++folder.others;
  }
  if (error) fail(path, ": cannot be read as a folder: ", error.message());
  std::ranges::sort(folder.images);
  std::ranges::sort(folder.folders);
  return folder;
}

// Images in the order of their names.
struct Gathered {
  std::vector<std::string> images;
  std::vector<uint16_t> labels;          // one for each, or none at all
  std::vector<std::string> label_names;  // of the sub-folders
  int64_t others = 0;
};

Gathered gather(const std::string& path) {
  Folder top = listed(path);
  if (!top.images.empty() && !top.folders.empty())
    fail(path, ": has images beside the folder ", top.folders.front(),
         "; expected images alone, or a folder for each label alone");
  Gathered all;
  all.images = std::move(top.images);
  all.others = top.others;
  constexpr std::size_t kMostLabels = 65536;
  if (top.folders.size() > kMostLabels)
    fail(path, ": has ", top.folders.size(), " folders, at most ", kMostLabels,
         " labels are possible");
  for (const std::string& folder : top.folders) {
    const Folder inner = listed(folder);
    if (!inner.folders.empty())
      fail(inner.folders.front(), ": folders for labels hold images alone, no further folders");
    all.labels.insert(all.labels.end(), inner.images.size(),
                      static_cast<uint16_t>(all.label_names.size()));
    all.images.insert(all.images.end(), inner.images.begin(), inner.images.end());
    all.label_names.push_back(file_name(folder));
    all.others += inner.others;
  }
  if (all.images.empty()) fail(path, ": has no .png files");
  return all;
}

std::string size_text(const ImageShape& shape) { return str(shape.height, " x ", shape.width); }

// All with as many channels as the richest has. The first colour image turns the grey ones before
// it.
ImageSplit read_all(const Gathered& all, ImageShape& shape) {
  ImageSplit split{.pixels = {}, .labels = all.labels};
  for (const std::string& path : all.images) {
    PngImage image = read_png(path);
    if (!shape) shape = image.shape;
    if (image.shape.height != shape.height || image.shape.width != shape.width)
      fail(path, ": has ", size_text(image.shape), " pixels, ", all.images.front(), " has ",
           size_text(shape), "; all images must have one size");
    if (image.shape.channels > shape.channels) {
      const int64_t images = image_count(split, shape);
      split.pixels =
          as_rgb({{images * shape.height, shape.width, 1}, std::move(split.pixels)}).pixels;
      shape = image.shape;
    }
    if (image.shape.channels < shape.channels) image = as_rgb(std::move(image));
    split.pixels.insert(split.pixels.end(), image.pixels.begin(), image.pixels.end());
  }
  return split;
}

std::string label_text(const Gathered& all) {
  if (all.label_names.empty()) return "no labels";
  constexpr std::size_t kShown = 20;
  std::string text = "labels ";
  for (std::size_t i = 0; i < std::min(kShown, all.label_names.size()); ++i)
    text += str(i > 0 ? ", " : "", i, " ", all.label_names[i]);
  return all.label_names.size() > kShown ? str(text, " ... ", all.label_names.size(), " in all")
                                         : text;
}

// ---- cifar10 ----

constexpr int64_t kSide = 32, kBatches = 5;
constexpr const char* kMd5 = "c32a1d4ab5d03f1284b67883e8d87530";  // of cifar-10-binary.tar.gz
// the Python version has the same names without .bin
constexpr const char* kFirstPickle = "data_batch_1";
constexpr const char* kForm = "cifar-10-binary.tar.gz, which prepare downloads without --from";

// A raw file: its name in errors, and its bytes.
struct Source {
  std::string where, name;  // name: without folders
  bool test = false;
  std::vector<char> bytes;
};

const std::vector<std::string>& official_names() {
  static const std::vector<std::string> names = {"data_batch_1.bin", "data_batch_2.bin",
                                                 "data_batch_3.bin", "data_batch_4.bin",
                                                 "data_batch_5.bin", "test_batch.bin"};
  return names;
}

bool is_official(const std::string& name) { return std::ranges::count(official_names(), name) > 0; }

bool is_test(const std::string& name) { return name == "test_batch.bin" || name == "test_batch"; }

// Throws Error, naming `where`, unless all official files are there.
void check_complete(const std::string& where,
                    const std::function<bool(const std::string&)>& there) {
  std::vector<std::string> missing;
  for (const std::string& name : official_names())
    if (!there(name)) missing.push_back(name);
  if (missing.empty()) return;
  if (there(kFirstPickle)) fail_on_pickle(where, kForm);
  if (missing.size() < official_names().size())
    fail(where, ": lacks ", joined(missing), " of CIFAR-10");
  fail(where, ": has no files of CIFAR-10: expected ", joined(missing));
}

std::vector<Source> from_folder(const std::string& folder, const std::string& out) {
  std::string found = folder;
  for (const char* inner : {"cifar-10-batches-py", "cifar-10-batches-bin"})
    if (std::error_code ignored; fs::is_directory(folder + "/" + inner, ignored))
      found = folder + "/" + inner;
  check_complete(found, [&](const std::string& name) {
    std::error_code ignored;
    return fs::exists(found + "/" + name, ignored);
  });
  std::vector<Source> sources;
  for (const std::string& name : official_names()) {
    const std::string path = found + "/" + name;
    check_overwrites({{"--out", out}}, {path});
    sources.push_back({path, name, is_test(name), read_raw_file(path)});
  }
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
      {.member = int64_t{256} << 20, .total = int64_t{1} << 30});
  check_complete(path, [&](const std::string& name) { return members.contains(name); });
  std::vector<Source> sources;
  for (const std::string& name : official_names())
    sources.push_back({path + ": " + name, name, is_test(name), std::move(members[name])});
  return sources;
}

std::vector<Source> downloaded(const PrepareCifar10& o) {
  const std::string way_out =
      "; get " + o.url +
      " on another machine and give the file, or the folder it unpacks to, with --from";
  const DownloadFolder folder(o.out + ".download");
  const std::string path = folder / "cifar-10-binary.tar.gz";
  download_file(o.url, path, "162 MB", way_out);
  if (const std::string sum = md5(read_raw_file(path)); sum != kMd5)
    fail(o.url, ": the download has md5 ", sum, ", the archive has ", kMd5, way_out);
  return from_archive(path);
}

std::vector<Source> sources_of(const PrepareCifar10& o) {
  for (const auto& files : {o.from, o.test}) check_overwrites({{"--out", o.out}}, files);
  std::error_code ignored;
  const bool one = o.from.size() == 1;
  const bool folder = one && fs::is_directory(o.from[0], ignored);
  const bool archive = one && !folder && is_archive(file_beginning(o.from[0]));
  if ((o.from.empty() || folder || archive) && !o.test.empty())
    fail("--test: a folder or archive has its test images; --test goes with --from FILES");
  if (o.from.empty()) return downloaded(o);
  if (folder) return from_folder(o.from[0], o.out);
  if (archive) return from_archive(o.from[0]);
  std::vector<Source> sources;
  for (const std::string& path : o.from)
    sources.push_back({path, file_name(path), is_test(file_name(path)), read_raw_file(path)});
  for (const std::string& path : o.test)
    sources.push_back({path, file_name(path), true, read_raw_file(path)});
  return sources;
}

// Appends its images; returns how many.
int64_t append(const Source& source, int64_t batch, ImageSplit& out) {
  const int64_t before = image_count(out, square_rgb(kSide));
  const std::string_view bytes(source.bytes.data(), source.bytes.size());
  if (is_pickle(bytes)) fail_on_pickle(source.where, kForm);
  append_cifar_records(bytes, source.where, out);
  const int64_t count = image_count(out, square_rgb(kSide)) - before;
  if (is_official(source.name) && count != batch)
    fail(source.where, ": has ", count, " images, the official file of this name has ", batch,
         ": truncated? (Give other files another name)");
  return count;
}
}  // namespace

std::string prepare_images(const PrepareImages& o) {
  const Gathered all = gather(o.folder);
  check_overwrites({{"--out", o.out}}, all.images);
  ImageShape shape;
  ImageSplit train = read_all(all, shape);
  const auto count = std::ssize(all.images);
  const int64_t tests = o.test >= 0 ? o.test : 0,
                valids = o.valid >= 0 ? o.valid : std::min<int64_t>(512, count / 10);
  const ImageSplit test = take_chosen(train, shape, tests, kSplitSeed, "--test"),
                   valid = take_chosen(train, shape, valids, kSplitSeed, "--valid");
  const std::string what = str(count, " images of ", shape.channels == 1 ? "grey" : "colour", ": ",
                               valids, " validate and ", tests, " test, chosen with the seed ",
                               kSplitSeed, "; ", label_text(all));
  const std::string passed =
      all.others > 0 ? str(all.others, " files that are no .png skipped\n") : "";
  const std::string name = file_name(fs::path(o.folder + "/").parent_path().string());
  return str("read ", o.folder, ": ", what, "\n", passed,
             write_image_file(o.out, shape, train, valid, test, what, {name}));
}

int64_t imagenet_validation(int64_t side, int64_t images) {
  if (side == 64 && images == 1281149) return images - 1231149;
  if (side == 32 && images == 1281167) return images - 1271167;
  return -1;
}

std::string prepare_imagenet(const PrepareImagenet& o) {
  if (o.from.empty()) fail("--from: name the files with the training images (.npy, .npz)");
  for (const auto& files : {o.from, o.valid_from}) check_overwrites({{"--out", o.out}}, files);
  const ImageShape shape = square_rgb(o.side);
  ImageSplit train, test;
  std::string lines;
  std::vector<std::string> names;
  const auto read = [&](const std::vector<std::string>& files, ImageSplit& split,
                        const char* kind) {
    for (const std::string& path : files) {
      const int64_t before = image_count(split, shape);
      const std::size_t labels = split.labels.size();
      append_image_file(path, o.side, split);
      lines += str("read ", path, ": ", image_count(split, shape) - before, kind, " images",
                   split.labels.size() > labels ? "" : ", no labels", "\n");
      names.push_back(file_name(path));
    }
    // Labels of a part of the images are of no use.
    if (std::ssize(split.labels) != image_count(split, shape)) split.labels.clear();
  };
  read(o.from, train, " training");
  read(o.valid_from, test, " published validation");
  const int64_t all = image_count(train, shape),
                count = o.valid >= 0 ? o.valid : imagenet_validation(o.side, all);
  if (count < 0)
    fail("--valid: say how many of the last training images validate: there are ", all,
         ", and only for the whole set (", o.side == 64 ? 1281149 : 1281167,
         ") the number is known");
  const ImageSplit valid = take_last(train, shape, count, "--valid");
  const std::string what =
      str("ImageNet ", o.side, " x ", o.side, ": the last ", count, " of ", all,
          " training images validate",
          o.valid_from.empty() ? "" : ", the published validation images test");
  return str(lines, what, "\n", write_image_file(o.out, shape, train, valid, test, what, names));
}

std::string prepare_cifar10(const PrepareCifar10& o) {
  const ImageShape shape = square_rgb(kSide);
  ImageSplit train, test;
  std::string lines;
  std::vector<std::string> names;
  std::map<std::string, std::string> sums;  // md5 -> file
  for (const Source& source : sources_of(o)) {
    const auto [other, fresh] = sums.try_emplace(md5(source.bytes), source.where);
    if (!fresh) fail(source.where, ": is the same as ", other->second);
    const int64_t count = append(source, o.batch, source.test ? test : train);
    lines +=
        str("read ", source.where, ": ", count, source.test ? " test" : " training", " images\n");
    names.push_back(source.name);
  }
  const int64_t all = image_count(train, shape), tests = image_count(test, shape);
  if (all == 0) fail("--from: there are test images, but none to train on");
  const bool full = all == kBatches * o.batch && tests == o.batch;
  const int64_t count = o.valid >= 0 ? o.valid : full ? o.batch / 5 : 512;
  const ImageSplit valid = full ? take_chosen(train, shape, count, kSplitSeed, "--valid")
                                : take_last(train, shape, count, "--valid");
  const std::string what =
      full ? str("CIFAR-10: of ", all, " training images ", count, ", chosen with the seed ",
                 kSplitSeed, ", validate")
           : str("images of CIFAR-10: the last ", count, " of ", all, " training images validate");
  return str(lines, what, "\n", write_image_file(o.out, shape, train, valid, test, what, names));
}
}  // namespace weft
