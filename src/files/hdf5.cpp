// SPDX-License-Identifier: MIT
// Hdf5File over the C API of HDF5 1.10. HDF5 writes to memory, for a write that fails breaks its state.
#include "src/files/hdf5.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "kernels/view.h"
#include "src/files/answer_process.h"
#include "src/files/files.h"
#include "src/files/hdf5_library.h"
#include "src/files/seal.h"

namespace weft {
namespace {

template <class T>
std::string bytes_of(const T* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}
template <class T>
T value_in(const std::string& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

std::size_t elements_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

}  // namespace

const char* name_of(StoredType type) { return row_of(type).name; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string s;
  for (const std::int64_t n : shape) s += (s.empty() ? "" : ", ") + std::to_string(n);
  return "(" + s + ")";
}

struct Hdf5File::Handle {
  std::string path;
  std::unique_ptr<NewFile> made;  // by create(), until commit()
  Id file;
  std::unique_ptr<AnswerProcess> apart;  // reads a file without a seal

  std::string ask(const char* what, const std::string& name) const { return apart->ask(path, what + name); }
  [[noreturn]] void library_failed(const std::string& what) const {
    fail(str(path, ": ", what, ": ", library_error()));
  }
  Id open_dataset(const std::string& name) const {
    Id set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
    if (!set.ok()) fail(str(path, ": has no dataset ", name));
    const Id creation(H5Dget_create_plist(set), H5Pclose);
    if (H5Pget_external_count(creation) != 0 || H5Pget_layout(creation) == H5D_VIRTUAL)
      fail(str(path, ": ", name, " lies in another file, expected its values in this one"));
    return set;
  }
  // A single value of class `cls`; not ok() when there is none.
  Id open_attribute(const std::string& name, H5T_class_t cls, const char* wanted) const {
    if (H5Aexists(file, name.c_str()) <= 0) return {};
    Id a(H5Aopen(file, name.c_str(), H5P_DEFAULT), H5Aclose);
    if (!a.ok()) library_failed("attribute " + name + " cannot be opened");
    const Id type(H5Aget_type(a), H5Tclose), space(H5Aget_space(a), H5Sclose);
    if (H5Tget_class(type) != cls || H5Sget_simple_extent_npoints(space) != 1)
      fail(str(path, ": attribute ", name, " should be ", wanted));
    return a;
  }
  void read_attribute(hid_t a, const std::string& name, hid_t memory_type, void* value) const {
    if (H5Aread(a, memory_type, value) < 0) library_failed("attribute " + name + " cannot be read");
  }
  void write_attribute(const std::string& name, hid_t file_type, hid_t memory_type, const void* value) {
    if (H5Aexists(file, name.c_str()) > 0) H5Adelete(file, name.c_str());
    const Id space(H5Screate(H5S_SCALAR), H5Sclose);
    const Id a(H5Acreate2(file, name.c_str(), file_type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    if (!a.ok() || H5Awrite(a, memory_type, value) < 0)
      library_failed("attribute " + name + " cannot be written");
  }
  template <class T>
  std::optional<T> number(const std::string& name, H5T_class_t cls, const char* wanted, hid_t type) const {
    if (apart) {
      const std::string found = ask(cls == H5T_INTEGER ? "i" : "d", name);
      return found.empty() ? std::nullopt : std::optional(value_in<T>(found.substr(1)));
    }
    T value{};
    const Id a = open_attribute(name, cls, wanted);
    if (!a.ok()) return std::nullopt;
    read_attribute(a, name, type, &value);
    return value;
  }
};

Hdf5File::Hdf5File() : handle_(std::make_unique<Handle>()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);                               // prints nothing by itself
  static const herr_t no_external_links = H5Lunregister(H5L_TYPE_EXTERNAL);  // a file reads no other file
  (void)no_external_links;
}
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;
Hdf5File::~Hdf5File() = default;

Hdf5File Hdf5File::open(const std::string& path) {
  struct stat info {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // a FIFO does not wait
  if (fd < 0) fail(str(path, ": cannot be opened: ", std::strerror(errno)));
  struct Closing {
    int fd;
    ~Closing() { ::close(fd); }
  } closing{fd};
  ::fstat(fd, &info);
  if (S_ISDIR(info.st_mode)) fail(str(path, ": is a folder, expected an HDF5 file"));
  if (!S_ISREG(info.st_mode)) fail(str(path, ": is not a regular file, expected an HDF5 file"));
  if (info.st_size == 0) fail(str(path, ": is empty, expected an HDF5 file"));
  if (check_seal(path, fd)) return open_here(path, info.st_size);
  // Damage can crash HDF5: what no seal vouches for is read by another process.
  Hdf5File f;
  f.handle_->path = path;
  std::optional<Hdf5File> read;
  const auto answer = [&](const std::string& question) {
    if (!read) read.emplace(open_here(path, info.st_size));
    return read->answer(question);
  };
  f.handle_->apart = std::make_unique<AnswerProcess>(answer, 20 + info.st_size / 1'000'000);
  f.handle_->ask("h", "/");
  return f;
}

Hdf5File Hdf5File::open_here(const std::string& path, std::int64_t size) {
  Hdf5File f;
  f.handle_->path = path;
  if (H5Fis_hdf5(path.c_str()) <= 0)
    fail(str(path, ": is not an HDF5 file (", size, " bytes of something else)"));
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, false, true);  // files never change in place; some file systems have no locks
  f.handle_->file = Id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (!f.handle_->file.ok()) {
    const std::string reason = library_error();
    if (reason.find("truncated") != std::string::npos)
      fail(str(path, ": is truncated (", size, " bytes are left: ", reason, "); copy or make it again"));
    fail(str(path, ": is damaged or not readable as HDF5: ", reason));
  }
  return f;
}

// Questions are a letter and a name; `r` has the type before the name.
std::string Hdf5File::answer(const std::string& question) const {
  const std::string name = question.substr(1);
  const auto found = [](const auto& value) { return value ? "+" + bytes_of(&*value, 1) : ""; };
  switch (question[0]) {
    case 'h': return has(name) ? "+" : "";
    case 'l': {
      std::string all;
      for (const std::string& path : list(name)) all += path + '\0';
      return all;
    }
    case 't': {
      const StoredType type = type_of(name);
      return bytes_of(&type, 1);
    }
    case 's': {
      const auto shape = shape_of(name);
      return bytes_of(shape.data(), shape.size());
    }
    case 'r': {
      const auto as = static_cast<StoredType>(name[0]);
      const auto shape = shape_of(name.substr(1));
      std::string values(H5Tget_size(row_of(as).memory) * elements_of(shape), '\0');
      read(name.substr(1), as, shape, values.data());
      return values;
    }
    case 'x': {
      const auto text = text_attribute(name);
      return text ? "+" + *text : "";
    }
    case 'i': return found(int_attribute(name));
    default: return found(real_attribute(name));
  }
}

Hdf5File Hdf5File::create(const std::string& path) {
  Hdf5File f;
  Handle& h = *f.handle_;
  h.path = path;
  h.made = std::make_unique<NewFile>(path);
  const Id creation = creation_list(H5P_FILE_CREATE), access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_userblock(creation, kSealBlock);
  H5Pset_fapl_core(access, std::size_t{16} << 20, false);
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
  h.file = Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose);
  if (!h.file.ok()) h.library_failed("cannot be created");
  return f;
}

void Hdf5File::commit() {
  Handle& h = *handle_;
  WEFT_CHECK(h.made, h.path, ": commit() belongs to a file that create() made, once");
  void* memory = nullptr;
  ssize_t size = -1;
  if (H5Fflush(h.file, H5F_SCOPE_GLOBAL) < 0 || (size = H5Fget_file_image(h.file, nullptr, 0)) <= 0 ||
      H5Fget_vfd_handle(h.file, H5P_DEFAULT, &memory) < 0)
    h.library_failed("cannot be completed in memory");
  // The size of an image does not count the user block.
  char* const image = *static_cast<char**>(memory);
  write_seal(image, kSealBlock + static_cast<std::size_t>(size));
  h.made->write(image, kSealBlock + static_cast<std::size_t>(size));
  h.file = Id();
  h.made->commit();
  h.made.reset();
}

const std::string& Hdf5File::path() const { return handle_->path; }

bool Hdf5File::has(const std::string& object) const {
  if (handle_->apart) return !handle_->ask("h", object).empty();
  // H5Lexists wants every group on the way to exist: ask for one after the other.
  for (std::size_t slash = object.find('/', 1);; slash = object.find('/', slash + 1)) {
    const std::string prefix = object.substr(0, slash);
    if (prefix != "/" && H5Lexists(handle_->file, prefix.c_str(), H5P_DEFAULT) <= 0) return false;
    if (slash == std::string::npos) return H5Oexists_by_name(handle_->file, object.c_str(), H5P_DEFAULT) > 0;
  }
}

std::vector<std::string> Hdf5File::list(const std::string& group) const {
  if (handle_->apart) {
    std::istringstream all(handle_->ask("l", group));
    std::vector<std::string> paths;
    for (std::string path; std::getline(all, path, '\0');) paths.push_back(path);
    return paths;
  }
  const Id root(H5Gopen2(handle_->file, group.c_str(), H5P_DEFAULT), H5Gclose);
  if (!root.ok()) fail(str(path(), ": has no group ", group));
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5O_info_t* info, void* out) -> herr_t {
    if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  if (H5Ovisit(root, H5_INDEX_NAME, H5_ITER_INC, visit, &names) < 0)
    handle_->library_failed("cannot list " + group);
  const std::string prefix = (group.starts_with('/') ? "" : "/") + group + (group.ends_with('/') ? "" : "/");
  for (std::string& name : names) name = prefix + name;
  std::sort(names.begin(), names.end());
  return names;
}

StoredType Hdf5File::type_of(const std::string& dataset) const {
  if (handle_->apart) return value_in<StoredType>(handle_->ask("t", dataset));
  const Id set = handle_->open_dataset(dataset);
  const Id type(H5Dget_type(set), H5Tclose);
  std::string known;
  for (const TypeRow& row : types()) {
    if (H5Tequal(type, row.file) > 0 || H5Tequal(type, row.memory) > 0) return row.type;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail(str(path(), ": ", dataset, " has an element type that is not one of ", known));
}

std::vector<std::int64_t> Hdf5File::shape_of(const std::string& dataset) const {
  if (handle_->apart) {
    const std::string bytes = handle_->ask("s", dataset);
    std::vector<std::int64_t> shape(bytes.size() / sizeof(std::int64_t));
    std::memcpy(shape.data(), bytes.data(), bytes.size());
    return shape;
  }
  const Id set = handle_->open_dataset(dataset);
  const Id space(H5Dget_space(set), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(static_cast<std::size_t>(std::max(rank, 0)));
  if (rank < 0 || H5Sget_simple_extent_dims(space, dims.data(), nullptr) < 0)
    handle_->library_failed(dataset + " has no readable shape");
  return {dims.begin(), dims.end()};
}

void Hdf5File::write(const std::string& dataset, StoredType type, const std::vector<std::int64_t>& shape,
                     const void* data) {
  const Handle& h = *handle_;
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  const Id creation = creation_list(H5P_DATASET_CREATE);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  const TypeRow& row = row_of(type);
  // Groups on the way are made one by one: those that HDF5 makes by itself carry the time.
  for (std::size_t slash = dataset.find('/', 1); slash != std::string::npos;
       slash = dataset.find('/', slash + 1)) {
    const std::string group = dataset.substr(0, slash);
    if (H5Lexists(h.file, group.c_str(), H5P_DEFAULT) > 0) continue;
    const Id made(
        H5Gcreate2(h.file, group.c_str(), H5P_DEFAULT, creation_list(H5P_GROUP_CREATE), H5P_DEFAULT),
        H5Gclose);
    if (!made.ok()) h.library_failed("group " + group + " cannot be made");
  }
  const Id set(H5Dcreate2(h.file, dataset.c_str(), row.file, space, H5P_DEFAULT, creation, H5P_DEFAULT),
               H5Dclose);
  if (!set.ok() || H5Dwrite(set, row.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    h.library_failed("dataset " + dataset + " " + shape_text(shape) + " cannot be written");
}

void Hdf5File::read(const std::string& dataset, StoredType as, const std::vector<std::int64_t>& shape,
                    void* data) const {
  const auto stored = shape_of(dataset);
  if (stored != shape)
    fail(str(path(), ": ", dataset, " has shape ", shape_text(stored), ", expected ", shape_text(shape)));
  const TypeRow& row = row_of(as);
  if (handle_->apart) {
    const std::string values = handle_->ask("r", static_cast<char>(as) + dataset);
    if (values.size() != H5Tget_size(row.memory) * elements_of(shape))
      fail(str(path(), ": ", dataset, " changes while it is read"));
    if (!values.empty()) std::memcpy(data, values.data(), values.size());
    return;
  }
  const Id set = handle_->open_dataset(dataset);
  const Id type(H5Dget_type(set), H5Tclose);
  if (H5Tget_class(type) != H5Tget_class(row.memory))
    fail(str(path(), ": ", dataset, " does not hold ", row.name, " or what converts to it"));
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (!empty && H5Dread(set, row.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    handle_->library_failed(dataset + " cannot be read (a damaged file?)");
}

void Hdf5File::set_attribute(const std::string& name, const std::string& value) {
  // Fixed length lies in checksummed blocks; damage in the heaps of variable length can hang the library.
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, std::max<std::size_t>(value.size(), 1));
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  handle_->write_attribute(name, type, type, value.c_str());
}
void Hdf5File::set_attribute(const std::string& name, std::int64_t value) {
  handle_->write_attribute(name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}
void Hdf5File::set_real_attribute(const std::string& name, double value) {
  handle_->write_attribute(name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

std::optional<std::string> Hdf5File::text_attribute(const std::string& name) const {
  if (handle_->apart) {
    const std::string text = handle_->ask("x", name);
    return text.empty() ? std::nullopt : std::optional(text.substr(1));
  }
  const Id a = handle_->open_attribute(name, H5T_STRING, "one text");
  if (!a.ok()) return std::nullopt;
  const Id type(H5Aget_type(a), H5Tclose);
  if (H5Tis_variable_str(type) > 0) {
    const Id memory(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(memory, H5T_VARIABLE);
    H5Tset_cset(memory, H5Tget_cset(type));
    char* text = nullptr;
    handle_->read_attribute(a, name, memory, &text);
    std::string result = text ? text : "";
    H5free_memory(text);
    return result;
  }
  std::string result(H5Tget_size(type), '\0');
  handle_->read_attribute(a, name, type, result.data());
  return result.substr(0, result.find('\0'));
}
std::optional<std::int64_t> Hdf5File::int_attribute(const std::string& name) const {
  return handle_->number<std::int64_t>(name, H5T_INTEGER, "one integer", H5T_NATIVE_INT64);
}
std::optional<double> Hdf5File::real_attribute(const std::string& name) const {
  return handle_->number<double>(name, H5T_FLOAT, "one real number", H5T_NATIVE_DOUBLE);
}

}  // namespace weft
