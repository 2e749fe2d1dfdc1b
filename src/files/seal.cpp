// SPDX-License-Identifier: MIT
#include "src/files/seal.h"

#include "kernels/view.h"
#include "src/files/hash.h"
#include "src/files/stored_bytes.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace weft {
namespace {
constexpr char kSealMagic[] = "weft: length and hash of what follows\n";

struct Seal {
  char magic[40];
  uint64_t size, hash;
};

static_assert(sizeof kSealMagic <= sizeof Seal::magic && sizeof(Seal) == 56);

// How many bytes differ.
std::size_t different(const char* a, const char* b, std::size_t size) {
  return size - static_cast<std::size_t>(
                    std::inner_product(a, a + size, b, 0, std::plus<>(), std::equal_to<>()));
}

// Throws Error for a file of `size` bytes that begins as a seal does and ends before its block.
void refuse_cut_block(const std::string& path, const char* block, std::size_t size) {
  constexpr std::size_t kTold = 5;  // letters: "weft:"
  if (size < kTold || std::memcmp(block, kSealMagic, std::min(size, sizeof kSealMagic)) != 0)
    return;
  Seal seal{};
  std::memcpy(&seal, block, std::min(size, sizeof seal));
  fail(path, ": is truncated (", size, " bytes are left",
       size < sizeof seal ? "" : str(", expected ", seal.size + kSealBlock),
       "); copy or make it again");
}
}  // namespace

void write_seal(char* block, std::size_t size, uint64_t hash) {
  Seal seal{{}, size, hash};
  std::memcpy(seal.magic, kSealMagic, sizeof kSealMagic);
  std::memcpy(block, &seal, sizeof seal);
}

bool check_seal(const std::string& path, int file) {
  struct stat info {};

  ::fstat(file, &info);
  const auto size = static_cast<std::size_t>(info.st_size);
  const auto get = [&](std::size_t at, std::size_t wanted, void* to) {
    const int error = read_at(file, static_cast<int64_t>(at), wanted, to);
    if (error > 0) fail(path, ": cannot be read: ", std::strerror(error));
    return error == 0;
  };
  char block[kSealBlock], whole[kSealBlock] = {};
  if (!get(0, std::min(size, sizeof block), block)) return false;
  if (size < kSealBlock) {
    refuse_cut_block(path, block, size);
    return false;
  }
  const std::size_t differ = different(block, kSealMagic, sizeof kSealMagic);
  if (differ > sizeof kSealMagic / 2) return false;  // another file
  Seal seal{};
  std::memcpy(&seal, block, sizeof seal);
  write_seal(whole, seal.size, seal.hash);
  const bool block_is_whole = different(block, whole, sizeof whole) == 0;
  const auto check = [&] {
    std::vector<char> piece(std::size_t{1} << 20);
    FastHash hash;
    std::size_t at = kSealBlock;
    for (std::size_t wanted; (wanted = std::min(piece.size(), size - at)) > 0; at += wanted) {
      if (seal.size != size - kSealBlock || !get(at, wanted, piece.data()))
        fail(path, ": is truncated (", size, " bytes are left, expected ", seal.size + kSealBlock,
             ") or damaged; copy or make it again");
      hash.add(piece.data(), wanted);
    }
    if (hash.value() != seal.hash || seal.size != size - kSealBlock)
      fail(path, ": is damaged (its hash is not that of its bytes); copy or make it again");
  };
  if (verify_seals && !block_is_whole)
    fail(path, ": is damaged (its first ", kSealBlock, " bytes are not as they were written); ",
         "copy or make it again");
  if (verify_seals) check_once(file, "seal", check);
  return true;
}
}  // namespace weft
