// SPDX-License-Identifier: MIT
// Configs of images: what fits together. The published models of images and of sound.
#include "models/model.h"
#include "src/config/config.h"
#include "src/config/read_config.h"
#include "tests/temp_dir.h"

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <string>

namespace weft {
namespace {
std::string image_error(const std::string& augment, const std::string& axes = "[32, 32, 3]",
                        const std::string& more = "") {
  return error_of([&] {
    parse_config(
        "model: {context: 3072, position_axes: " + axes + "}\naugment:\n  " + augment + "\n" + more,
        "a.yaml");
  });
}

TEST(ConfigOfImages, TransformsFitTheImages) {
  for (const char* fits : {"rotation: true", "color: true", "jigsaw: 2", "flip: true",
                           "random_order: 9", "randaugment: 3"})
    EXPECT_EQ(image_error(fits), "") << fits;
  EXPECT_EQ(image_error("rotation: true", "[16, 64, 3]"),
            "a.yaml:3: augment.rotation: wants as many rows as columns; model.position_axes are "
            "[16, 64, 3]");
  EXPECT_CONTAINS(image_error("transposition: true", "[16, 64, 3]"),
                  "a.yaml:3: augment.transposition: wants");
  EXPECT_EQ(image_error("reversal: true", "[16, 64, 3]"), "");
  EXPECT_CONTAINS(image_error("color: true", "[32, 96, 1]"),
                  "a.yaml:3: augment.color: wants 3 channels");
  EXPECT_EQ(image_error("jigsaw: 3"),
            "a.yaml:3: augment.jigsaw: 3 does not divide rows and columns; model.position_axes are "
            "[32, 32, 3]");
  EXPECT_CONTAINS(image_error("jigsaw: 1"), "a.yaml:3: augment.jigsaw: 1 is the whole image");
  for (const char* kind : {"rotation: true", "flip: true", "random_order: 2"})
    EXPECT_CONTAINS(image_error(kind, "[24, 128]"),
                    "is for images, whose model.position_axes are rows, columns");
  EXPECT_CONTAINS(image_error("flip: true", "[33, 32, 3]"), "with the product model.context 3072");
  EXPECT_CONTAINS(image_error("flip: true", "[32, 32, 3]", "data: {path: a.h5, mix: a.h5}\n"),
                  "a.yaml:4: data.mix: a.h5 is data.path itself");
  EXPECT_CONTAINS(image_error("flip: false", "[24, 128]", "data: {labels: true}\n"),
                  "a.yaml:4: data.labels: is for images");
  EXPECT_EQ(
      image_error("flip: true", "[32, 32, 3]", "data: {path: a.h5, mix: b.h5, labels: true}\n"),
      "a.yaml:4: data.labels: is for one data file; leave data.mix out");
  EXPECT_EQ(image_error("flip: true", "[32, 32, 3]", "data: {mix_items: 3}\n"),
            "a.yaml:4: data.mix_items: limits the images of data.mix; set that, too");
  for (const char* separator : {"255", "256"})
    EXPECT_CONTAINS(
        image_error("flip: true", "[32, 32, 3]", str("data: {separator: ", separator, "}\n")),
        "a.yaml:4: data.separator: parts texts into documents, and images have none");
  EXPECT_EQ(image_error("flip: false", "[32, 32, 3]", "data: {separator: 256}\n"),
            "a.yaml:4: data.separator: expected a token below model.vocab 256, or -1 for none, "
            "found 256");
  EXPECT_CONTAINS(image_error("flip: false", "[24, 128]", "data: {path: a.h5, mix: b.h5}\n"),
                  "a.yaml:4: data.mix: is for images");
  EXPECT_CONTAINS(image_error("flip: true", "[32, 32, 3]",
                              "train: {batch: 4, context_schedule: [[0, 1024], [5, 3072]]}\n"),
                  "a.yaml:4: train.context_schedule: images are trained on whole");
}

struct Published {
  const char* config;
  double millions;
  double rounded_to;
};

TEST(PublishedModels, HaveTheirSizeAndFitOneGpu) {
  for (const Published& p : {Published{"cifar10", 59.2, 0.1},
                             {"c10_58m", 59.2, 0.1},
                             {"c10_dense", 59.2, 0.1},
                             {"c10_15m", 14.9, 0.1},
                             {"c10_15m_dense", 14.9, 0.1},
                             {"c10_150m", 151.6, 0.1},
                             {"c10_10m", 9.6, 0.1},
                             {"c10_2m", 2.4, 0.1},
                             {"imagenet64_8gpu", 88.6, 0.1},
                             {"imagenet64_150m", 151.6, 0.1},
                             {"imagenet64_300m", 303, 1},
                             // 2 % on either side, as the shapes are not published
                             {"audio_65k", 152, 6},
                             {"audio_262k", 25, 1},
                             {"audio_1m", 3, 0.12}}) {
    const Config config = load_config(p.config);
    const auto cpu = make_device("cpu");
    ParameterStore store;
    make_model(config, store, *cpu);
    double count = 0;
    for (const ParamInfo& info : store.params()) count += static_cast<double>(info.size);
    EXPECT_NEAR(count / 1e6, p.millions, p.rounded_to / 2) << p.config;
    const int64_t micro_batch = config.train.batch / config.train.accumulation;
    EXPECT_LT(plan_memory(config, micro_batch, config.model.context, true).total(),
              std::size_t{75} << 30)
        << p.config;
  }
}

TEST(ConfigOfImages, StrideOf128OverARowOf96) {
  const Config config =
      load_config("cifar10.yaml",
                  {"model.attention=[{kind: strided, stride: 128}, {kind: local, stride: 128}]"});
  EXPECT_EQ(config.model.attention.size(), 2u);
  EXPECT_EQ(config.model.context % 128, 0);
}
}  // namespace
}  // namespace weft
