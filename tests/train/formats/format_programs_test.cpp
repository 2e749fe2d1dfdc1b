// SPDX-License-Identifier: MIT
// Commands and options of images and sound as a shell calls them.
#include "tests/train/formats/image_training.h"
#include "tests/train/shell_test.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>

namespace fs = std::filesystem;

namespace weft {
namespace {
class FormatProgramsTest : public ShellTest {
 protected:
  // Two steps on images into <dir>/images_run.
  void train_on_images() {
    write_tiny_images(dir / "images.h5");
    train(tiny_image_config(dir.path(), {"train.steps=2", "train.eval_every=0"}),
          {.out = dir / "images_run", .device = "cpu"});
  }
};

TEST_F(FormatProgramsTest, InputsThatAreNoFiles) {
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_directory(dir / "images");
  fs::create_symlink("/dev/zero", dir / "images/a.png");
  for (const char* line :
       {"prepare images images --out o.h5", "prepare imagenet64 --from pipe --valid 1 --out o.h5",
        "prepare cifar10 --from pipe --out o.h5"})
    EXPECT_CONTAINS(refused(str("timeout 20 ", line)), "expected a file");
}

TEST_F(FormatProgramsTest, OptionsAreChecked) {
  EXPECT_CONTAINS(refused("prepare images x --out o.h5 --valid -1"),
                  "--valid: expected a number of at least 0, got -1");
  EXPECT_CONTAINS(refused("sample --checkpoint x --rows 3"), "--complete");
  EXPECT_EQ(shell("prepare --help"), 0);
  for (const char* command : {"audio", "cifar10", "imagenet64", "imagenet32", "images"})
    EXPECT_CONTAINS(out_, command);
}

TEST_F(FormatProgramsTest, SampleAndEvaluateKeepWhatTheyRead) {
  train_on_images();
  const std::string sample = "sample images_run/latest.h5 --device cpu ";
  expect_kept(sample + "--complete images.h5 --split valid --out images.h5", "images.h5");
  EXPECT_EQ(shell(sample + "--singles singles --count 2"), 0) << err_;
  const std::string complete = sample + "--complete singles/00001.png ";
  expect_kept(complete + "--out singles/00001.png", "singles/00001.png");
  expect_kept(complete + "--count 2 --singles singles", "singles/00001.png");
  expect_kept(sample + "--count 2 --singles singles --out singles/00001.png", "singles/00001.png",
              "--out and --singles name one file");
  const std::string evaluate = "evaluate images_run/latest.h5 --device cpu ";
  expect_kept(evaluate + "--heatmap images.h5", "images.h5");
  expect_kept(evaluate + "--heatmap h.png --losses ./h.png", "images.h5",
              "--losses and --heatmap name one file");
  EXPECT_FALSE(fs::exists(dir / "h.png"));
}

TEST_F(FormatProgramsTest, EndingsSayWhatAFileHolds) {
  train_two_steps();
  train_on_images();
  const std::string of_images = "sample images_run/latest.h5 --device cpu --out ";
  const std::string of_text = "sample run/latest.h5 --device cpu --length 5 --out ";
  for (const char* ending : {".jpg", ".JPEG", ".wav", ".flac", ".txt", ".h5"})
    EXPECT_CONTAINS(refused(of_images + "x" + ending), "write --out x.png");
  for (const char* ending : {".png", ".h5", ".safetensors", ".npy"})
    EXPECT_CONTAINS(refused(of_text + "x" + ending), "write --out x.txt");
  EXPECT_CONTAINS(refused(of_text + "x.flac"),
                  "sound would not be what .flac says; write --out x.wav");
  for (const std::string& line :
       {of_images + "x.PNG", of_images + "x", of_text + "x.md", of_text + "x", of_text + "x.WAV"})
    EXPECT_EQ(shell(line), 0) << line << err_;
  EXPECT_EQ(read_file(dir / "x.WAV").substr(0, 4), "RIFF");
  EXPECT_FALSE(fs::exists(dir / "x.png"));
}

TEST_F(FormatProgramsTest, OptionsOfTextAreNamedWhereImagesAreDrawn) {
  train_on_images();
  const std::string sample = "sample images_run/latest.h5 --device cpu ";
  for (const char* line : {"--label 0 --length 10", "--length 10 --out x.png",
                           "--length 10 --singles s", "--upright --length 3 --tokens"})
    EXPECT_CONTAINS(refused(sample + line),
                    "--length is for text, and this model draws whole images");
  for (const char* option : {"--stop abc", "--tokens", "--interactive"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    EXPECT_CONTAINS(refused(sample + option), name + " is for text, and this call samples images");
  }
  EXPECT_EQ(shell(sample + "--length 10 --tokens"), 0) << err_;
}

TEST_F(FormatProgramsTest, CountsAreCheckedBeforeMemoryIsTaken) {
  train_two_steps();
  train_on_images();
  const std::string of_images = "sample images_run/latest.h5 --device cpu --out x.png ";
  for (const char* count : {"-1", "0", "1000000000000", "9223372036854775807"})
    for (const std::string& line : {of_images, of_images + "--complete images.h5 ",
                                    std::string("sample run/latest.h5 --device cpu --length 5 "),
                                    std::string("sample run/latest.h5 --device cpu --out s.wav ")})
      EXPECT_CONTAINS(refused(line + "--count " + count),
                      str("--count: expected 1 to 1048576 samples in all, got ", count));
  EXPECT_CONTAINS(refused(of_images + "--complete images.h5 --count 600000 --images 2"),
                  "got 600000 for each of 2");
  for (const char* place :
       {"--images 9223372036854775807 --first 1", "--images 1 --first 9223372036854775807"})
    EXPECT_CONTAINS(refused(str(of_images, "--complete images.h5 ", place)), "are not among them");
}

TEST_F(FormatProgramsTest, PrepareKeepsWhatItReads) {
  train_on_images();
  EXPECT_EQ(shell("sample images_run/latest.h5 --device cpu --singles images/cat --count 3"), 0)
      << err_;
  expect_kept("prepare images images --out images/cat/00001.png", "images/cat/00001.png");
  write_file(dir / "c.bin", std::string(20 * 3073, '\1'));
  expect_kept("prepare cifar10 --from c.bin --valid 5 --out c.bin", "c.bin");
  write_file(dir / "d.bin", std::string(10 * 3073, '\2'));
  expect_kept("prepare cifar10 --from c.bin --test d.bin --valid 5 --out d.bin", "d.bin");
  std::string array = "\x93NUMPY\x01";
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (9, 3072), }\n";
  array += std::string(1, '\0') + static_cast<char>(header.size()) + std::string(1, '\0') + header +
           std::string(9 * 3072, '\3');
  write_file(dir / "in32.npy", array);
  expect_kept("prepare imagenet32 --from in32.npy --valid 5 --out in32.npy", "in32.npy");
  EXPECT_EQ(shell("prepare imagenet32 --from in32.npy --valid 5 --out o.h5"), 0) << err_;
}
}  // namespace
}  // namespace weft
