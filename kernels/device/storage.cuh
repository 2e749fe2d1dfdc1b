// SPDX-License-Identifier: MIT
// The shared memory of a thread block as a struct with members that have names and types. Copies
// and matrix instructions take 32-bit addresses: a pointer to a member becomes one.
#pragma once

#include "kernels/device/shared_memory.cuh"

#include <cstdint>

namespace weft::device {
// 64 rows of 64 16-bit columns in the 128-byte swizzle (wgmma.cuh).
inline constexpr int kPanel = 64 * 128, kPanelAlignment = 1024;  // bytes
using Panel = char[kPanel];

// What a launch asks for: shared_storage() begins at the next multiple of 1024.
template <class Storage>
inline constexpr int kSharedBytes = sizeof(Storage) + kPanelAlignment;

// Pointer arithmetic: the compiler still knows that members are in shared memory.
template <class Storage>
__device__ __forceinline__ Storage& shared_storage(char* raw) {
  static_assert(kSharedBytes<Storage> <= 227 * 1024, "more than a multiprocessor has");
  return *reinterpret_cast<Storage*>(raw + (-shared_address(raw) & (kPanelAlignment - 1u)));
}

// The 32-bit address of something in shared memory.
class SharedAddress {
 public:
  __device__ __forceinline__ SharedAddress(uint32_t address)
      : address_(address) {}

  __device__ __forceinline__ SharedAddress(const void* p)
      : address_(shared_address(p)) {}

  __device__ __forceinline__ operator uint32_t() const { return address_; }

 private:
  uint32_t address_;
};
}  // namespace weft::device
