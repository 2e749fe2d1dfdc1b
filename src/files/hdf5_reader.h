// SPDX-License-Identifier: MIT
// What hdf5.cpp and its child process, which parses the file and answers questions, need of HDF5's
// C API.
#pragma once

#include "src/files/descriptor.h"
#include "src/files/hdf5.h"

#include <cstddef>
#include <functional>
#include <hdf5.h>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace weft {
// An HDF5 identifier and the call that gives it back.
class Id {
 public:
  Id() = default;

  Id(hid_t id, herr_t (*close)(hid_t))
      : id_(id),
        close_(close) {}

  Id(Id&& o) noexcept
      : id_(std::exchange(o.id_, -1)),
        close_(o.close_) {}

  Id& operator=(Id&& o) noexcept {
    std::swap(id_, o.id_);
    std::swap(close_, o.close_);
    return *this;
  }

  ~Id() {
    if (id_ >= 0) close_(id_);
  }

  operator hid_t() const { return id_; }

  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

struct TypeRow {
  StoredType type;
  const char* name;
  hid_t file, memory;
};

// File types are little-endian whatever the machine: the same data makes the same file.
inline const std::vector<TypeRow>& types() {
  static const std::vector<TypeRow> rows = {
      {StoredType::u8, "uint8", H5T_STD_U8LE, H5T_NATIVE_UINT8},
      {StoredType::u16, "uint16", H5T_STD_U16LE, H5T_NATIVE_UINT16},
      {StoredType::u32, "uint32", H5T_STD_U32LE, H5T_NATIVE_UINT32},
      {StoredType::i32, "int32", H5T_STD_I32LE, H5T_NATIVE_INT32},
      {StoredType::i64, "int64", H5T_STD_I64LE, H5T_NATIVE_INT64},
      {StoredType::f32, "float32", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT},
      {StoredType::f64, "float64", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}};
  return rows;
}

inline const TypeRow& row_of(StoredType type) { return types()[static_cast<std::size_t>(type)]; }

// The innermost message on HDF5's error stack: the nearest it has to a reason.
inline std::string library_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* e, void* out) -> herr_t {
        auto& s = *static_cast<std::string*>(out);
        if (s.empty() && e->desc) s = e->desc;
        return 0;
      },
      &text);
  return text.empty() ? "the HDF5 library gives no reason" : text;
}

// Object headers without times, so that equal data makes equal bytes; `cls` is a creation property
// class.
inline Id creation_list(hid_t cls) {
  Id list(H5Pcreate(cls), H5Pclose);
  H5Pset_obj_track_times(list, false);
  return list;
}

inline void start_hdf5() {
  // prints nothing by itself
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  // a file reads no other file
  static const herr_t no_external_links = H5Lunregister(H5L_TYPE_EXTERNAL);
  (void)no_external_links;
}

// Where and what the values of a dataset are.
struct StoredPlace {
  int64_t type = -1;    // a StoredType; -1: another one
  int64_t offset = -1;  // in the file, as they are in memory; -1: packed, or never written
  std::vector<int64_t> shape;

  void add_to(std::string& bytes) const;
  static StoredPlace from(const std::string& bytes, std::size_t& at);  // moves `at` behind it
};

std::size_t elements_of(const std::vector<int64_t>& shape);

class Hdf5Reader {
 public:
  // Of an open file; `path` is for errors.
  Hdf5Reader(std::string path, int file, int64_t size);
  // A question is a letter and a name. Answers:
  //   h "+": there is such an object      l name, '\0', place of each dataset in a group, sorted
  //   p place of a dataset                t its type, or an Error that says which are known
  //   r (the type wanted before the name) its values
  //   x, i, d: "", or "+" and the text, integer or number of an attribute
  std::string answer(const std::string& question) const;

 private:
  [[noreturn]] void library_failed(const std::string& what) const;
  Id open_dataset(const std::string& name) const;
  Id open_attribute(const std::string& name, H5T_class_t cls, const char* wanted) const;
  bool has(const std::string& object) const;
  std::string list(const std::string& group) const;
  StoredPlace place_of(const std::string& dataset) const;
  void check_filters(const Id& set, const std::string& dataset) const;
  std::string whole_numbers(const Id& set, const std::string& dataset, const TypeRow& row,
                            std::size_t count) const;
  std::string values_of(const std::string& dataset, StoredType as) const;
  std::string text_attribute(const std::string& name) const;
  std::string number(const std::string& name, H5T_class_t cls, const char* wanted,
                     hid_t type) const;

  std::string path_;
  Id file_;
};

// A copy of this process that answers questions, so that answering cannot bring this process down.
class AnswerProcess {
 public:
  using Answer = std::function<std::string(const std::string& question)>;
  // `answer` runs in the child only, for at most so many seconds of CPU time in all.
  AnswerProcess(const Answer& answer, int64_t cpu_seconds);
  AnswerProcess& operator=(AnswerProcess&&) = delete;  // nor copied
  ~AnswerProcess();
  // Throws Error with the text of what `answer` throws, or, after `name`, with the end of the
  // child.
  std::string ask(const std::string& name, const std::string& question);

 private:
  pid_t child_ = -1;
  Descriptor socket_;
};
}  // namespace weft
