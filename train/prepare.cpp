// SPDX-License-Identifier: MIT
// prepare: raw data in, a token file out. See data/README.md.
#include "data/prepare/prepare.h"

#include "train/program/options.h"
#include "train/program/program.h"

#include <functional>
#include <iostream>
#include <string>
#include <vector>

using namespace weft;

struct PrepareArguments {
  PrepareText text;
  PrepareAudio audio;
  PrepareTokens tokens;
  PrepareEnwik8 enwik8;
  PrepareNovels novels;
  PrepareCopy copy;
  PrepareCifar10 cifar10;
  PrepareImagenet imagenet64{.side = 64}, imagenet32{.side = 32};
  PrepareImages images;
};

static void say(const std::string& lines) { std::cout << lines << '\n'; }

static CLI::Option* add_out(CLI::App* command, std::string& out) {
  return add_output(*command, "--out", out, "HDF5 file to write");
}

static void add_split(CLI::App* command, std::vector<double>& split) {
  add_shown(*command, "--split", split, "shares of train, valid and test")->delimiter(',');
}

static void add_streams(Commands commands, PrepareArguments& a) {
  CLI::App* text = commands.add("text", "Files as one stream of bytes, vocabulary 256",
                                [&] { say(prepare_text(a.text)); });
  text->add_option("FILE", a.text.files, "joined in this order")->required();
  add_out(text, a.text.out)->required();
  add_split(text, a.text.split);
  text->footer("Example:\n  prepare text a.txt b.txt --out text.h5 --split 0.9,0.05,0.05");

  CLI::App* audio = commands.add("audio", "Sound files as mu-law codes, vocabulary 256",
                                 [&] { say(prepare_audio(a.audio)); });
  audio->add_option("FILE", a.audio.files, "wav, flac and others, joined in this order")
      ->required();
  add_out(audio, a.audio.out)->required();
  add_shown(*audio, "--rate", a.audio.rate, "samples a second, to which they are resampled");
  add_split(audio, a.audio.split);
  audio->footer("Example:\n  prepare audio a.flac b.wav --out audio.h5");

  CLI::App* tokens = commands.add("tokens", "Numbers of any tokenizer, vocabulary up to 1,048,576",
                                  [&] { say(prepare_tokens(a.tokens)); });
  tokens->add_option("FILE", a.tokens.file, ".npy of whole numbers, or bare little-endian numbers")
      ->required();
  tokens->add_option("--vocab", a.tokens.vocab, "token values")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  tokens
      ->add_option("--dtype", a.tokens.dtype,
                   "of bare numbers (u16, or u32 with a vocabulary over 65,536)")
      ->check(CLI::IsMember({"u16", "u32"}));
  tokens
      ->add_option("--bytes", a.tokens.bytes, "of the text: evaluate then gives bits per byte, too")
      ->check(at_least(1));
  add_out(tokens, a.tokens.out)->required();
  add_split(tokens, a.tokens.split);
  tokens->footer(
      "Example:\n  prepare tokens gpt2.bin --vocab 50257 --bytes 1115394 --out tokens.h5");

  CLI::App* enwik8 =
      commands.add("enwik8", "The first 10^8 bytes of Wikipedia: 90, 5 and 5 million",
                   [&] { say(prepare_enwik8(a.enwik8)); });
  enwik8->add_option("--from", a.enwik8.from, "the unzipped file; without it, it is downloaded");
  add_out(enwik8, a.enwik8.out)->capture_default_str();
  add_shown(*enwik8, "--url", a.enwik8.url, "where it is downloaded from");
  enwik8->add_flag("--allow-prefix", a.enwik8.allow_prefix,
                   "take a shorter beginning of enwik8 too");

  CLI::App* novels =
      commands.add("novels", "100 English novels, 77 MB: shares of 0.9, 0.05 and 0.05",
                   [&] { say(prepare_novels(a.novels)); });
  novels->add_option("--from", a.novels.from,
                     "a clone of the repository; without it, it is downloaded");
  add_out(novels, a.novels.out)->capture_default_str();
  add_shown(*novels, "--url", a.novels.repository, "the repository");

  CLI::App* copy =
      commands.add("copy", "A stream that repeats itself at a distance: entropy is known",
                   [&] { say(prepare_copy(a.copy)); });
  add_shown(*copy, "--distance", a.copy.distance, "positions back to what is repeated");
  add_shown(*copy, "--length", a.copy.length, "tokens in all");
  add_shown(*copy, "--vocab", a.copy.vocab, "token values");
  add_shown(*copy, "--resample", a.copy.resample, "probability of a new token instead of a copy");
  add_shown(*copy, "--seed", a.copy.seed, "of the random tokens")->check(whole_number<uint64_t>());
  add_out(copy, a.copy.out)->required();
  add_split(copy, a.copy.split);
}

static CLI::Option* add_valid(CLI::App* command, int64_t& valid, const std::string& otherwise) {
  return command->add_option("--valid", valid, "training images that validate; " + otherwise)
      ->check(at_least(0));
}

static void add_cifar10(Commands commands, PrepareCifar10& o) {
  CLI::App* command =
      commands.add("cifar10", "CIFAR-10: 48,000, 2,000 and 10,000 images of 32 x 32 x 3",
                   [&] { say(prepare_cifar10(o)); });
  command->add_option("--from", o.from,
                      "the official binary version: its folder, its tar.gz, or files, of which "
                      "test_batch.bin tests; without it, it is downloaded");
  command->add_option("--test", o.test, "beside files: files of test images");
  add_valid(command, o.valid,
            "without it 2,000 of the whole set, chosen by seed, or the last 512 of other files");
  add_out(command, o.out)->capture_default_str();
  add_shown(*command, "--url", o.url, "where it is downloaded from");
  command->footer(
      "Examples:\n"
      "  prepare cifar10\n"
      "  prepare cifar10 --from cifar-10-binary.tar.gz --out cifar10.h5\n"
      "  prepare cifar10 --from some_train.bin --test some_test.bin --valid 512");
}

static void add_imagenet(Commands commands, PrepareImagenet& o) {
  const std::string side = std::to_string(o.side), name = "imagenet" + side;
  CLI::App* command =
      commands.add(name, "Downsampled ImageNet, images of " + side + " x " + side + " x 3",
                   [&] { say(prepare_imagenet(o)); });
  command
      ->add_option("--from", o.from, "training images: .npy or .npz files of uint8, in this order")
      ->required();
  command->add_option("--valid-from", o.valid_from,
                      "the published validation images: they are the test split");
  add_valid(command, o.valid, "the last ones; needed unless the training set is whole");
  add_out(command, o.out)->required();
  command->footer("Examples:\n  prepare " + name +
                  " --from train.npy --valid-from valid.npy --out " + name + ".h5\n  prepare " +
                  name + " --from part_1.npz part_2.npz --valid 1000 --out part.h5");
}

static void add_images(Commands commands, PrepareImages& o) {
  CLI::App* command =
      commands.add("images", "A folder of PNG files of one size", [&] { say(prepare_images(o)); });
  command
      ->add_option("DIR", o.folder,
                   "PNG files, or folders of them: then the names of the folders are labels")
      ->required();
  add_valid(command, o.valid, "chosen by seed; without it a tenth, at most 512");
  add_shown(*command, "--test", o.test, "images that test, chosen by seed")->check(at_least(0));
  add_out(command, o.out)->required();
  command->footer("Example:\n  prepare images photos --valid 500 --test 500 --out photos.h5");
}

int main(int argc, char** argv) {
  PrepareArguments arguments;
  std::function<void()> command;
  const auto add_options = [&](CLI::App& app) {
    const Commands commands{app, command};
    add_streams(commands, arguments);
    add_cifar10(commands, arguments.cifar10);
    add_imagenet(commands, arguments.imagenet64);
    add_imagenet(commands, arguments.imagenet32);
    add_images(commands, arguments.images);
  };
  const char* purpose = "Makes the HDF5 files that training reads.";
  return run_program({"prepare", purpose, add_options, [&] { command(); }}, argc, argv);
}
