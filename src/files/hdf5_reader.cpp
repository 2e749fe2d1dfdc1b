// SPDX-License-Identifier: MIT
#include "src/files/hdf5_reader.h"

#include "src/config/names.h"
#include "src/files/descriptor.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft {
namespace {
std::optional<StoredType> type_in(hid_t set) {
  const Id type(H5Dget_type(set), H5Tclose);
  for (const TypeRow& row : types())
    if (H5Tequal(type, row.file) > 0 || H5Tequal(type, row.memory) > 0) return row.type;
  return std::nullopt;
}

// Every message is its length, then its bytes. False: the other process is gone.
bool send_message(int socket, const std::string& text) {
  const uint64_t size = text.size();
  return send_all(socket, &size, sizeof size) && send_all(socket, text.data(), text.size());
}

bool receive_message(int socket, std::string& text) {
  uint64_t size = 0;
  if (!receive_all(socket, &size, sizeof size)) return false;
  text.resize(size);
  return receive_all(socket, text.data(), size);
}

[[noreturn]] void answer_all(int socket, const AnswerProcess::Answer& answer, int64_t cpu_seconds) {
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(signal, SIG_DFL);
  const rlimit none{0, 0}, time{static_cast<rlim_t>(cpu_seconds), static_cast<rlim_t>(cpu_seconds)};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_CPU, &time);
  dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);  // last words of the C library
  for (std::string question; receive_message(socket, question);) {
    std::string reply;
    try {
      reply = "+" + answer(question);
    } catch (const std::bad_alloc&) {
      reply = "-out of memory";
    } catch (const std::exception& e) {
      reply = str("-", e.what());
    }
    if (!send_message(socket, reply)) break;
  }
  _exit(0);
}
}  // namespace

void StoredPlace::add_to(std::string& bytes) const {
  bytes += str(type, ' ', offset);
  for (const int64_t extent : shape) bytes += str(' ', extent);
  bytes += '\0';
}

StoredPlace StoredPlace::from(const std::string& bytes, std::size_t& at) {
  std::istringstream in(bytes.c_str() + at);
  StoredPlace place;
  if (!(in >> place.type >> place.offset)) fail("an answer about an HDF5 file that is too short");
  for (int64_t extent = 0; in >> extent;) place.shape.push_back(extent);
  at = std::min(bytes.find('\0', at), bytes.size() - 1) + 1;
  return place;
}

std::size_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

// By its number: the name may be another file's by now. (HDF5's default driver follows the link
// back.)
Hdf5Reader::Hdf5Reader(std::string path, int file, int64_t size)
    : path_(std::move(path)) {
  start_hdf5();
  const std::string opened = str("/proc/self/fd/", file);
  if (H5Fis_hdf5(opened.c_str()) <= 0)
    fail(path_, ": is not an HDF5 file (", size, " bytes of something else)");
  const Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_stdio(access);
  // files never change in place; some file systems have no locks
  H5Pset_file_locking(access, false, true);
  file_ = Id(H5Fopen(opened.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (file_.ok()) return;
  const std::string reason = library_error();
  if (reason.find("truncated") != std::string::npos)
    fail(path_, ": is truncated (", size, " bytes are left: ", reason, "); copy or make it again");
  fail(path_, ": is damaged or not readable as HDF5: ", reason);
}

std::string Hdf5Reader::answer(const std::string& question) const {
  const std::string name = question.substr(1);
  std::string bytes;
  switch (question[0]) {
    case 'h': return has(name) ? "+" : "";
    case 'l': return list(name);
    case 'p': place_of(name).add_to(bytes); return bytes;
    case 't': {
      const auto type = type_in(open_dataset(name));
      if (type) return {static_cast<char>(*type)};
      fail(path_, ": ", name, " has an element type that is not one of ",
           joined(types(), ", ", &TypeRow::name));
    }
    case 'r': return values_of(name.substr(1), static_cast<StoredType>(name[0]));
    case 'x': return text_attribute(name);
    case 'i': return number(name, H5T_INTEGER, "one integer", H5T_NATIVE_INT64);
    default: return number(name, H5T_FLOAT, "one real number", H5T_NATIVE_DOUBLE);
  }
}

void Hdf5Reader::library_failed(const std::string& what) const {
  fail(path_, ": ", what, ": ", library_error());
}

Id Hdf5Reader::open_dataset(const std::string& name) const {
  Id set(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!set.ok()) fail(path_, ": has no dataset ", name);
  const Id creation(H5Dget_create_plist(set), H5Pclose);
  if (H5Pget_external_count(creation) != 0 || H5Pget_layout(creation) == H5D_VIRTUAL)
    fail(path_, ": ", name, " lies in another file, expected its values in this one");
  return set;
}

bool Hdf5Reader::has(const std::string& object) const {
  // H5Lexists wants every group on the way to exist: ask for one after the other.
  for (std::size_t slash = object.find('/', 1);; slash = object.find('/', slash + 1)) {
    const std::string prefix = object.substr(0, slash);
    if (prefix != "/" && H5Lexists(file_, prefix.c_str(), H5P_DEFAULT) <= 0) return false;
    if (slash == std::string::npos)
      return H5Oexists_by_name(file_, object.c_str(), H5P_DEFAULT) > 0;
  }
}

std::string Hdf5Reader::list(const std::string& group) const {
  const Id root(H5Gopen2(file_, group.c_str(), H5P_DEFAULT), H5Gclose);
  if (!root.ok()) fail(path_, ": has no group ", group);
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5O_info_t* info, void* out) -> herr_t {
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  if (H5Ovisit(root, H5_INDEX_NAME, H5_ITER_INC, visit, &names) < 0)
    library_failed("cannot list " + group);
  std::ranges::sort(names);
  const std::string prefix =
      (group.starts_with('/') ? "" : "/") + group + (group.ends_with('/') ? "" : "/");
  std::string all;
  for (const std::string& name : names) {
    all += prefix + name + '\0';
    place_of(prefix + name).add_to(all);
  }
  return all;
}

StoredPlace Hdf5Reader::place_of(const std::string& dataset) const {
  const Id set = open_dataset(dataset), space(H5Dget_space(set), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(std::max(rank, 0));
  if (rank < 0 || H5Sget_simple_extent_dims(space, dims.data(), nullptr) < 0)
    library_failed(dataset + " has no readable shape");
  StoredPlace place{-1, -1, {dims.begin(), dims.end()}};
  const auto type = type_in(set);
  if (!type) return place;
  place.type = static_cast<int64_t>(*type);
  const haddr_t offset = H5Dget_offset(set);  // of contiguous data without filters
  const std::size_t bytes = elements_of(place.shape) * H5Tget_size(row_of(*type).memory);
  if (offset != HADDR_UNDEF && H5Dget_storage_size(set) == bytes)
    place.offset = static_cast<int64_t>(offset);
  return place;
}

// The values of a packed dataset are behind filters.
void Hdf5Reader::check_filters(const Id& set, const std::string& dataset) const {
  const Id creation(H5Dget_create_plist(set), H5Pclose);
  for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
    char name[64] = {};
    unsigned flags = 0;
    std::size_t arguments = 0;
    const H5Z_filter_t filter = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags,
                                               &arguments, nullptr, sizeof name, name, nullptr);
    if (filter >= 0 && H5Zfilter_avail(filter) <= 0)
      fail(path_, ": ", dataset, " is packed with the filter ", *name ? name : "without a name",
           " (number ", filter,
           "), which this HDF5 lacks; write it with gzip or unpacked, in h5py ",
           "f.create_dataset(..., compression=\"gzip\")");
  }
}

// HDF5 alone would clamp numbers that `row` does not hold.
std::string Hdf5Reader::whole_numbers(const Id& set, const std::string& dataset, const TypeRow& row,
                                      std::size_t count) const {
  const Id type(H5Dget_type(set), H5Tclose);
  const bool has_sign = H5Tget_sign(type) == H5T_SGN_2;
  std::vector<int64_t> wide(count);
  if (H5Tget_size(type) > sizeof wide[0])
    fail(path_, ": ", dataset, " holds whole numbers of ", H5Tget_size(type),
         " bytes, expected at most 8");
  if (count > 0 && H5Dread(set, has_sign ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL,
                           H5P_DEFAULT, wide.data()) < 0)
    library_failed(dataset + " cannot be read (a damaged file?)");
  const std::size_t item = H5Tget_size(row.memory);
  const bool to_sign = H5Tget_sign(row.memory) == H5T_SGN_2;
  const auto most = static_cast<int64_t>(~uint64_t{0} >> (64 - 8 * item + (to_sign ? 1 : 0)));
  const int64_t least = to_sign ? -most - 1 : 0;
  std::string values(count * item, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const bool above = !has_sign && wide[i] < 0;  // 2^63 and more
    if (above || wide[i] < least || wide[i] > most)
      fail(path_, ": ", dataset, ": element ", i, " is ",
           above ? str(static_cast<uint64_t>(wide[i])) : str(wide[i]), ", expected ", least, " to ",
           most);
    std::memcpy(&values[i * item], &wide[i], item);  // little-endian
  }
  return values;
}

std::string Hdf5Reader::values_of(const std::string& dataset, StoredType as) const {
  const Id set = open_dataset(dataset), type(H5Dget_type(set), H5Tclose);
  const TypeRow& row = row_of(as);
  if (H5Tget_class(type) != H5Tget_class(row.memory))
    fail(path_, ": ", dataset, " does not hold ", row.name, " or what converts to it");
  check_filters(set, dataset);
  const std::size_t count = elements_of(place_of(dataset).shape);
  if (H5Tget_class(type) == H5T_INTEGER && type_in(set) != as)
    return whole_numbers(set, dataset, row, count);
  std::string values(count * H5Tget_size(row.memory), '\0');
  if (!values.empty() && H5Dread(set, row.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
    library_failed(dataset + " cannot be read (a damaged file?)");
  return values;
}

// A single value of class `cls`; not ok() when there is none.
Id Hdf5Reader::open_attribute(const std::string& name, H5T_class_t cls, const char* wanted) const {
  if (H5Aexists(file_, name.c_str()) <= 0) return {};
  Id a(H5Aopen(file_, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!a.ok()) library_failed("attribute " + name + " cannot be opened");
  const Id type(H5Aget_type(a), H5Tclose), space(H5Aget_space(a), H5Sclose);
  if (H5Tget_class(type) != cls || H5Sget_simple_extent_npoints(space) != 1)
    fail(path_, ": attribute ", name, " should be ", wanted);
  return a;
}

std::string Hdf5Reader::text_attribute(const std::string& name) const {
  const Id a = open_attribute(name, H5T_STRING, "one text");
  if (!a.ok()) return "";
  const Id type(H5Aget_type(a), H5Tclose);
  const bool variable = H5Tis_variable_str(type) > 0;
  const Id memory(H5Tcopy(variable ? hid_t{H5T_C_S1} : hid_t{type}), H5Tclose);
  if (variable) H5Tset_size(memory, H5T_VARIABLE), H5Tset_cset(memory, H5Tget_cset(type));
  char* text = nullptr;
  std::string fixed(H5Tget_size(type), '\0');
  if (H5Aread(a, memory, variable ? static_cast<void*>(&text) : fixed.data()) < 0)
    library_failed("attribute " + name + " cannot be read");
  if (!variable) return "+" + fixed.substr(0, fixed.find('\0'));
  const std::string result = text ? text : "";
  H5free_memory(text);
  return "+" + result;
}

std::string Hdf5Reader::number(const std::string& name, H5T_class_t cls, const char* wanted,
                               hid_t type) const {
  const Id a = open_attribute(name, cls, wanted);
  if (!a.ok()) return "";
  const Id stored(H5Aget_type(a), H5Tclose);
  const bool no_sign = cls == H5T_INTEGER && H5Tget_sign(stored) == H5T_SGN_NONE;
  std::string value(8, '\0');  // an int64_t or a double
  if (H5Aread(a, no_sign ? H5T_NATIVE_UINT64 : type, value.data()) < 0)
    library_failed("attribute " + name + " cannot be read");
  if (no_sign && value.back() < 0)
    fail(path_, ": attribute ", name, " is 2^63 or more, expected a number below it");
  return "+" + value;
}

AnswerProcess::AnswerProcess(const Answer& answer, int64_t cpu_seconds) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail("no socket for a new process: ", std::strerror(errno));
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    answer_all(ends[1], answer, cpu_seconds);
  }
  const int error = errno;
  close(ends[1]);
  socket_ = Descriptor(ends[0]);
  if (child_ < 0) fail("no new process: ", std::strerror(error));
}

AnswerProcess::~AnswerProcess() {
  socket_.close();
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  uninterrupted([&] { return waitpid(child_, nullptr, 0); });
}

std::string AnswerProcess::ask(const std::string& name, const std::string& question) {
  std::string reply;
  if (child_ > 0 && send_message(socket_.get(), question) &&
      receive_message(socket_.get(), reply)) {
    if (reply[0] == '-') fail(reply.substr(1));
    return reply.substr(1);
  }
  int status = 0;
  shutdown(socket_.get(), SHUT_RDWR);  // so that a child that still waits ends, too
  if (child_ > 0) uninterrupted([&] { return waitpid(child_, &status, 0); });
  child_ = -1;
  const char* how = !WIFSIGNALED(status)          ? "ended"
                    : WTERMSIG(status) == SIGKILL ? "took too long or was killed"
                    : WTERMSIG(status) == SIGXCPU ? "took too long"
                                                  : strsignal(WTERMSIG(status));
  fail(name, ": is damaged, or memory is out (the process that read it: ", how, ")");
}
}  // namespace weft
