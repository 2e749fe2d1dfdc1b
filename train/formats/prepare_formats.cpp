// SPDX-License-Identifier: MIT
// The commands of `prepare` for sound and images.
#include "data/formats/prepare.h"
#include "train/formats/formats.h"
#include "train/program/prepare_commands.h"

#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
void add_audio(Commands commands, PrepareAudio& o) {
  CLI::App* audio = commands.add("audio", "Sound files as mu-law codes, vocabulary 256",
                                 [&] { say(prepare_audio(o)); });
  audio->add_option("FILE", o.files, "WAV, RF64, AIFF, CAF, FLAC, Ogg or MP3, joined in this order")
      ->required();
  add_out(audio, o.out)->required();
  add_shown(*audio, "--rate", o.rate, "samples a second, to which they are resampled");
  add_split(audio, o.split);
  audio->footer("Example:\n  prepare audio a.flac b.wav --out audio.h5");
}

CLI::Option* add_valid(CLI::App* command, int64_t& valid, const std::string& otherwise) {
  return command->add_option("--valid", valid, "training images that validate; " + otherwise)
      ->check(at_least(0));
}

void add_cifar10(Commands commands, PrepareCifar10& o) {
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

void add_imagenet(Commands commands, PrepareImagenet& o) {
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

void add_images(Commands commands, PrepareImages& o) {
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

struct Arguments {
  PrepareAudio audio;
  PrepareCifar10 cifar10;
  PrepareImagenet imagenet64{.side = 64}, imagenet32{.side = 32};
  PrepareImages images;
};
}  // namespace

AddPrepareCommands prepare_formats() {
  return [a = std::make_shared<Arguments>()](Commands commands) {
    add_audio(commands, a->audio);
    add_cifar10(commands, a->cifar10);
    add_imagenet(commands, a->imagenet64);
    add_imagenet(commands, a->imagenet32);
    add_images(commands, a->images);
  };
}
}  // namespace weft
