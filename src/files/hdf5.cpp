// SPDX-License-Identifier: MIT
// Hdf5File over the C API of HDF5 1.10. HDF5 writes to memory, for a write that fails breaks its
// state; it reads in a child process, for a read that fails can crash it.
#include "src/files/hdf5.h"

#include "src/config/names.h"
#include "src/files/descriptor.h"
#include "src/files/files.h"
#include "src/files/hash.h"
#include "src/files/hdf5_reader.h"
#include "src/files/seal.h"
#include "src/files/stored_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace weft {
std::atomic<bool> may_fork = true;

const char* name_of(StoredType type) { return row_of(type).name; }

std::string shape_text(const std::vector<int64_t>& shape) { return "(" + joined(shape) + ")"; }

struct Hdf5File::Handle {
  std::string path;
  // Of create(), until commit().
  std::unique_ptr<NewFile> made;
  Id file;

  struct Later {
    int64_t first, end;  // bytes of the file
    FillBytes fill;
  };

  std::vector<Later> later;  // of write_later()
  // Of open(): what is read. Of a large file that is made: memory, with holes where others fill
  // values in.
  std::shared_ptr<const Descriptor> fd;
  std::function<std::string(const std::string& question)> reader;
  std::map<std::string, StoredPlace> places;  // of the datasets that were listed

  std::string ask(const char* what, const std::string& name) const {
    WEFT_CHECK(reader, path, ": is read before it is complete");
    return reader(what + name);
  }

  StoredPlace place_of(const std::string& dataset) const {
    const auto known = places.find(dataset);
    std::size_t at = 0;
    return known != places.end() ? known->second : StoredPlace::from(ask("p", dataset), at);
  }

  template <class T>
  std::optional<T> number(const char* what, const std::string& name) const {
    const std::string found = ask(what, name);
    T value{};
    if (found.size() != 1 + sizeof value) return std::nullopt;
    std::memcpy(&value, &found[1], sizeof value);
    return value;
  }

  [[noreturn]] void library_failed(const std::string& what) const {
    fail(path, ": ", what, ": ", library_error());
  }

  void each_piece(const std::function<void(const char*, std::size_t)>& take) const;

  void write_attribute(const std::string& name, hid_t file_type, hid_t memory_type,
                       const void* value) {
    const Id space(H5Screate(H5S_SCALAR), H5Sclose);
    const Id a(H5Acreate2(file, name.c_str(), file_type, space, H5P_DEFAULT, H5P_DEFAULT),
               H5Aclose);
    if (!a.ok() || H5Awrite(a, memory_type, value) < 0)
      library_failed("attribute " + name + " cannot be written");
  }
};

namespace {
using Reader = std::function<std::string(const std::string& question)>;

Reader reader_here(const std::string& path, int file, int64_t size) {
  const auto reader = std::make_shared<Hdf5Reader>(path, file, size);
  return [reader](const std::string& question) { return reader->answer(question); };
}

// Damage, or a read that fails, can bring down the process that HDF5 runs in.
Reader reader_in_a_child(const std::string& path, int file, int64_t size) {
  std::optional<Hdf5Reader> reader;
  const auto answer = [&](const std::string& question) {
    if (!reader) reader.emplace(path, file, size);
    return reader->answer(question);
  };
  const auto child = std::make_shared<AnswerProcess>(answer, 20 + size / 1'000'000);
  return [child, path](const std::string& question) { return child->ask(path, question); };
}
}  // namespace

Hdf5File::Hdf5File()
    : handle_(std::make_unique<Handle>()) {}

Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;
Hdf5File::~Hdf5File() = default;

Hdf5File Hdf5File::open(const std::string& path) {
  Hdf5File f;
  Handle& h = *f.handle_;
  h.path = path;

  struct stat info {};

  h.fd = std::make_shared<const Descriptor>(
      ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // a FIFO does not wait
  if (!*h.fd) fail(path, ": cannot be opened: ", std::strerror(errno));
  ::fstat(h.fd->get(), &info);
  if (S_ISDIR(info.st_mode)) fail(path, ": is a folder, expected an HDF5 file");
  if (!S_ISREG(info.st_mode)) fail(path, ": is not a regular file, expected an HDF5 file");
  if (info.st_size == 0) fail(path, ": is empty, expected an HDF5 file");
  const bool seal_holds = check_seal(path, h.fd->get()) && verify_seals;
  h.reader = seal_holds && !may_fork ? reader_here(path, h.fd->get(), info.st_size)
                                     : reader_in_a_child(path, h.fd->get(), info.st_size);
  h.ask("h", "/");
  return f;
}

Hdf5File Hdf5File::create(const std::string& path, Size size) {
  start_hdf5();
  Hdf5File f;
  Handle& h = *f.handle_;
  h.path = path;
  h.made = std::make_unique<NewFile>(path);
  const Id creation = creation_list(H5P_FILE_CREATE), access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_userblock(creation, kSealBlock);
  H5Pset_fapl_core(access, std::size_t{16} << 20, false);
  std::string name = path;
  if (size == Size::large) {
    H5Pset_fapl_stdio(access);  // the one driver that takes such a name
    h.fd = std::make_shared<const Descriptor>(memfd_create("weft", MFD_CLOEXEC));
    name = str("/proc/self/fd/", h.fd->get());
    H5Pset_alignment(access, 1, 64);  // elements do not cross a border of pieces
  }
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
  h.file = Id(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  if (!h.file.ok()) h.library_failed("cannot be created");
  return f;
}

// All that follows the user block.
void Hdf5File::Handle::each_piece(const std::function<void(const char*, std::size_t)>& take) const {
  if (!fd) {
    void* memory = nullptr;
    const ssize_t size = H5Fget_file_image(file, nullptr, 0);  // without the user block
    if (size <= 0 || H5Fget_vfd_handle(file, H5P_DEFAULT, &memory) < 0)
      library_failed("cannot be completed in memory");
    return take(*static_cast<char**>(memory) + kSealBlock, static_cast<std::size_t>(size));
  }
  std::vector<char> piece(std::size_t{1} << 20);
  const int64_t all = lseek(fd->get(), 0, SEEK_END);
  for (int64_t at = kSealBlock, end; at < all; at = end) {
    end = std::min(at + std::ssize(piece), all);
    if (read_at(fd->get(), at, end - at, piece.data()) != 0)
      library_failed("cannot be completed in memory");
    for (const Later& l : later) {
      const int64_t from = std::max(at, l.first), to = std::min(end, l.end);
      if (from < to) l.fill(from - l.first, std::span(piece).subspan(from - at, to - from));
    }
    take(piece.data(), static_cast<std::size_t>(end - at));
  }
}

void Hdf5File::commit() {
  Handle& h = *handle_;
  WEFT_CHECK(h.made, h.path, ": commit() belongs to a file that create() made, once");
  if (H5Fflush(h.file, H5F_SCOPE_GLOBAL) < 0) h.library_failed("cannot be completed in memory");
  FastHash hash;
  std::size_t size = 0;
  h.each_piece(
      [&](const char* bytes, std::size_t count) { hash.add(bytes, count), size += count; });
  char seal[kSealBlock] = {};
  write_seal(seal, size, hash.value());
  h.made->write(seal, sizeof seal);
  h.each_piece([&](const char* bytes, std::size_t count) { h.made->write(bytes, count); });
  h.file = Id();
  h.made->commit();
  h.made.reset();
}

const std::string& Hdf5File::path() const { return handle_->path; }

bool Hdf5File::has(const std::string& object) const { return !handle_->ask("h", object).empty(); }

std::vector<std::string> Hdf5File::list(const std::string& group) const {
  const std::string all = handle_->ask("l", group);
  std::vector<std::string> paths;
  for (std::size_t at = 0; at < all.size();) {
    paths.emplace_back(all.c_str() + at);
    at += paths.back().size() + 1;
    handle_->places[paths.back()] = StoredPlace::from(all, at);
  }
  return paths;
}

StoredType Hdf5File::type_of(const std::string& dataset) const {
  return static_cast<StoredType>(handle_->ask("t", dataset).at(0));
}

std::vector<int64_t> Hdf5File::shape_of(const std::string& dataset) const {
  return handle_->place_of(dataset).shape;
}

void Hdf5File::read(const std::string& dataset, StoredType as, const std::vector<int64_t>& shape,
                    void* data) const {
  const Handle& h = *handle_;
  const StoredPlace place = h.place_of(dataset);
  if (place.shape != shape)
    fail(path(), ": ", dataset, " has shape ", shape_text(place.shape), ", expected ",
         shape_text(shape));
  const std::size_t size = elements_of(shape) * H5Tget_size(row_of(as).memory);
  bytes_of(dataset, as).read(0, size, data);
}

StoredBytes Hdf5File::bytes_of(const std::string& dataset, StoredType as) const {
  const Handle& h = *handle_;
  const StoredPlace place = h.place_of(dataset);
  StoredBytes bytes{dataset, path(), h.fd, place.offset, nullptr};
  if (place.offset >= 0 && place.type == static_cast<int64_t>(as)) return bytes;
  bytes.values = std::make_shared<std::string>(h.ask("r", static_cast<char>(as) + dataset));
  if (bytes.values->size() != elements_of(place.shape) * H5Tget_size(row_of(as).memory))
    fail(path(), ": ", dataset, " changes while it is read");
  return bytes;
}

void Hdf5File::write(const std::string& dataset, StoredType type, const std::vector<int64_t>& shape,
                     const void* data, const FillBytes& later) {
  Handle& h = *handle_;
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  const Id creation = creation_list(H5P_DATASET_CREATE);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  const TypeRow& row = row_of(type);
  const auto size = static_cast<int64_t>(elements_of(shape) * H5Tget_size(row.memory));
  if (later) {
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    // HDF5 does not survive a file that may not have its size.
    if (ftruncate(h.fd->get(), lseek(h.fd->get(), 0, SEEK_END) + size) != 0)
      fail(path(), ": could not be written: ", disk_error(errno));
  }
  // Groups on the way are made one by one: those that HDF5 makes by itself carry the time.
  for (std::size_t slash = dataset.find('/', 1); slash != std::string::npos;
       slash = dataset.find('/', slash + 1)) {
    const std::string group = dataset.substr(0, slash);
    if (H5Lexists(h.file, group.c_str(), H5P_DEFAULT) > 0) continue;
    const Id made(H5Gcreate2(h.file, group.c_str(), H5P_DEFAULT, creation_list(H5P_GROUP_CREATE),
                             H5P_DEFAULT),
                  H5Gclose);
    if (!made.ok()) h.library_failed("group " + group + " cannot be made");
  }
  const Id set(
      H5Dcreate2(h.file, dataset.c_str(), row.file, space, H5P_DEFAULT, creation, H5P_DEFAULT),
      H5Dclose);
  if (!set.ok() || (!later && H5Dwrite(set, row.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0))
    h.library_failed("dataset " + dataset + " " + shape_text(shape) + " cannot be written");
  const auto first = static_cast<int64_t>(H5Dget_offset(set));
  if (later && size > 0) h.later.push_back({first, first + size, later});
}

void Hdf5File::set_attribute(const std::string& name, const std::string& value) {
  // Fixed length lies in checksummed blocks; damage in the heaps of variable length can hang the
  // library.
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, std::max<std::size_t>(value.size(), 1));
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  handle_->write_attribute(name, type, type, value.c_str());
}

void Hdf5File::set_attribute(const std::string& name, int64_t value) {
  handle_->write_attribute(name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void Hdf5File::set_real_attribute(const std::string& name, double value) {
  handle_->write_attribute(name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

std::optional<std::string> Hdf5File::text_attribute(const std::string& name) const {
  const std::string found = handle_->ask("x", name);
  return found.empty() ? std::nullopt : std::optional(found.substr(1));
}

std::optional<int64_t> Hdf5File::int_attribute(const std::string& name) const {
  return handle_->number<int64_t>("i", name);
}

std::optional<double> Hdf5File::real_attribute(const std::string& name) const {
  return handle_->number<double>("d", name);
}
}  // namespace weft
