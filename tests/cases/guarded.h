// SPDX-License-Identifier: MIT
// Memory of a device between guard bands, by which a write beside it is found.
#pragma once

#include "src/device.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace weft {
using Bytes = std::vector<unsigned char>;

inline constexpr unsigned char kPoisonByte = 0xff;  // NaN in every floating type, -1 in i32

class GuardedMemory {
 public:
  // `band`: the byte that the bands are made of. The content begins `shift` bytes past a 256-byte
  // boundary.
  GuardedMemory(Device& device, const Bytes& content, unsigned char band, int64_t shift = 0)
      : device_(&device),
        begin_(kBand + shift),
        end_(begin_ + std::ssize(content)),
        band_(band),
        memory_(*device.pool, {end_ + kBand}, DType::u8, "case") {
    upload(content);
  }

  void* data() const { return static_cast<unsigned char*>(memory_.view().data) + begin_; }

  void upload(const Bytes& content) const {
    Bytes image(static_cast<std::size_t>(memory_.size()), band_);
    std::ranges::copy(content, image.begin() + begin_);
    device_->upload(memory_, image.data());
  }

  // With the bands.
  Bytes image() const {
    Bytes bytes(static_cast<std::size_t>(memory_.size()));
    device_->download(bytes.data(), memory_);
    return bytes;
  }

  struct Read {
    Bytes content;
    bool kept_before, kept_after;  // the bands are what they were
  };

  Read read() const {
    const Bytes image = this->image();
    const auto intact = [&](unsigned char byte) { return byte == band_; };
    const auto begin = image.begin() + begin_, end = image.begin() + end_;
    return {Bytes(begin, end), std::all_of(image.begin(), begin, intact),
            std::all_of(end, image.end(), intact)};
  }

 private:
  static constexpr int64_t kBand = 2048;
  Device* device_;
  int64_t begin_, end_;
  unsigned char band_;
  Tensor memory_;
};

// A (rows, columns) matrix in guarded memory; what is not put() is NaN, the bands too.
template <class T>
class GuardedMatrix {
 public:
  using Value = T;

  GuardedMatrix(Device& device, int64_t rows, int64_t columns)
      : rows_(rows),
        columns_(columns),
        memory_(device, Bytes(static_cast<std::size_t>(rows * columns) * sizeof(T), kPoisonByte),
                kPoisonByte) {}

  T* data() const { return static_cast<T*>(memory_.data()); }

  int64_t columns() const { return columns_; }

  void put(int64_t first_column, int64_t count, const std::vector<T>& values) {
    Bytes all = memory_.read().content;
    for (int64_t r = 0; r < rows_; ++r)
      std::memcpy(&all[(r * columns_ + first_column) * sizeof(T)], &values[r * count],
                  count * sizeof(T));
    memory_.upload(all);
  }

  std::vector<T> get(int64_t first_column, int64_t count) const {
    const Bytes all = memory_.read().content;
    std::vector<T> values(rows_ * count);
    for (int64_t r = 0; r < rows_; ++r)
      std::memcpy(static_cast<void*>(&values[r * count]),
                  &all[(r * columns_ + first_column) * sizeof(T)], count * sizeof(T));
    return values;
  }

  // Everything, guard bands and spare columns too.
  void fetch(std::vector<T>& all) const {
    const Bytes image = memory_.image();
    all.resize(image.size() / sizeof(T));
    std::memcpy(static_cast<void*>(all.data()), image.data(), image.size());
  }

  // Nothing was written outside of the first `used` columns.
  bool kept_outside(int64_t used) const {
    auto [all, kept_before, kept_after] = memory_.read();
    for (int64_t r = 0; r < rows_; ++r)
      std::fill_n(&all[r * columns_ * sizeof(T)], used * sizeof(T), kPoisonByte);
    return kept_before && kept_after &&
           std::ranges::all_of(all, [](unsigned char byte) { return byte == kPoisonByte; });
  }

 private:
  int64_t rows_, columns_;
  GuardedMemory memory_;
};
}  // namespace weft
