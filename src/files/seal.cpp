// SPDX-License-Identifier: MIT
#include "src/files/seal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/view.h"
#include "src/files/files.h"
#include "src/files/hash.h"

namespace weft {
namespace {

constexpr char kMagic[] = "weft: length and hash of what follows\n";
struct Seal {
  char magic[40];
  std::uint64_t size, hash;
};
static_assert(sizeof kMagic <= sizeof Seal::magic && sizeof(Seal) == 56);

}  // namespace

void write_seal(char* file, std::size_t size) {
  FastHash hash;
  hash.add(file + kSealBlock, size - kSealBlock);
  Seal seal{{}, size - kSealBlock, hash.value()};
  std::memcpy(seal.magic, kMagic, sizeof kMagic);
  std::memcpy(file, &seal, sizeof seal);
}

bool check_seal(const std::string& path, int file) {
  constexpr std::int64_t kLarge = 1 << 20;
  using Version = std::array<std::int64_t, 5>;
  static std::mutex mutex;
  static std::set<Version> whole;
  struct stat info {};
  ::fstat(file, &info);
  const Version version{static_cast<std::int64_t>(info.st_dev), static_cast<std::int64_t>(info.st_ino),
                        info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  const std::lock_guard lock(mutex);
  if (whole.contains(version)) return true;
  const auto size = static_cast<std::size_t>(info.st_size);
  std::vector<char> piece(std::size_t{1} << 20);
  const auto read_at = [&](std::size_t at, std::size_t wanted) {
    const ssize_t got =
        uninterrupted([&] { return ::pread(file, piece.data(), wanted, static_cast<off_t>(at)); });
    if (got < 0) fail(str(path, ": cannot be read: ", std::strerror(errno)));
    return static_cast<std::size_t>(got);
  };
  Seal seal{};
  if (read_at(0, kSealBlock) < kSealBlock) return false;
  std::memcpy(&seal, piece.data(), sizeof seal);
  if (std::memcmp(seal.magic, kMagic, sizeof kMagic) != 0) return false;
  if (!verify_seals) return true;
  FastHash hash;
  std::size_t at = kSealBlock;
  for (std::size_t wanted; (wanted = std::min(piece.size(), size - at)) > 0; at += wanted) {
    if (seal.size != size - kSealBlock || read_at(at, wanted) != wanted)
      fail(str(path, ": is truncated (", size, " bytes are left, expected ", seal.size + kSealBlock,
               ") or damaged; copy or make it again"));
    hash.add(piece.data(), wanted);
  }
  if (hash.value() != seal.hash || seal.size != size - kSealBlock)
    fail(str(path, ": is damaged (its hash is not that of its bytes); copy or make it again"));
  if (info.st_size >= kLarge) whole.insert(version);
  return true;
}

}  // namespace weft
