// SPDX-License-Identifier: MIT
#include "train/ranks/ranks.h"

#include "src/files/hash.h"
#include "train/program/program.h"
#include "train/trainer/update_watch.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <elf.h>
#include <exception>
#include <functional>
#include <link.h>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace weft {
namespace {
// Adds the linker's build ID, the note that names what was linked.
void add_build_id(const dl_phdr_info& object, Hash& hash) {
  const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(object.dlpi_addr + header.p_vaddr);
    for (const char* end = at + header.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char *name = at + sizeof note, *value = name + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID &&
          std::string_view(name, note.n_namesz).starts_with("GNU"))
        hash.add(std::string_view(value, note.n_descsz));
      at = value + padded(note.n_descsz);
    }
  }
}

std::string short_hash(const std::string& text) {
  Hash hash;
  hash.add(text);
  return hash.text().substr(0, 8);
}

// The text of `config`, or that of its error, which `error` then holds.
std::string text_or_error(const std::function<std::string()>& config, std::string& error) {
  try {
    return rank_identity(config());
  } catch (const std::exception& e) {
    return error = e.what();
  }
}

// Rank 0 reports what all ranks have. It may start late, and a launcher may end all when one
// leaves.
[[noreturn]] void leave_it_to_rank_0() {
  std::this_thread::sleep_for(std::chrono::seconds(2));
  throw SaidElsewhere();
}

World own_world() {
  try {
    return world_from_environment();
  } catch (const ErrorOfAllRanks& error) {
    if (error.rank != 0) leave_it_to_rank_0();
    throw;
  }
}

[[noreturn]] void fail_as_rank(ProcessGroup& group, const std::string& what,
                               const std::string& line) {
  group.fail(what, group.rank() == 0 ? line : "");
  throw SaidElsewhere();
}

void work_as_rank(const World& world, const std::function<std::string()>& config,
                  const std::function<void(ProcessGroup&)>& work) {
  std::string error;
  const std::string identity = text_or_error(config, error);
  ProcessGroup group(world, identity);
  if (!error.empty()) fail_as_rank(group, error, error);  // all ranks have the same
  try {
    group.watch(hang_limit());
    start_threads();
    work(group);
  } catch (const std::bad_alloc&) {
    const std::string what = out_of_memory();
    fail_as_rank(group, what, what);
  } catch (const std::exception& e) {
    fail_as_rank(group, e.what(), "rank 0: " + std::string(e.what()));
  }
}
}  // namespace

std::string build_id() {
  Hash hash;
  const auto of_object = [](dl_phdr_info* object, std::size_t, void* all) {
    const std::string path = object->dlpi_name;  // "": the program
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name.empty() || name.starts_with("libweft"))
      add_build_id(*object, *static_cast<Hash*>(all));
    return 0;
  };
  dl_iterate_phdr(of_object, &hash);
  return hash.text().substr(0, 8);
}

std::string rank_identity(const std::string& config) {
  constexpr std::size_t kLongest = 1 << 17;
  const auto text_or_hash = [](const char* what, const std::string& text) {
    return text.size() <= kLongest ? text : str(what, " of hash ", short_hash(text));
  };
  std::string options;  // with their values, a line each
  const std::vector<std::string> words = command_line();
  for (std::size_t i = 1; i < words.size(); ++i)
    options += (words[i].starts_with('-') ? '\n' : ' ') + words[i];
  return str("weft ", WEFT_VERSION, "\nbuild ", build_id(), '\n',
             text_or_hash("command line", options), '\n', text_or_hash("config", config));
}

void with_ranks(const RankOptions& options, const std::function<std::string()>& config,
                const std::function<void(ProcessGroup&)>& work) {
  const World world = own_world();
  const bool started_here = world.source == "--gpus";
  if (options.gpus > 0 && !started_here) {
    if (world.rank > 0) leave_it_to_rank_0();
    if (world.size > 1)
      fail("--gpus starts the processes itself; here ", world.source, " has started ", world.size,
           " of them: leave it out");
    if (options.gpus > 1) {
      // so that what is wrong with this or the config is said before anything is started
      hang_limit();
      config();
      return launch_ranks(options.gpus, options.device);
    }
  }
  if (world.size > 1) return work_as_rank(world, config, work);
  hang_limit();
  config();
  ProcessGroup alone(world, "");
  start_threads();
  work(alone);
}

void fail_before_work(const std::string& what) {
  const World world = own_world();
  if (world.size == 1) fail(what);
  ProcessGroup group(world, what);
  fail_as_rank(group, what, what);
}

bool started_by_others() {
  const World world = own_world();
  return world.size > 1 && world.source != "--gpus";
}

bool is_first_process() {
  try {
    return own_world().rank == 0;
  } catch (const SaidElsewhere&) {
    return false;
  } catch (const Error&) {
    return true;
  }
}

void print_rank_lines(Processes& group, Progress& progress, const std::string& text) {
  const std::vector<std::string> lines = group.all_gather(text);
  for (std::size_t rank = 0; group.rank() == 0 && rank < lines.size(); ++rank)
    progress.line(str("rank ", rank, "  ", lines[rank]));
}

std::chrono::seconds hang_limit() { return hang_seconds().value_or(std::chrono::seconds(45)); }
}  // namespace weft
