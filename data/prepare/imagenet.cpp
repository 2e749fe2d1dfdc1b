// SPDX-License-Identifier: MIT
// prepare imagenet64, imagenet32: downsampled ImageNet from numpy files. The published validation images are
// the test split; the end of the training images validates.
#include "data/dataset.h"
#include "data/formats/image_files.h"
#include "data/formats/raw_file.h"
#include "data/prepare/prepare.h"
#include "kernels/view.h"

namespace weft {

std::int64_t imagenet_validation(std::int64_t side, std::int64_t images) {
  if (side == 64 && images == 1281149) return images - 1231149;
  if (side == 32 && images == 1281167) return images - 1271167;
  return -1;
}

std::string prepare_imagenet(const PrepareImagenet& o) {
  if (o.from.empty()) fail("--from: name the files with the training images (.npy, .npz)");
  const ImageShape shape = square_rgb(o.side);
  ImageSplit train, test;
  std::string lines;
  std::vector<std::string> names;
  const auto read = [&](const std::vector<std::string>& files, ImageSplit& split, const char* kind) {
    for (const std::string& path : files) {
      const std::int64_t before = image_count(split, shape);
      const std::size_t labels = split.labels.size();
      append_image_file(path, o.side, split);
      lines += str("read ", path, ": ", image_count(split, shape) - before, kind, " images",
                   split.labels.size() > labels ? "" : ", no labels", "\n");
      names.push_back(file_name(path));
    }
    // Labels of a part of the images are of no use.
    if (static_cast<std::int64_t>(split.labels.size()) != image_count(split, shape)) split.labels.clear();
  };
  read(o.from, train, " training");
  read(o.valid_from, test, " published validation");
  const std::int64_t all = image_count(train, shape),
                     count = o.valid >= 0 ? o.valid : imagenet_validation(o.side, all);
  if (count < 0)
    fail("--valid: say how many of the last training images validate: there are ", all,
         ", and only for the whole set (", o.side == 64 ? 1281149 : 1281167, ") the number is known");
  const ImageSplit valid = take_last(train, shape, count, "--valid");
  const std::string what =
      str("ImageNet ", o.side, " x ", o.side, ": the last ", count, " of ", all, " training images validate",
          o.valid_from.empty() ? "" : ", the published validation images test");
  return str(lines, what, "\n", write_image_file(o.out, shape, train, valid, test, what, names));
}

}  // namespace weft
