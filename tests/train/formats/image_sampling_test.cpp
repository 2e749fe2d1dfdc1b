// SPDX-License-Identifier: MIT
// Images drawn and completed: what the files hold is what the sampler drew.
#include "data/augment/augment.h"
#include "data/batch_source.h"
#include "data/dataset.h"
#include "data/formats/audio_file.h"
#include "data/formats/image_files.h"
#include "src/config/config.h"
#include "tests/train/formats/image_training.h"
#include "train/formats/sample_images.h"
#include "train/formats/sample_sound.h"
#include "train/program/loaded_model.h"
#include "train/sampling/sample_run.h"

#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
using Tokens = std::vector<int32_t>;

Tokens pixels_of(const std::string& path) {
  const PngImage png = read_png(path);
  return {png.pixels.begin(), png.pixels.end()};
}

class ImageSamplingTest : public testing::Test {
 protected:
  ImageSamplingTest() { write_tiny_images(dir / "images.h5"); }

  void train_with(const std::vector<std::string>& overrides = {}) {
    train(tiny_image_config(dir.path(), overrides), {.out = dir / "run", .device = "cpu"});
  }

  SampleArguments arguments() {
    SampleArguments a;
    images_ = std::make_shared<ImageSamples>();
    a.extensions = {images_, std::make_shared<SoundSamples>()};
    a.checkpoint = dir / "run/latest.h5", a.device = "cpu", a.out = dir / "grid.png";
    return a;
  }

  std::string sampled(const SampleArguments& a) {
    std::ostringstream text, notes;
    Progress progress(notes, false);
    Processes alone;
    run_sample(a, alone, text, progress);
    EXPECT_EQ(text.str(), "");
    return notes.str();
  }

  std::string refused(const SampleArguments& a) {
    return error_of([&] { sampled(a); });
  }

  // Cell `index` of the grid that `a` names, not enlarged.
  Tokens cell(const SampleArguments& a, int64_t cells, int64_t in_row, int64_t index) {
    const PngImage png = read_png(a.out);
    const GridLayout g(kTinyImage, cells, in_row);
    EXPECT_EQ(png.shape.width, g.kGap + g.columns * (g.width + g.kGap));
    EXPECT_EQ(png.shape.height, g.kGap + g.rows * (g.height + g.kGap));
    Tokens tokens;
    for (int64_t y = 0; y < 4; ++y)
      for (int64_t x = 0; x < 4; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t row = g.y(index) + (y + 1) * g.zoom - 1, column = g.x(index) + x * g.zoom;
          tokens.push_back(
              png.pixels.at(static_cast<std::size_t>((row * png.shape.width + column) * 3 + c)));
        }
    return tokens;
  }

  // What the library draws.
  std::vector<Tokens> drawn(SampleOptions options) {
    const auto loaded = load_model(dir / "run/latest.h5", "cpu");
    options.length = 48 - options.given();
    std::vector<Tokens> all = options.prompts;
    all.resize(static_cast<std::size_t>(options.count));
    sample(*loaded->device, *loaded->model, loaded->config.model, options,
           [&](int64_t i, int64_t, int32_t token) {
             all[static_cast<std::size_t>(i)].push_back(token);
           });
    return all;
  }

  Tokens test_image(int64_t index) {
    const TokenDataset data(dir / "images.h5", "test", 256);
    Tokens image(48);
    data.read(index * 48, image);
    return image;
  }

  TempDir dir;
  std::shared_ptr<ImageSamples> images_;
};

TEST_F(ImageSamplingTest, GridAndSinglesAreTheSamples) {
  train_with();
  SampleArguments a = arguments();
  images_->singles = dir / "singles";
  a.options.count = 5, a.options.seed = 7, a.options.temperature = 0.9;
  const std::string notes = sampled(a);
  EXPECT_CONTAINS(notes,
                  "grid.png: 5 images of 4 x 4 x 3, moving average of the weights of step 20, ");
  const std::vector<Tokens> expected =
      drawn({.temperature = 0.9, .seed = 7, .count = 5, .batch = 2});
  for (int64_t i = 0; i < 5; ++i) {
    const Tokens& image = expected[static_cast<std::size_t>(i)];
    EXPECT_EQ(cell(a, 5, 3, i), image) << i;
    EXPECT_EQ(pixels_of(str(images_->singles, "/0000", i, ".png")), image) << i;
  }
  a.weights = "last", a.out = dir / "last.png", images_->singles = "", a.stats = true;
  const std::string with_stats = sampled(a);
  EXPECT_CONTAINS(with_stats, "last weights of step 20");
  EXPECT_CONTAINS(with_stats, "tokens/s");
  EXPECT_NE(read_file(dir / "last.png"), read_file(dir / "grid.png"));
  a.out = "", images_->singles = dir / "alone";
  sampled(a);
  EXPECT_TRUE(std::filesystem::exists(dir / "alone/00004.png"));
}

TEST_F(ImageSamplingTest, CompletionsKeepWhatWasGiven) {
  train_with();
  SampleArguments a = arguments();
  images_->complete = {dir / "images.h5"}, images_->first = 1, images_->images = 2,
  images_->rows = 3;
  a.options.count = 2;
  EXPECT_CONTAINS(sampled(a), "4 completions of 4 x 4 x 3 from 3 rows of 2 images");
  for (int64_t i = 0; i < 2; ++i) {
    const Tokens image = test_image(1 + i);
    EXPECT_EQ(cell(a, 8, 4, 4 * i), image);
    Tokens upper(image.begin(), image.begin() + 36);
    Tokens masked = upper;
    masked.resize(48, 128);
    EXPECT_EQ(cell(a, 8, 4, 4 * i + 1), masked);
    for (int64_t k = 0; k < 2; ++k) {
      Tokens completed = cell(a, 8, 4, 4 * i + 2 + k);
      completed.resize(36);
      EXPECT_EQ(completed, upper);
    }
    EXPECT_NE(cell(a, 8, 4, 4 * i + 2), cell(a, 8, 4, 4 * i + 3));
  }
  const Tokens image = test_image(1), upper(image.begin(), image.begin() + 36);
  const Tokens next = test_image(2), upper_next(next.begin(), next.begin() + 36);
  const auto all = drawn({.count = 4, .prompts = {upper, upper, upper_next, upper_next}});
  EXPECT_EQ(cell(a, 8, 4, 3), all[1]);
  EXPECT_EQ(cell(a, 8, 4, 6), all[2]);
}

TEST_F(ImageSamplingTest, CompletesPngFilesInTheirOrder) {
  train_with();
  write_png(dir / "a.png", image_of(kTinyImage, test_image(3)));
  write_png(dir / "b.png", image_of(kTinyImage, test_image(0)));
  SampleArguments a = arguments();
  images_->complete = {dir / "a.png", dir / "b.png"};
  EXPECT_CONTAINS(sampled(a), "2 completions of 4 x 4 x 3 from 2 rows of 2 images");
  EXPECT_EQ(cell(a, 6, 3, 0), test_image(3));
  EXPECT_EQ(cell(a, 6, 3, 3), test_image(0));
  // All rows from the model: a plain sample.
  images_->rows = 0;
  sampled(a);
  EXPECT_EQ(cell(a, 6, 3, 2), drawn({})[0]);
}

TEST_F(ImageSamplingTest, AugmentationsAreToldAndUndone) {
  train_with({"augment.rotation=true", "augment.color=true"});
  const auto loaded = load_model(dir / "run/latest.h5", "cpu");
  const Augmenter augmenter(loaded->config, kTinyImage);
  const AugmentChoice choice = parse_choice("rotation=1,color=3", loaded->config);
  SampleOptions options{.seed = 3};
  options.conditions.resize(2), options.positions.resize(48);
  augmenter.rows(choice, options.conditions);
  EXPECT_EQ(options.conditions, (Tokens{1, 4 + 3}));
  Tokens image = test_image(2), unused(48);
  augmenter.apply(choice, unused, options.positions);
  const Tokens sequence = drawn(options)[0];

  SampleArguments a = arguments();
  images_->augmentation = "rotation=1,color=3", a.options.seed = 3;
  EXPECT_CONTAINS(sampled(a), ", rotation=1,color=3, moving average");
  EXPECT_EQ(cell(a, 1, 1, 0), sequence);
  images_->upright = true;
  sampled(a);
  Tokens again = cell(a, 1, 1, 0);
  EXPECT_NE(again, sequence);
  augmenter.apply(choice, again, unused);
  EXPECT_EQ(again, sequence);

  // The rows that are given are those of the transformed image.
  images_->complete = {dir / "images.h5"}, images_->first = 2, images_->images = 1;
  sampled(a);
  EXPECT_EQ(cell(a, 3, 3, 0), image);
  images_->upright = false;
  sampled(a);
  augmenter.apply(choice, image, unused);
  EXPECT_EQ(cell(a, 3, 3, 0), image);
  Tokens completed = cell(a, 3, 3, 2);
  EXPECT_EQ(Tokens(completed.begin(), completed.begin() + 24),
            Tokens(image.begin(), image.begin() + 24));
}

TEST_F(ImageSamplingTest, Refusals) {
  train_with();
  SampleArguments a = arguments();
  a.out = "";
  EXPECT_CONTAINS(refused(a), "--out grid.png");
  a = arguments();
  a.prompt = "x";
  EXPECT_CONTAINS(refused(a), "--prompt is for text");
  a = arguments();
  images_->label = 0;
  EXPECT_CONTAINS(refused(a), "was trained without classes (data.labels); leave it out");
  a = arguments();
  images_->augmentation = "rotation=1";
  EXPECT_CONTAINS(refused(a), "this model was trained without augmentation");
  a = arguments();
  images_->complete = {dir / "images.h5"}, images_->rows = 4;
  EXPECT_CONTAINS(refused(a), "--rows: an image has 4 rows");
  images_->rows = 1, images_->first = 3, images_->images = 3;
  EXPECT_CONTAINS(refused(a), "the split test has images 0 to 4; 3 from --first 3 on");
  write_png(dir / "other.png", image_of({4, 5, 1}, Tokens(20, 9)));
  images_->complete = {dir / "other.png"};
  EXPECT_EQ(refused(a),
            (dir / "other.png") + ": is an image of 4 x 5 x 3, this model draws 4 x 4 x 3");
  write_corpus(dir / "corpus.h5", 1000, 32);
  images_->complete = {dir / "corpus.h5"};
  EXPECT_CONTAINS(refused(a), "has a stream of tokens, expected images");
  EXPECT_FALSE(std::filesystem::exists(dir / "grid.png"));
}

TEST_F(ImageSamplingTest, DrawsTheClassThatIsNamed) {
  train_with({"data.labels=true", "data.classes=4", "train.steps=60"});
  SampleArguments a = arguments();
  EXPECT_EQ(refused(a),
            "--label: this model is told a class, expected one from 0 to 3; none is given");
  images_->label = 4;
  EXPECT_EQ(refused(a), "--label: this model is told a class, expected one from 0 to 3, got 4");
  std::vector<double> brightness;
  for (const int64_t label : {0, 3}) {
    images_->label = label;
    EXPECT_CONTAINS(sampled(a), str(", label ", label));
    brightness.push_back(cell(a, 1, 1, 0).at(0));
  }
  EXPECT_GT(brightness[1], brightness[0]);
}

TEST_F(ImageSamplingTest, SoundIsAFileForEachSample) {
  write_corpus(dir / "corpus.h5", 3000, 32);
  train(small_config(dir.path(), {"train.steps=1"}), {.out = dir / "run", .device = "cpu"});
  SampleArguments a = arguments();
  a.out = dir / "sound.wav", a.options.length = 50, a.options.count = 2;
  const std::string notes = sampled(a);
  EXPECT_CONTAINS(notes, (dir / "sound_1.wav") + " to " + (dir / "sound_2.wav") +
                             ": 0.00 s each at 12000 Hz, ");
  EXPECT_CONTAINS(notes, "corpus.h5 does not say its rate); --rate must repeat");
  for (const char* name : {"sound_1.wav", "sound_2.wav"})
    EXPECT_EQ(read_file(dir / name).size(), 44u + 2 * 50) << name;
  a.options.length = 0, a.options.count = 1;
  sampled(a);
  EXPECT_EQ(read_file(a.out).size(), 44u + 2 * 64) << "the whole context";
  a.prompt = "x";
  EXPECT_CONTAINS(refused(a), "leave out --prompt");
  a = arguments();
  images_->upright = true, a.options.length = 3;
  EXPECT_CONTAINS(refused(a), "are for images");
  images_->upright = false, a.options.length = 0, a.out = "";
  EXPECT_CONTAINS(refused(a), "--length");
}

TEST_F(ImageSamplingTest, SoundHasTheRateOfTheData) {
  const std::vector<uint16_t> tokens(3000, 1);
  write_token_file(dir / "corpus.h5", tokens, 32, {0.8, 0.1, 0.1}, "sound", {},
                   {{"sample_rate", 16000}});
  train(small_config(dir.path(), {"train.steps=1"}), {.out = dir / "run", .device = "cpu"});
  const std::string rate("\x80\x3e\0\0", 4);
  SampleArguments a = arguments();
  a.out = dir / "sound.wav", a.options.length = 50;
  const std::string notes = sampled(a);
  EXPECT_CONTAINS(notes, "sound.wav: 0.00 s at 16000 Hz, ");
  EXPECT_EQ(notes.find("--rate"), std::string::npos) << notes;
  EXPECT_EQ(read_file(a.out).substr(24, 4), rate);
  const auto preview = [&] {
    const auto loaded = load_model(dir / "run/latest.h5", "cpu");
    return SoundSamples().preview(*loaded->device, *loaded->model, loaded->config, dir / "1.", {});
  };
  EXPECT_TRUE(preview());
  EXPECT_EQ(read_file(dir / "1.wav").substr(24, 4), rate);
  EXPECT_EQ(read_file(dir / "1.wav").size(), 44u + 2 * 64) << "the whole context";
  std::filesystem::remove(dir / "corpus.h5");
  EXPECT_FALSE(preview());
  EXPECT_CONTAINS(sampled(a), "--rate must repeat another");
  EXPECT_EQ(read_file(a.out).substr(24, 4), std::string("\xe0\x2e\0\0", 4));
}

TEST_F(ImageSamplingTest, SpeedIsToldOfEveryKind) {
  train_with({"train.steps=1"});
  SampleArguments a = arguments();
  a.json = a.stats = true;
  const std::string of_images = sampled(a);
  EXPECT_CONTAINS(of_images, "{\"tokens\": 48, ");
  EXPECT_CONTAINS(of_images, " tokens/s, ");
  write_corpus(dir / "corpus.h5", 3000, 32);
  train(small_config(dir.path(), {"train.steps=1"}), {.out = dir / "run2", .device = "cpu"});
  a.checkpoint = dir / "run2/latest.h5", a.out = dir / "s.wav", a.options.length = 100;
  const std::string of_sound = sampled(a);
  EXPECT_CONTAINS(of_sound, "{\"tokens\": 100, ");
  EXPECT_CONTAINS(of_sound, " 32.5  ");  // of dense attention, in a window of 64
}

TEST(ImageGrid, DrawsGreyColourAndUnknown) {
  const Image grey = image_of({1, 2, 1}, Tokens{7, -1});
  EXPECT_EQ(grey.pixels[0].red, 7);
  EXPECT_EQ(grey.pixels[0].blue, 7);
  EXPECT_EQ(grey.pixels[1].green, 128);
  const Image colour = image_of({1, 1, 3}, Tokens{1, 2, 3});
  EXPECT_EQ(colour.pixels[0].green, 2);
  EXPECT_EQ(colour.pixels[0].blue, 3);
  EXPECT_CONTAINS(error_of([] { image_of({1, 1, 2}, Tokens{1, 2}); }), "images of 2 channels");
  EXPECT_CONTAINS(error_of([] { image_of({1, 1, 1}, Tokens{256}); }), "token 256");
  const GridLayout grid({64, 64, 3}, 9, 3);
  const Image gaps = draw_grid({}, grid);
  EXPECT_EQ(gaps.width, 3 * 64 + 4 * grid.kGap);
  EXPECT_EQ(gaps.pixels.front().red, 255) << "white";
  EXPECT_EQ(grid.zoom, 1);
  EXPECT_EQ(GridLayout({32, 32, 3}, 9, 3).zoom, 2);
}

TEST(ProgressBar, FillsAndSaysHowLong) {
  EXPECT_EQ(bar_text(1, 2, 10), "[###############...............] 50%  0:10 left");
  EXPECT_EQ(bar_text(4, 4, 10), "[##############################] 100%  0:00 left");
}
}  // namespace
}  // namespace weft
