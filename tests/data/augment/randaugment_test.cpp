// SPDX-License-Identifier: MIT
// RandAugment: every operation against Pillow's, to the pixel (golden/make_randaugment.py); its
// arguments; what is drawn.
#include "data/augment/augment.h"
#include "src/files/hdf5.h"
#include "tests/testing.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

namespace weft {
namespace {
RgbImage image_of(const Hdf5File& file, const std::string& dataset) {
  const auto shape = file.shape_of(dataset);
  RgbImage image{shape[0], shape[1], {}};
  image.pixels.resize(static_cast<std::size_t>(shape[0] * shape[1] * 3));
  file.read(dataset, StoredType::u8, shape, image.pixels.data());
  return image;
}

// All cases of one operation on one image.
void expect_golden(const Hdf5File& file, const std::string& name, RandKind kind) {
  const RgbImage image = image_of(file, "/images/" + name);
  const std::string arguments = str("/arguments/", name_of(kind)),
                    results = str("/results/", name, "/", name_of(kind));
  const auto shape = file.shape_of(results);
  const auto cases = static_cast<std::size_t>(shape[0]);
  std::vector<std::array<double, 3>> argument(cases);
  file.read(arguments, StoredType::f64, {shape[0], 3}, argument.data());
  std::vector<uint8_t> expected(cases * image.pixels.size());
  file.read(results, StoredType::u8, shape, expected.data());
  for (std::size_t i = 0; i < cases; ++i) {
    RandOperation operation{kind, argument[i][0]};
    operation.row = static_cast<int64_t>(argument[i][1]);
    operation.column = static_cast<int64_t>(argument[i][2]);
    RgbImage result = image;
    apply(operation, result);
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(i * image.pixels.size());
    int differing = 0;
    for (std::size_t p = 0; p < image.pixels.size(); ++p)
      differing += result.pixels[p] != begin[static_cast<std::ptrdiff_t>(p)] ? 1 : 0;
    EXPECT_EQ(differing, 0) << name_of(kind) << " " << argument[i][0] << " of " << name << ": of "
                            << image.pixels.size() << " values";
  }
}

TEST(RandAugment, OperationsAreThoseOfPillow) {
  const Hdf5File file = Hdf5File::open(WEFT_TEST_SOURCE "/tests/golden/randaugment.h5");
  const std::vector<std::string> images = file.list("/images");
  EXPECT_EQ(images.size(), 7u);
  for (const std::string& image : images) {
    for (int kind = 0; kind < kRandKinds; ++kind)
      expect_golden(file, image.substr(sizeof("/images/") - 1), static_cast<RandKind>(kind));
  }
}

TEST(RandAugment, ArgumentsByMagnitude) {
  const auto expect = [](RandKind kind, double at_2, double at_3, double at_10) {
    EXPECT_NEAR(argument_of(kind, 2), at_2, 1e-12) << name_of(kind);
    EXPECT_NEAR(argument_of(kind, 3), at_3, 1e-12) << name_of(kind);
    EXPECT_NEAR(argument_of(kind, 10), at_10, 1e-12) << name_of(kind);
  };
  expect(RandKind::rotate, 6, 9, 30);
  expect(RandKind::posterize, 1, 1, 4);
  expect(RandKind::solarize, 51, 76, 256);
  expect(RandKind::solarize_add, 22, 33, 110);
  for (const RandKind kind :
       {RandKind::color, RandKind::contrast, RandKind::brightness, RandKind::sharpness})
    expect(kind, 0.46, 0.64, 1.9);
  for (const RandKind kind : {RandKind::shear_x, RandKind::shear_y}) expect(kind, 0.06, 0.09, 0.3);
  for (const RandKind kind : {RandKind::translate_x, RandKind::translate_y})
    expect(kind, 10, 15, 50);
  expect(RandKind::cutout, 4, 6, 20);
  EXPECT_EQ(argument_of(RandKind::posterize, 0), 1) << "never black";
}

TEST(RandAugment, DrawsUniformlyWithRandomSigns) {
  constexpr int kDraws = 16000;
  std::array<int, kRandKinds> kinds{}, negative{};
  std::array<int, 8> rows{}, columns{};
  std::array<int, kRandKinds> after_first{};  // of the second operation when the first is 0
  for (uint64_t key = 0; key < kDraws; ++key) {
    const auto operations = draw_operations(key, 2, 5, 8, 8);
    ASSERT_EQ(operations.size(), 2u);
    const RandOperation& o = operations[0];
    const auto kind = static_cast<std::size_t>(o.kind);
    ++kinds[kind];
    negative[kind] += o.argument < 0 ? 1 : 0;
    EXPECT_EQ(std::abs(o.argument), argument_of(o.kind, 5));
    ++rows.at(static_cast<std::size_t>(o.row));
    ++columns.at(static_cast<std::size_t>(o.column));
    if (kind == 0) ++after_first[static_cast<std::size_t>(operations[1].kind)];
  }
  const auto chi_square = [](const auto& counts, double expected) {
    double sum = 0;
    for (const int n : counts) sum += (n - expected) * (n - expected) / expected;
    return sum;
  };
  // Exceeded once in 1000 sets of keys, with 15 and 7 degrees of freedom.
  EXPECT_LT(chi_square(kinds, kDraws / 16), 37.7);
  EXPECT_LT(chi_square(after_first, kinds[0] / 16.0), 37.7) << "with replacement";
  EXPECT_LT(chi_square(rows, kDraws / 8), 24.3);
  EXPECT_LT(chi_square(columns, kDraws / 8), 24.3);
  const std::set kSigned{RandKind::rotate, RandKind::shear_x, RandKind::shear_y,
                         RandKind::translate_x, RandKind::translate_y};
  for (int kind = 0; kind < kRandKinds; ++kind) {
    const auto i = static_cast<std::size_t>(kind);
    if (kSigned.contains(static_cast<RandKind>(kind)))
      EXPECT_NEAR(negative[i], kinds[i] / 2.0, 55) << name_of(static_cast<RandKind>(kind));
    else
      EXPECT_EQ(negative[i], 0) << name_of(static_cast<RandKind>(kind));
  }
}

TEST(RandAugment, TheKeySaysAll) {
  for (uint64_t key : {uint64_t{0}, uint64_t{1} << 63, uint64_t{12345}}) {
    const auto three = draw_operations(key, 3, 2.5, 32, 16),
               one = draw_operations(key, 1, 2.5, 32, 16);
    EXPECT_EQ(one[0].kind, three[0].kind) << "the first is the first of any number";
    EXPECT_EQ(one[0].argument, three[0].argument);
    for (const RandOperation& o : three)
      EXPECT_TRUE(o.row >= 0 && o.row < 32 && o.column >= 0 && o.column < 16);
  }
  EXPECT_TRUE(draw_operations(1, 0, 2, 8, 8).empty());
}
}  // namespace
}  // namespace weft
