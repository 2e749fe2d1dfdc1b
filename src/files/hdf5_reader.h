// SPDX-License-Identifier: MIT
// What the child process of an Hdf5File does: it parses the file and answers questions.
#pragma once

#include "src/files/hdf5_library.h"

namespace weft {

// Where and what the values of a dataset are.
struct StoredPlace {
  std::int64_t type = -1;    // a StoredType; -1: another one
  std::int64_t offset = -1;  // in the file, as they are in memory; -1: packed, or never written
  std::vector<std::int64_t> shape;

  void add_to(std::string& bytes) const;
  static StoredPlace from(const std::string& bytes, std::size_t& at);  // moves `at` behind it
};

std::size_t elements_of(const std::vector<std::int64_t>& shape);

class Hdf5Reader {
 public:
  // Of an open file; `path` is for errors.
  Hdf5Reader(std::string path, int file, std::int64_t size);
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
  std::string values_of(const std::string& dataset, StoredType as) const;
  std::string text_attribute(const std::string& name) const;
  std::string number(const std::string& name, H5T_class_t cls, const char* wanted, hid_t type) const;

  std::string path_;
  Id file_;
};

}  // namespace weft
