// SPDX-License-Identifier: MIT
// Images in training and evaluation: whole ones, under chosen augmentations, by position, with the
// average.
#include "data/augment/augment.h"
#include "data/batch_source.h"
#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "tests/train/formats/image_training.h"
#include "train/evaluation/evaluate_run.h"
#include "train/evaluation/evaluator.h"
#include "train/formats/evaluate_images.h"
#include "train/formats/heat_map.h"
#include "train/program/loaded_model.h"
#include "train/trainer/run_folder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <numbers>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace weft {
namespace {
const std::vector<std::string> kTold{"augment.rotation=true", "augment.color=true"};

class ImageRunTest : public testing::Test {
 protected:
  ImageRunTest() { write_tiny_images(dir / "images.h5"); }

  std::string run(const std::vector<std::string>& overrides = {}, const std::string& name = "run") {
    return train(tiny_image_config(dir.path(), overrides), {.out = dir / name, .device = "cpu"});
  }

  EvaluateArguments arguments(const std::string& split = "valid") {
    EvaluateArguments a;
    images_ = std::make_shared<ImageVariants>();
    map_ = std::make_shared<HeatMapExtension>();
    a.extensions = {images_, map_};
    a.checkpoint = dir / "run/latest.h5", a.split = split, a.device = "cpu";
    return a;
  }

  // The JSON lines; what people read goes to notes_.
  std::string evaluated(const EvaluateArguments& a) {
    std::ostringstream out, notes;
    Progress progress(notes, false);
    Processes alone;
    run_evaluate(a, alone, out, progress);
    notes_ = notes.str();
    return out.str();
  }

  std::string refused(const EvaluateArguments& a) {
    return error_of([&] { evaluated(a); });
  }

  double bits(const EvaluateArguments& a) {
    return json_number(evaluated(a), "bits").value_or(NAN);
  }

  // Of `path`, whose datasets are in `group`.
  std::vector<float> losses(const std::string& path, const std::string& group, int64_t images) {
    const Hdf5File file = Hdf5File::open(path);
    std::vector<float> nats(static_cast<std::size_t>(images * 48));
    file.read(group + "/losses", StoredType::f32, {images, 4, 4, 3}, nats.data());
    return nats;
  }

  // Of the first token of the first validation image, from the model alone.
  double first_nats(const std::string& choice_text) {
    const auto loaded = load_model(dir / "run/latest.h5", "cpu");
    const Augmenter augmenter(loaded->config, kTinyImage);
    const AugmentChoice choice = parse_choice(choice_text, loaded->config);
    std::vector<int32_t> tokens(48), places(48), rows(augmenter.conditions().size());
    TokenDataset(dir / "images.h5", "valid", 256).read(0, tokens);
    augmenter.apply(choice, tokens, places);
    augmenter.rows(choice, rows);
    DeviceBatch batch(*loaded->device, "test");
    const HostBatch host{tokens, {}, places, rows};
    batch.make(host, 1, 48);
    batch.upload(host);
    Ctx ctx = loaded->inference();
    return to_host(*loaded->device, loaded->model->token_losses(ctx, batch.sequences()).value)
        .at(0);
  }

  TempDir dir;
  std::string notes_;
  std::shared_ptr<ImageVariants> images_;
  std::shared_ptr<HeatMapExtension> map_;
};

TEST_F(ImageRunTest, LossFallsAndIsPerDimension) {
  const std::string text = run({"train.steps=60"});
  const std::vector<double> all = metric(dir / "run/metrics.jsonl", "bits");
  EXPECT_GT(all.front(), 7.9);
  EXPECT_LT(all.back(), 4.5);
  for (const char* part :
       {"images of 4 x 4 x 3: 24 to train, 7 to validate", "bits are per dimension",
        "augment     none, 1 start vector", "bits/dim ", "valid ema ",
        "bits per dimension (moving average of the weights)"})
    EXPECT_CONTAINS(text, part);
}

TEST_F(ImageRunTest, AMissingFileToMixNamesItsKey) {
  EXPECT_CONTAINS(error_of([&] {
                    run({"data.mix=none.h5", "data.mix_rate=0.25"});
                  }),
                  "name another with --set data.mix=F.h5");
}

TEST_F(ImageRunTest, SummaryNamesAugmentationsAndStartVectors) {
  write_tiny_images(dir / "mix.h5");
  const std::string text = run({"augment.rotation=true", "augment.color=true", "augment.flip=true",
                                "data.mix=" + (dir / "mix.h5"), "data.mix_rate=0.25",
                                "augment.unaugmented_rate=0.1", "train.steps=1"});
  EXPECT_CONTAINS(text,
                  "rotation (4), color (6), dataset (2), flip; 25.0% from " + (dir / "mix.h5"));
  EXPECT_CONTAINS(text, "10.0% left as they are; 12 start vectors");
  EXPECT_CONTAINS(
      run({"augment.rotation=true", "augment.conditional=false", "train.steps=1"}, "plain"),
      "rotation (4); the model is not told, 1 start vector");
}

TEST_F(ImageRunTest, EvaluateIsWhatTrainingSaid) {
  run(kTold);
  EvaluateArguments a = arguments();
  for (const auto& [weights, key] :
       {std::pair{"", "valid_bits_ema"}, {"ema", "valid_bits_ema"}, {"last", "valid_bits"}}) {
    a.weights = weights;
    const std::string line = evaluated(a);
    EXPECT_NEAR(json_number(line, "bits").value_or(0),
                metric(dir / "run/metrics.jsonl", key).back(), 1e-6)
        << key;
    EXPECT_EQ(json_number(line, "tokens"), 7 * 48);
    EXPECT_EQ(json_number(line, "images"), 7);
    const bool ema = a.weights != "last";
    EXPECT_CONTAINS(line, ema ? "\"ema\": true" : "\"ema\": false");
    EXPECT_CONTAINS(notes_, "bits per dimension over 7 images");
    EXPECT_CONTAINS(notes_,
                    ema ? "moving average of the weights of step 20" : "last weights of step 20");
  }
}

TEST_F(ImageRunTest, DoesNotDependOnTheBatch) {
  run();
  EvaluateArguments a = arguments();
  a.batch = 1;
  const double one = bits(a);
  a.batch = 3;
  EXPECT_NEAR(bits(a), one, 1e-6);
}

TEST_F(ImageRunTest, BestIsChosenByTheMovingAverage) {
  // At this rate the last weights get worse at once, and the average follows later.
  run({"train.eval_every=2", "train.learning_rate=0.05", "train.ema_decay=0.6"});
  const std::vector<double> last = metric(dir / "run/metrics.jsonl", "valid_bits"),
                            ema = metric(dir / "run/metrics.jsonl", "valid_bits_ema");
  const double best = *std::min_element(ema.begin(), ema.end());
  ASSERT_NE(best, *std::min_element(last.begin(), last.end()));
  EvaluateArguments a = arguments();
  a.checkpoint = dir / "run/best.h5";
  EXPECT_NEAR(bits(a), best, 1e-6);
}

TEST_F(ImageRunTest, WithoutAnAverageTheWeightsThemselvesAreUsed) {
  run({"train.ema_decay=0"});
  EXPECT_CONTAINS(evaluated(arguments()), "\"ema\": false");
  EvaluateArguments a = arguments();
  a.weights = "ema";
  EXPECT_CONTAINS(refused(a), "holds no moving average");
}

TEST_F(ImageRunTest, EvalTokensAreWholeImages) {
  run({"train.eval_tokens=50", "train.steps=2"});
  EXPECT_EQ(metric(dir / "run/metrics.jsonl", "valid_tokens").back(), 96);
}

TEST_F(ImageRunTest, LossesAndHeatMapAgree) {
  run();
  EvaluateArguments a = arguments();
  a.losses = dir / "losses.h5", map_->path = dir / "map.png";
  const double mean_bits = bits(a);
  const std::vector<float> nats = losses(a.losses, "", 7);
  HeatMap map(kTinyImage);
  double sum = 0;
  for (std::size_t i = 0; i < nats.size(); ++i) {
    sum += nats[i] / std::numbers::ln2;
    map.add(static_cast<int64_t>(i) % 48, nats[i] / std::numbers::ln2);
  }
  EXPECT_NEAR(sum / static_cast<double>(nats.size()), mean_bits, 1e-6);
  double pixel = 0;  // row 2, column 1, by hand
  for (std::size_t image = 0; image < 7; ++image)
    for (std::size_t c = 0; c < 3; ++c)
      pixel += nats[image * 48 + (2 * 4 + 1) * 3 + c] / std::numbers::ln2 / 7;
  EXPECT_NEAR(map.pixel(2, 1), pixel, 1e-9);
  std::istringstream scale(map.text());
  for (std::string line; std::getline(scale, line);) EXPECT_CONTAINS(notes_, line);
  EXPECT_EQ(read_file(map_->path).substr(1, 3), "PNG");
  std::vector<uint16_t> tokens(7 * 48), pixels(7 * 48);
  Hdf5File::open(a.losses).read("/tokens", StoredType::u16, {7, 4, 4, 3}, tokens.data());
  Hdf5File::open(dir / "images.h5").read("/valid", StoredType::u16, {7, 4, 4, 3}, pixels.data());
  EXPECT_EQ(tokens, pixels);
}

// Each image has random operations of its own, the same in every evaluation.
TEST_F(ImageRunTest, RandAugmentDiffersFromImageToImage) {
  run({"augment.randaugment=2", "augment.randaugment_magnitude=9", "train.steps=1",
       "train.eval_every=0"});
  EvaluateArguments a = arguments();
  images_->augmentations = "randaugment=1", a.losses = dir / "losses.h5";
  evaluated(a);
  std::vector<uint16_t> seen(7 * 48);
  Hdf5File::open(a.losses).read("/tokens", StoredType::u16, {7, 4, 4, 3}, seen.data());
  const auto loaded = load_model(dir / "run/latest.h5", "cpu");
  const Augmenter augmenter(loaded->config, kTinyImage);
  const TokenDataset data(dir / "images.h5", "valid", 256);
  int as_first = 0;  // images that look as with the operations of the first
  for (std::size_t image = 0; image < 7; ++image) {
    const auto with_key = [&](uint64_t key) {
      AugmentChoice choice = parse_choice("randaugment=1", loaded->config);
      choice.key = key;
      std::vector<int32_t> tokens(48), places(48);
      data.read(static_cast<int64_t>(image) * 48, tokens);
      augmenter.apply(choice, tokens, places);
      return std::vector<uint16_t>(tokens.begin(), tokens.end());
    };
    const auto first = seen.begin() + static_cast<std::ptrdiff_t>(image) * 48;
    EXPECT_EQ(std::vector<uint16_t>(first, first + 48), with_key(image)) << image;
    as_first += with_key(image) == with_key(0) ? 1 : 0;
  }
  EXPECT_LT(as_first, 4);
}

TEST_F(ImageRunTest, EveryCombinationOfAugmentations) {
  run(kTold);
  const double plain = bits(arguments());
  EvaluateArguments a = arguments();
  images_->augmentations = "all", a.losses = dir / "all.h5";
  std::istringstream lines(evaluated(a));
  std::vector<double> all;
  for (std::string line; std::getline(lines, line);)
    all.push_back(json_number(line, "bits").value_or(NAN));
  ASSERT_EQ(all.size(), 24u);
  EXPECT_EQ(all[0], plain);
  EXPECT_NE(all[1], plain);
  a.losses = "", images_->augmentations = "color=2,rotation=1";
  const std::string line = evaluated(a);
  EXPECT_CONTAINS(line, "\"augmentation\": \"rotation=1,color=2\"");
  EXPECT_EQ(json_number(line, "bits"), all[6 + 2]);
  const std::vector<float> nats = losses(dir / "all.h5", "/rotation=1,color=2", 7);
  double sum = 0;
  for (const float n : nats) sum += n / std::numbers::ln2;
  EXPECT_NEAR(sum / static_cast<double>(nats.size()), all[8], 1e-6);
  EXPECT_NEAR(first_nats("rotation=1,color=2"), nats[0], 1e-5);
  EXPECT_GT(std::abs(first_nats("none") - nats[0]), 1e-4);
}

TEST_F(ImageRunTest, WhoIsToldOfTheRotationPredictsBetter) {
  const std::vector<std::string> common{"augment.rotation=true", "augment.permute_positions=false",
                                        "train.steps=150", "train.eval_every=0"};
  std::vector<std::string> untold = common;
  untold.push_back("augment.conditional=false");
  run(common, "told");
  run(untold, "untold");
  const double told = metric(dir / "told/metrics.jsonl", "valid_bits").back();
  EXPECT_LT(told, metric(dir / "untold/metrics.jsonl", "valid_bits").back() - 0.03) << told;
}

// The class is the brightness: who is told it knows the first tokens. Evaluation tells the true
// one.
TEST_F(ImageRunTest, WhoIsToldTheClassPredictsBetter) {
  const std::vector<std::string> common{"train.steps=60", "train.eval_every=0"};
  std::vector<std::string> told = common;
  told.insert(told.end(), {"data.labels=true", "data.classes=4"});
  run(told, "told");
  run(common, "untold");
  const auto bits_of = [&](const std::string& name) {
    return metric(dir / name + "/metrics.jsonl", "valid_bits").back();
  };
  EXPECT_LT(bits_of("told"), bits_of("untold") - 0.03) << bits_of("told");
  EvaluateArguments a = arguments();
  a.checkpoint = dir / "told/latest.h5", a.losses = dir / "losses.h5";
  evaluated(a);
  const std::vector<float> nats = losses(a.losses, "", 7);
  const auto loaded = load_model(a.checkpoint, "cpu");
  std::vector<uint16_t> classes(7);
  Hdf5File::open(dir / "images.h5").read("/labels/valid", StoredType::u16, {7}, classes.data());
  const TokenDataset data(dir / "images.h5", "valid", 256);
  for (int64_t i = 0; i < 7; ++i)
    for (int32_t label = 0; label < 4; ++label) {
      HostBatch host{std::vector<int32_t>(48), {}, {}, {label}};
      data.read(i * 48, host.tokens);
      DeviceBatch batch(*loaded->device, "test");
      batch.make(host, 1, 48);
      batch.upload(host);
      Ctx ctx = loaded->inference();
      const double first =
          to_host(*loaded->device, loaded->model->token_losses(ctx, batch.sequences()).value).at(0);
      EXPECT_EQ(std::abs(first - nats[i * 48]) < 1e-5, label == classes[i]) << i << ", " << label;
    }
  write_tiny_images(dir / "images.h5", 7, kTinyImage, false);
  EXPECT_CONTAINS(refused(a), "has no /labels/valid; prepare it anew from images with classes");
  EXPECT_CONTAINS(error_of([&] { run(told, "other"); }), "has no /labels/train");
  write_tiny_images(dir / "images.h5");
  told.back() = "data.classes=3";
  EXPECT_CONTAINS(error_of([&] { run(told, "other"); }), " is of class 3, expected 0 to 2");
}

TEST_F(ImageRunTest, TrainsWithoutImagesToValidate) {
  write_tiny_images(dir / "images.h5", 0);
  run({"train.steps=3", "data.labels=true", "data.classes=4"}, "bare");
  EXPECT_EQ(metric(dir / "bare/metrics.jsonl", "step").back(), 3);
  EXPECT_TRUE(metric(dir / "bare/metrics.jsonl", "valid_bits").empty());
}

TEST_F(ImageRunTest, Refusals) {
  run(kTold);
  EvaluateArguments a = arguments();
  a.min_context = 3;
  EXPECT_CONTAINS(refused(a),
                  "has images, which are scored whole: a minimum context (3) is for text");
  a = arguments();
  images_->augmentations = "rotation=4";
  EXPECT_EQ(refused(a),
            "augmentation \"rotation=4\": expected KIND=VALUE as in rotation=1; this model knows "
            "rotation=0 to 3, color=0 to 5");
  for (const char* wrong : {"jigsaw=1", "rotation", "rotation=", "rotation=1x", "=1", ","}) {
    images_->augmentations = wrong;
    EXPECT_CONTAINS(refused(a), "expected KIND=VALUE") << wrong;
  }
  images_->augmentations = "all", map_->path = dir / "map.png";
  EXPECT_CONTAINS(refused(a), "name one combination");
  a = arguments();
  write_tiny_images(dir / "other.h5", 2, {4, 3, 4});
  a.data = dir / "other.h5";
  EXPECT_EQ(refused(a),
            (dir / "other.h5") + " has images of 4 x 3 x 4, this model is made for 4 x 4 x 3");
  write_corpus(dir / "corpus.h5", 1000, 32);
  a.data = dir / "corpus.h5";
  EXPECT_CONTAINS(refused(a),
                  "trained on images, " + (dir / "corpus.h5") + " has a stream of tokens");
}

TEST_F(ImageRunTest, TextModelsRefuseImages) {
  write_corpus(dir / "corpus.h5", 3000, 32);
  train(small_config(dir.path(), {"model.vocab=256", "train.steps=1"}),
        {.out = dir / "run", .device = "cpu"});
  EvaluateArguments a = arguments();
  images_->augmentations = "all";
  EXPECT_CONTAINS(refused(a), "are of images");
  a = arguments();
  map_->path = dir / "map.png";
  evaluated(a);
  EXPECT_CONTAINS(notes_, "bits per byte over 300 tokens");
  EXPECT_CONTAINS(notes_, "bits of a position: ");
  a.data = dir / "images.h5";
  EXPECT_CONTAINS(refused(a), "this model reads 64 tokens that are no image");
}

TEST(ImageRuns, ContinueWithTheSameAugmentationOnly) {
  const TempDir dir;
  const auto with = [&](const std::string& set) {
    return tiny_image_config(dir.path(), {"augment.rotation=true", "data.mix=a/mix.h5", set});
  };
  const Config base = with("train.steps=20");
  for (const char* decides : {"augment.color=true", "augment.rotation=false", "augment.flip=true",
                              "augment.conditional=false", "augment.unaugmented_rate=0.5",
                              "augment.permute_positions=false", "data.mix=other.h5",
                              "data.mix_rate=0.1", "data.mix_items=3"}) {
    const std::string set = decides;
    EXPECT_CONTAINS(deciding_difference(base, with(set)), set.substr(0, set.find('=')));
  }
  EXPECT_EQ(deciding_difference(base, with("data.mix=elsewhere/mix.h5")), "");
}

TEST(HeatMap, LeavesOutWhatHasNoValueAndFindsTheExtremes) {
  HeatMap map({2, 3, 1});
  for (const auto& [position, bits] : {std::pair{0, 4.0}, {0, 2.0}, {4, 1.0}, {5, 8.0}})
    map.add(position, bits);
  EXPECT_EQ(map.mean(0), 3);
  EXPECT_TRUE(std::isnan(map.mean(1)));
  EXPECT_EQ(map.text(),
            "bits of a position: 1.0000 dark (row 1, column 1) to 8.0000 bright (row 1, column 2)");
  Image image = map.image();
  const auto centre = [&](int64_t row, int64_t column) {
    const Rgb c = image.at(12 + 128 * column + 64, 12 + 128 * row + 64);
    return static_cast<int>(c.red) + c.green + c.blue;
  };
  EXPECT_LT(centre(1, 1), centre(0, 0));
  EXPECT_LT(centre(0, 0), centre(1, 2));
  EXPECT_EQ(centre(0, 1), 3 * 215);
}

TEST(AugmentChoices, AreTextAndBack) {
  const TempDir dir;
  const Config config =
      tiny_image_config(dir.path(), {"augment.rotation=true", "augment.jigsaw=2"});
  const std::vector<AugmentChoice> all = all_choices(config);
  ASSERT_EQ(all.size(), 4u * 24);
  EXPECT_EQ(choice_text(all[0], config), "rotation=0,jigsaw=0");
  EXPECT_EQ(choice_text(all[25], config), "rotation=1,jigsaw=1");
  for (const AugmentChoice& choice : all)
    EXPECT_EQ(parse_choice(choice_text(choice, config), config).value, choice.value);
  EXPECT_EQ(choice_text(parse_choice("none", config), config), choice_text({}, config));
  EXPECT_EQ(choice_text({}, tiny_image_config(dir.path())), "none");
}

TEST(HeatMap, ColoursGoFromTheLeastToTheMost) {
  HeatMap map({1, 2, 3});
  for (int64_t i = 0; i < 6; ++i) map.add(i, static_cast<double>(i + 1));
  EXPECT_EQ(map.text(),
            "bits of a pixel: 6.0000 dark (row 0, column 0) to 15.0000 bright (row 0, column 1)\n"
            "bits of a channel: 1.0000 dark (row 0, column 0) to 6.0000 bright (row 0, column 1)");
  Image image = map.image();
  // behind the margin, 192 pixels each
  const Rgb dark = image.at(12, 12), bright = image.at(12 + 192, 12);
  EXPECT_EQ(std::tuple(dark.red, dark.green, dark.blue), std::tuple(13, 8, 42));
  EXPECT_EQ(std::tuple(bright.red, bright.green, bright.blue), std::tuple(250, 240, 160));
  EXPECT_EQ(image.at(408, 12 + 191).red, 14) << "the bar's end";
  EXPECT_EQ(image.at(408, 12 + 192).red, 250) << "the paper below it";
}
}  // namespace
}  // namespace weft
