// SPDX-License-Identifier: MIT
// The commands of `prepare` for sound and images; see data/prepare/prepare.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
struct PrepareAudio {
  std::vector<std::string> files;  // joined in this order; a token is a mu-law code (audio_file.h)
  std::string out = {};
  int64_t rate = 12000;  // samples a second
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_audio(const PrepareAudio&);

// Images of 32 x 32 x 3. Of the whole CIFAR-10, 2,000 chosen with kSplitSeed validate, else the
// last 512.
struct PrepareCifar10 {
  // the official folder or tar.gz, or files; none: it is downloaded
  std::vector<std::string> from;
  std::vector<std::string> test = {};  // with files: those of the test split
  std::string out = "cifar10.h5";
  int64_t valid = -1;  // training images that validate; -1: as above
  std::string url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
  int64_t batch = 10000;  // images in an official file
};

std::string prepare_cifar10(const PrepareCifar10&);

// Downsampled ImageNet, `side` x `side` x 3.
struct PrepareImagenet {
  int64_t side = 64;
  // train; the published validation set, which tests
  std::vector<std::string> from = {}, valid_from = {};
  std::string out = {};
  int64_t valid = -1;  // of the last training images; -1: imagenet_validation()
};

std::string prepare_imagenet(const PrepareImagenet&);
// How many of the last of so many training images validate by custom; -1: there is none.
int64_t imagenet_validation(int64_t side, int64_t images);

// A folder of PNG files of one size, or of folders of them, which are the labels in order of their
// names. Validation and test images are chosen with kSplitSeed.
struct PrepareImages {
  std::string folder, out = {};
  int64_t valid = -1, test = 0;  // images; valid -1: a tenth, at most 512
};

std::string prepare_images(const PrepareImages&);
}  // namespace weft
