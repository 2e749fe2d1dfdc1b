// SPDX-License-Identifier: MIT
// Hdf5File over the C API of HDF5 1.10. HDF5 writes to memory, for a write that fails breaks its state.
#include "src/files/hdf5.h"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "kernels/view.h"
#include "src/files/files.h"
#include "src/files/hash.h"

namespace weft {
namespace {

// An HDF5 identifier and the call that gives it back.
class Id {
 public:
  Id() = default;
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Id(Id&& o) noexcept : id_(std::exchange(o.id_, -1)), close_(o.close_) {}
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
const std::vector<TypeRow>& types() {
  static const std::vector<TypeRow> rows = {{StoredType::u8, "uint8", H5T_STD_U8LE, H5T_NATIVE_UINT8},
                                            {StoredType::u16, "uint16", H5T_STD_U16LE, H5T_NATIVE_UINT16},
                                            {StoredType::i32, "int32", H5T_STD_I32LE, H5T_NATIVE_INT32},
                                            {StoredType::i64, "int64", H5T_STD_I64LE, H5T_NATIVE_INT64},
                                            {StoredType::f32, "float32", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT},
                                            {StoredType::f64, "float64", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}};
  return rows;
}
const TypeRow& row_of(StoredType type) { return types()[static_cast<std::size_t>(type)]; }

// The innermost message on HDF5's error stack: the nearest it has to a reason.
std::string library_error() {
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

// Object headers without times, so that equal data makes equal bytes; `cls` is a creation property class.
Id creation_list(hid_t cls) {
  Id list(H5Pcreate(cls), H5Pclose);
  H5Pset_obj_track_times(list, false);
  return list;
}

// The user block of a file of ours, which HDF5 skips: this text, then the length and the hash of what
// follows.
constexpr std::size_t kUserBlock = 512;
constexpr char kMagic[] = "weft: length and hash of what follows\n";
struct Seal {
  char magic[40];
  std::uint64_t size, hash;
};
static_assert(sizeof kMagic <= sizeof Seal::magic && sizeof(Seal) == 56);

Seal seal_of(std::size_t size, const FastHash& hash) {
  Seal seal{{}, size, hash.value()};
  std::memcpy(seal.magic, kMagic, sizeof kMagic);
  return seal;
}

// Before HDF5, which damage can crash, parses a byte. Files without a seal are older or not ours. Read in
// pieces: a file that shrinks meanwhile is an error, where mapped memory would end the process.
void check_seal(const std::string& path, int fd, const struct stat& info) {
  // A process checks a large file once, although it opens it for each split.
  constexpr std::int64_t kLarge = 1 << 20;
  using Version = std::array<std::int64_t, 5>;
  static std::mutex mutex;
  static std::set<Version> whole;
  const Version version{static_cast<std::int64_t>(info.st_dev), static_cast<std::int64_t>(info.st_ino),
                        info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  const std::lock_guard lock(mutex);
  if (whole.contains(version)) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  std::vector<char> piece(std::size_t{1} << 20);
  const auto read_at = [&](std::size_t at, std::size_t wanted) {
    const ssize_t got =
        uninterrupted([&] { return ::pread(fd, piece.data(), wanted, static_cast<off_t>(at)); });
    if (got < 0) fail(str(path, ": cannot be read: ", std::strerror(errno)));
    return static_cast<std::size_t>(got);
  };
  Seal seal{};
  if (read_at(0, kUserBlock) < kUserBlock) return;
  std::memcpy(&seal, piece.data(), sizeof seal);
  if (std::memcmp(seal.magic, kMagic, sizeof kMagic) != 0) return;
  FastHash hash;
  std::size_t at = kUserBlock;
  for (std::size_t wanted; (wanted = std::min(piece.size(), size - at)) > 0; at += wanted) {
    if (seal.size != size - kUserBlock || read_at(at, wanted) != wanted)
      fail(str(path, ": is truncated (", size, " bytes are left, expected ", seal.size + kUserBlock,
               ") or damaged; copy or make it again"));
    hash.add(piece.data(), wanted);
  }
  if (hash.value() != seal.hash || seal.size != size - kUserBlock)
    fail(str(path, ": is damaged (its hash is not that of its bytes); copy or make it again"));
  if (info.st_size >= kLarge) whole.insert(version);
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
  Hdf5File f;
  f.handle_->path = path;
  struct stat info {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);  // a FIFO does not wait
  if (fd < 0) fail(str(path, ": cannot be opened: ", std::strerror(errno)));
  struct Closing {
    int fd;
    ~Closing() { ::close(fd); }
  } closing{fd};
  ::fstat(fd, &info);
  if (S_ISDIR(info.st_mode)) fail(str(path, ": is a folder, expected an HDF5 file"));
  if (!S_ISREG(info.st_mode)) fail(str(path, ": is not a regular file, expected an HDF5 file"));
  if (info.st_size == 0) fail(str(path, ": is empty, expected an HDF5 file"));
  check_seal(path, fd, info);
  if (H5Fis_hdf5(path.c_str()) <= 0)
    fail(str(path, ": is not an HDF5 file (", info.st_size, " bytes of something else)"));
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, false, true);  // files never change in place; some file systems have no locks
  f.handle_->file = Id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (!f.handle_->file.ok()) {
    const std::string reason = library_error();
    if (reason.find("truncated") != std::string::npos)
      fail(str(path, ": is truncated (", info.st_size, " bytes are left: ", reason,
               "); copy or make it again"));
    fail(str(path, ": is damaged or not readable as HDF5: ", reason));
  }
  return f;
}

Hdf5File Hdf5File::create(const std::string& path) {
  Hdf5File f;
  Handle& h = *f.handle_;
  h.path = path;
  h.made = std::make_unique<NewFile>(path);
  const Id creation = creation_list(H5P_FILE_CREATE), access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_userblock(creation, kUserBlock);
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
  FastHash hash;
  hash.add(image + kUserBlock, static_cast<std::size_t>(size));
  const Seal seal = seal_of(static_cast<std::size_t>(size), hash);
  std::memcpy(image, &seal, sizeof seal);
  h.made->write(image, kUserBlock + static_cast<std::size_t>(size));
  h.file = Id();
  h.made->commit();
  h.made.reset();
}

const std::string& Hdf5File::path() const { return handle_->path; }

bool Hdf5File::has(const std::string& object) const {
  // H5Lexists wants every group on the way to exist: ask for one after the other.
  for (std::size_t slash = object.find('/', 1);; slash = object.find('/', slash + 1)) {
    const std::string prefix = object.substr(0, slash);
    if (prefix != "/" && H5Lexists(handle_->file, prefix.c_str(), H5P_DEFAULT) <= 0) return false;
    if (slash == std::string::npos) return H5Oexists_by_name(handle_->file, object.c_str(), H5P_DEFAULT) > 0;
  }
}

std::vector<std::string> Hdf5File::list(const std::string& group) const {
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
  const Id set = handle_->open_dataset(dataset);
  const Id type(H5Dget_type(set), H5Tclose);
  const TypeRow& row = row_of(as);
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
