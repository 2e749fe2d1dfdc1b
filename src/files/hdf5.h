// SPDX-License-Identifier: MIT
// HDF5 files: a tree of arrays and attributes. Errors name file, object, what was expected and
// found.
#pragma once

#include "kernels/dtype.h"
#include "src/files/stored_bytes.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {
enum class StoredType : uint8_t { u8, u16, u32, i32, i64, f32, f64 };
const char* name_of(StoredType);
std::string shape_text(const std::vector<int64_t>& shape);  // "(2, 3)"

// Writes bytes first .. first + size - 1 of the values of a dataset.
using FillBytes = std::function<void(int64_t first, std::span<char>)>;

// false, for a library in a program that fork() may not copy: this process itself parses what has a
// seal that holds, and one thread at a time opens and reads files.
extern std::atomic<bool> may_fork;  // one for all libraries, true at first

class Hdf5File {
 public:
  // To read; an Error when missing, truncated, not HDF5, or, in files of create(), when any byte
  // differs. A child process parses it: damage and failed reads that HDF5 does not survive are an
  // Error, too.
  static Hdf5File open(const std::string& path);
  // To write. The file is built in memory (HDF5 does not survive a write that fails); commit()
  // writes it as a NewFile (src/files/files.h), after a user block with its length and hash. Equal
  // data makes equal bytes. Size::large: memory does not hold the values that write() is given
  // later.
  enum class Size : uint8_t { fits_memory, large };
  static Hdf5File create(const std::string& path, Size = Size::fits_memory);
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;
  ~Hdf5File();
  void commit();

  const std::string& path() const;
  bool has(const std::string& object) const;
  // paths of all datasets below it, sorted
  std::vector<std::string> list(const std::string& group) const;
  StoredType type_of(const std::string& dataset) const;
  std::vector<int64_t> shape_of(const std::string& dataset) const;

  // Groups on the way are made. Data is contiguous, uncompressed, row-major. `later`, of a large
  // file, stands for `data`: commit() asks it, twice, for pieces of at most 1 MiB.
  void write(const std::string& dataset, StoredType, const std::vector<int64_t>& shape,
             const void* data, const FillBytes& later = {});
  // The values. Those that are compressed or stored as another type are unpacked to memory. Error
  // for a whole number that `as` does not hold (it names value and index), and for a filter that
  // this HDF5 lacks.
  StoredBytes bytes_of(const std::string& dataset, StoredType as) const;
  // The whole dataset, converted to `as`; the stored shape must be `shape`. Errors as of bytes_of.
  void read(const std::string& dataset, StoredType as, const std::vector<int64_t>& shape,
            void* data) const;

  // Attributes of the root group.
  void set_attribute(const std::string& name, const std::string& value);
  void set_attribute(const std::string& name, int64_t value);
  void set_real_attribute(const std::string& name, double value);
  std::optional<std::string> text_attribute(const std::string& name) const;
  std::optional<int64_t> int_attribute(const std::string& name) const;
  std::optional<double> real_attribute(const std::string& name) const;

 private:
  Hdf5File();
  struct Handle;
  std::unique_ptr<Handle> handle_;
};
}  // namespace weft
