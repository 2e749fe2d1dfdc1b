// SPDX-License-Identifier: MIT
// Files that are right, and files that are damaged in one place each.
#include "tests/exercises/11_data_format/exercise.h"
#include "tests/exercises/check.h"

#include <array>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace {
using exercise::expect;
using Bytes = std::vector<uint8_t>;

// Pixel i is i modulo 251.
Bytes idx(std::array<uint32_t, 3> sizes, std::size_t pixels, uint8_t type = 8, uint8_t rank = 3) {
  Bytes file{0, 0, type, rank};
  for (const uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8)
      file.push_back(static_cast<uint8_t>(size >> shift));
  for (std::size_t i = 0; i < pixels; ++i) file.push_back(static_cast<uint8_t>(i % 251));
  return file;
}

void expect_images(uint32_t count, uint32_t height, uint32_t width) {
  const Images images = read_idx(idx({count, height, width}, count * height * width));
  const std::string what = exercise::text(count, " images of ", height, " x ", width, ": ");
  expect(images.count == count && images.height == height && images.width == width, what,
         "you found ", images.count, " images of ", images.height, " x ", images.width);
  expect(images.pixels.size() == count * height * width, what, "you found ", images.pixels.size(),
         " pixels");
  for (std::size_t i = 0; i < images.pixels.size(); ++i)
    expect(images.pixels[i] == i % 251, what, "pixel ", i, " is ", i % 251, ", yours is ",
           int{images.pixels[i]});
}

// Returns the text of the error.
std::string expect_refused(const Bytes& file, const std::string& what) {
  try {
    const Images images = read_idx(file);
    expect(false, what, ": accepted, as ", images.count, " images of ", images.height, " x ",
           images.width, " in ", images.pixels.size(), " bytes");
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    if (text.find(": accepted, as ") != std::string::npos) throw;
    return text;
  } catch (const std::exception& error) {
    expect(false, what, ": ", error.what(), " is no error that tells a user what to do");
  }
  return "";
}

void files_are_read() {
  expect_images(1, 1, 1);
  expect_images(2, 3, 4);
}

void numbers_have_their_first_byte_first() {
  expect_images(300, 2, 1);
  expect_images(1, 2, 70'000);
}

void other_files_are_refused() {
  expect_refused({}, "a file of no bytes");
  expect_refused(
      {'h', 'e', 'l', 'l', 'o', ',', ' ', 'w', 'o', 'r', 'l', 'd', '!', '!', '!', '!', '!'},
      "a text");
  expect_refused(idx({2, 3, 4}, 24, 0x0d), "numbers of type 0x0d, f32");
  for (const std::size_t place : {0, 1}) {
    Bytes file = idx({2, 3, 4}, 24);
    file[place] = 1;
    expect_refused(file, exercise::text("a file whose byte ", place, " is 1"));
  }
  Bytes labels{0, 0, 8, 1, 0, 0, 0, 9};
  labels.resize(8 + 9, 5);
  expect_refused(labels, "a file of 9 labels, with one axis");
}

void cut_files_are_refused() {
  const Bytes whole = idx({2, 3, 4}, 24);
  for (std::size_t size = 0; size < whole.size(); ++size)
    expect_refused(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)),
                   exercise::text("a file of ", whole.size(), " bytes, cut to ", size));
}

void files_with_more_behind_are_refused() {
  expect_refused(idx({2, 3, 4}, 25), "a file with a byte behind its pixels");
}

void sizes_that_lie_are_refused() {
  expect_refused(idx({0, 3, 4}, 0), "no images");
  expect_refused(idx({2, 0, 4}, 0), "images without rows");
  expect_refused(idx({0xffffffff, 0x7fffffff, 1}, 784),
                 "almost 2^63 pixels, of which 784 are there");
  expect_refused(idx({0x10000, 0x10000, 1}, 0), "2^16 x 2^16 pixels, which are 0 modulo 2^32");
  expect_refused(idx({0x400000, 0x200000, 0x200000}, 0), "2^64 pixels, which are 0 modulo 2^64");
}

void errors_say_what_was_found() {
  const std::string text = expect_refused(idx({2, 3, 4}, 20), "20 pixels of 24");
  for (const auto& [expected, found] : {std::pair{"24", "20"}, {"40", "36"}})
    if (text.find(expected) != std::string::npos && text.find(found) != std::string::npos) return;
  expect(false,
         "24 pixels were stated and 20 are there, in a file of 36 bytes instead of 40. "
         "Neither pair of numbers is in your text '",
         text, "'");
}
}  // namespace

int main() {
  return exercise::run({
      {"files are read", files_are_read},
      {"numbers have their first byte first", numbers_have_their_first_byte_first},
      {"other files are refused", other_files_are_refused},
      {"cut files are refused", cut_files_are_refused},
      {"files with more behind are refused", files_with_more_behind_are_refused},
      {"sizes that lie are refused", sizes_that_lie_are_refused},
      {"errors say what was expected and found", errors_say_what_was_found},
  });
}
