// SPDX-License-Identifier: MIT
// The commands of `prepare`: raw data in, a token file (data/README.md) out. Each returns lines for
// people: what was read, what was written where. On any Error nothing is written and an earlier
// file stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {
struct PrepareText {
  std::vector<std::string> files;  // joined in this order; a token is a byte
  std::string out = {};
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_text(const PrepareText&);

struct PrepareAudio {
  std::vector<std::string> files;  // joined in this order; a token is a mu-law code (audio_file.h)
  std::string out = {};
  int64_t rate = 12000;  // samples a second
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_audio(const PrepareAudio&);

// The numbers of any tokenizer: a .npy file of whole numbers with one axis, or the bare numbers of
// a type.
struct PrepareTokens {
  std::string file, out;
  // of bare numbers, "u16" or "u32"; "": u16 up to a vocabulary of 65,536
  std::string dtype = {};
  int64_t vocab = 0, bytes = 0;  // bytes: of the text that the tokens stand for; 0: not known
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_tokens(const PrepareTokens&);

struct PrepareEnwik8 {
  std::string from = {};  // the raw file; "": it is downloaded
  std::string out = "enwik8.h5";
  std::string url = "http://mattmahoney.net/dc/enwik8.zip";
  bool allow_prefix = false;  // take the beginning of enwik8 for it
};

std::string prepare_enwik8(const PrepareEnwik8&);

// 100 English novels in the public domain, 77 MB: the corpus of the published text results.
struct PrepareNovels {
  std::string from = {};  // a clone of `repository`; "": it is downloaded
  std::string out = "novels.h5";
  std::string repository = "https://github.com/computationalstylistics/100_english_novels";
  std::string commit = "143e601875d70e195f2cc5ebd8b034609271194d";
  std::string md5 = "214fdd4851a0200f829aa510687baff3";  // of the joined text
};

std::string prepare_novels(const PrepareNovels&);

// Token t is token t - distance, or with probability `resample` (always for t < distance) uniform.
struct PrepareCopy {
  int64_t distance = 128, length = 1000000, vocab = 16;
  double resample = 0.1;
  uint64_t seed = 0;
  std::string out = {};
  std::vector<double> split = {0.9, 0.05, 0.05};
};

std::string prepare_copy(const PrepareCopy&);
// Bits of a token of the copy task given the token `distance` before it.
double copy_entropy(int64_t vocab, double resample);

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
