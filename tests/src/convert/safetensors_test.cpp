// SPDX-License-Identifier: MIT
// safetensors: every bit comes back, and what a file promises is checked against what it holds.
#include "src/convert/safetensors.h"

#include "tests/src/files/small_store.h"
#include "tests/temp_dir.h"

#include <bit>
#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace weft {
namespace {
const Parameters kSmall = {{"start", {4}}, {"position.0", {3, 4}}, {"blocks.0.up.weight", {5, 4}}};

std::vector<uint32_t> bits_of(const WeightsFile& file, const std::string& name) {
  std::vector<uint32_t> bits;
  for (const float x : file.values(name)) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

TEST(Safetensors, EveryBitComesBackAndTheConfigWithIt) {
  const TempDir dir;
  SmallStore a(kSmall, 1, true);
  a.scramble(a.store.master(), 1);
  a.scramble(a.store.ema(), 2);
  save_checkpoint(dir / "a.h5", *a.device, a.store, {.step = 7, .updates = 7},
                  "name: \"ä\"\n# x\n");
  for (const bool last : {false, true}) {
    save_safetensors(dir / "a.safetensors", open_weights(dir / "a.h5", last), DType::f32);
    const WeightsFile file = open_weights(dir / "a.safetensors");
    EXPECT_EQ(file.config, "name: \"ä\"\n# x\n");
    EXPECT_EQ(file.step, 7);
    EXPECT_EQ(file.ema, !last);
    EXPECT_EQ(file.shapes.size(), kSmall.size());
    SmallStore b(kSmall, 2);
    EXPECT_EQ(take_weights(file, *b.device, b.store).taken.size(), kSmall.size());
    for (std::size_t i = 0; i < kSmall.size(); ++i) {
      EXPECT_EQ(bits_of(file, kSmall[i].first), a.bits(last ? a.store.master() : a.store.ema(), i));
      EXPECT_EQ(b.bits(i), a.bits(last ? a.store.master() : a.store.ema(), i));
    }
    save_safetensors(dir / "b.safetensors", file, DType::f32);
    EXPECT_EQ(read_file(dir / "a.safetensors"), read_file(dir / "b.safetensors"));
  }
  save_safetensors(dir / "half.safetensors", open_weights(dir / "a.h5"), DType::bf16);
  const std::vector<uint32_t> exact = a.bits(a.store.ema(), 2),
                              rounded =
                                  bits_of(open_weights(dir / "half.safetensors"), kSmall[2].first);
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_EQ(rounded[i], static_cast<uint32_t>(bf16(std::bit_cast<float>(exact[i])).bits) << 16);
}

TEST(Safetensors, NamesThatAreNoUtf8LoseThoseBytes) {
  const TempDir dir;
  const SmallStore a(kSmall, 1, true);
  save_checkpoint(dir / "a.h5", *a.device, a.store, {.step = 7}, "data: {path: \"\xe4.h5\"}\n");
  save_safetensors(dir / "a.safetensors", open_weights(dir / "a.h5"), DType::f32);
  EXPECT_EQ(open_weights(dir / "a.safetensors").config, "data: {path: \"\xef\xbf\xbd.h5\"}\n");
}

std::string with_header(const std::string& header, std::size_t data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(data, '\0');
}

std::string entry(const std::string& name, const std::string& shape, int begin, int end,
                  const std::string& dtype = "F32") {
  return str("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape, "],\"data_offsets\":[",
             begin, ",", end, "]}");
}

const std::string kMeta =
    R"("__metadata__":{"weft.config":"a: b","weft.step":"3","weft.weights":"last"},)";

TEST(Safetensors, HostileHeadersAreRefusedByName) {
  const TempDir dir;
  const std::string path = dir / "x.safetensors";
  const auto error = [&](const std::string& bytes) {
    write_file(path, bytes);
    const std::string text = error_of([&] { open_weights(path); });
    EXPECT_TRUE(text.empty() || text.starts_with(path + ": is not a safetensors file of weights: "))
        << text;
    return text;
  };
  const auto of = [&](const std::string& entries, std::size_t data) {
    return error(with_header("{" + kMeta + entries + "}", data));
  };
  EXPECT_EQ(of(entry("a", "2,3", 0, 24) + "," + entry("b", "2", 24, 28, "BF16"), 28), "");
  const std::string good = read_file(path);
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_NE(error(good.substr(0, bytes)), "") << bytes;
  EXPECT_CONTAINS(error(good + "x"), "the data: has 29 bytes, the arrays have 28");
  EXPECT_CONTAINS(error(std::string(8, '\xff') + good.substr(8)),
                  "the header: would have 18446744073709551615 bytes");
  const std::string a = entry("a", "2", 0, 8);
  for (const auto& [entries, data, part] :
       std::vector<std::tuple<std::string, std::size_t, std::string>>{
           {a + "," + entry("b", "2", 4, 12), 12,
            "b: begins at byte 4 of the data, the array before it ends at 8"},
           {a + "," + entry("b", "2", 12, 20), 20,
            "b: begins at byte 12 of the data, the array before it ends at 8"},
           {entry("a", "2", 4, 12), 12,
            "a: begins at byte 4 of the data, the array before it ends at 0"},
           {a + "," + entry("b", "2", 8, 16), 12, "b: expected a whole number up to 12, found 16"},
           {a + "," + a, 8, "the header: has a twice"},
           {"\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", 4,
            "the header: has dtype twice"},
           {entry("a", "2", 0, 4, "F16"), 4, "a: dtype F16, expected F32 or BF16"},
           {entry("a", "3", 0, 8), 8, "a: data_offsets [0,8] for (3) in F32"},
           {entry("a", "2", 8, 0), 8, "a: data_offsets [8,0]"},
           {entry("a", "-2", 0, 8), 8, "a: expected a whole number up to"},
           {entry("a", "2.0", 0, 8), 8, "a: expected a whole number up to"},
           {entry("a", "0", 0, 0), 0, "a: shape [0], expected 1 to"},
           {entry("a", "4294967296,4294967296,4294967296", 0, 8), 8, "a: shape [4294967296"},
           {"\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}", 8, "a: "},
           {"\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}", 8, "a: "},
           {"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}", 8,
            "a: data_offsets, expected begin and end"},
           {"\"a\":{\"dtype\":\"F32\",\"shape\":[2]}", 8,
            "a: expected dtype, shape and data_offsets"},
           {"\"a\":[]", 8, "a: expected dtype, shape and data_offsets"},
           {"\"a\":" + std::string(100000, '[') + std::string(100000, ']'), 8,
            "the header: nested too deep"},
           {"\"a\"", 8, "the header: "},
           {"\"\xff\":1", 8, "the header: "}})
    EXPECT_CONTAINS(of(entries, data), part);
  EXPECT_CONTAINS(error(with_header("[]", 0)), "the header: is no JSON object");
  EXPECT_CONTAINS(error(with_header("{" + a + "}", 8)), "__metadata__");
  EXPECT_CONTAINS(error(with_header("{\"__metadata__\":{\"format\":\"pt\"}," + a + "}", 8)),
                  "__metadata__: has no weft.config: weft did not write it");
  EXPECT_CONTAINS(
      error(with_header("{\"__metadata__\":{\"weft.config\":\"\",\"weft.step\":\"x\"}," + a + "}",
                        8)),
      "__metadata__: ");
  write_file(path, with_header("{" + kMeta + a + "}", 0) + std::string("\0\0\x80\x7f\0\0\0\0", 8));
  EXPECT_EQ(error_of([&] { open_weights(path).values("a"); }),
            path + ": a holds inf (element 0), expected finite numbers");
  EXPECT_CONTAINS(error_of([&] { open_weights(dir / "none.safetensors"); }), "none.safetensors: ");
}

TEST(Safetensors, OtherBytesAreAnErrorOrAResult) {
  const TempDir dir;
  const std::string path = dir / "x.safetensors",
                    good = with_header("{" + kMeta + entry("a", "2,3", 0, 24) + "," +
                                           entry("b", "2", 24, 28, "BF16") + "}",
                                       28);
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    std::string bytes = good;
    for (int k = 0; k <= i % 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    write_file(path, bytes);
    const std::string error = error_of([&] {
      const WeightsFile file = open_weights(path);
      for (const auto& [name, shape] : file.shapes) file.read(name);
    });
    EXPECT_TRUE(error.empty() || error.starts_with(path + ": ")) << error;
  }
}
}  // namespace
}  // namespace weft
