// SPDX-License-Identifier: MIT
#include "train/inspect/check_options.h"

#include "data/prepare/raw_file.h"
#include "kernels/attention/attention.h"
#include "src/config/names.h"
#include "src/files/overwrites.h"
#include "train/inspect/arch.h"
#include "train/inspect/report.h"

#include <filesystem>
#include <string_view>
#include <system_error>

namespace fs = std::filesystem;

namespace weft {
namespace {
// What inspect looks at: exactly one of these is given.
struct Source {
  const char *option, *usage;
  bool given;
};

// An option that only some sources read.
struct SourceOption {
  const char* option;
  bool given;
  std::vector<const Source*> sources;
};

void check_source(const InspectOptions& o) {
  const Source config = {"--config", "--config FILE", !o.config.empty()};
  const Source attention = {"--attention", "--attention PATTERN", !o.attention.empty()};
  const Source checkpoint = {"--checkpoint", "--checkpoint RUN --pattern LAYER,HEAD",
                             !o.checkpoint.empty()};
  if (config.given + attention.given + checkpoint.given != 1)
    fail(
        "inspect looks at --config FILE, or at a pattern alone: --attention '{kind: local, stride: "
        "128}', or at a text: --checkpoint RUN --pattern LAYER,HEAD --text FILE; give one of them");
  const char* const source = config.given      ? config.option
                             : attention.given ? attention.option
                                               : checkpoint.option;
  const SourceOption options[] = {{"--set", !o.overrides.empty(), {&config}},
                                  {"--heads", o.heads.has_value(), {&attention}},
                                  {"--head-size", o.head_size.has_value(), {&attention}},
                                  {"--keys", o.keys.has_value(), {&config, &attention}},
                                  {"--text", !o.text.empty(), {&checkpoint}}};
  for (const SourceOption& x : options) {
    bool fits = !x.given;
    for (const Source* of : x.sources) fits |= of->given;
    if (!fits)
      fail(x.option, " goes with ", joined(x.sources, " or ", &Source::usage), ", got it with ",
           source);
  }
  if (checkpoint.given && (o.pattern.empty() || o.text.empty()))
    fail("--checkpoint draws what a head saw: add --pattern LAYER,HEAD and --text FILE");
}

// Options that belong to an output that is not asked for.
void check_outputs(const InspectOptions& o) {
  if (!o.arch.empty()) {
    capability_of(o.arch);
    if (const auto [name, text] = chosen_head(o); !text.empty())
      fail(name, " and --arch are two outputs: give one");
    if (draws(o)) fail("--png, --mask-out, --position, --columns and --grid do not go with --arch");
  } else if (o.batch) {
    fail("--batch goes with --arch");
  }
  if (o.batch.value_or(1) < 1 || o.batch.value_or(1) > 1 << 20)
    fail("--batch must be between 1 and ", 1 << 20, ", got ", *o.batch);
  if (o.query && o.explain.empty()) fail("--query goes with --explain LAYER,HEAD");
  const bool of_tiles = !o.tiles.empty() || !o.explain.empty();
  if (!of_tiles) {
    if (o.edge) fail("--edge goes with --tiles or --explain LAYER,HEAD");
    return;
  }
  if (!o.mask_out.empty() || o.position || o.columns || !o.grid.empty())
    fail("--mask-out, --position, --columns and --grid go with --pattern LAYER,HEAD");
  if (!o.explain.empty() && !o.png.empty()) fail("--png goes with --tiles or --pattern LAYER,HEAD");
  if (o.edge.value_or(kTile) != kTile && *o.edge != kSmallTile)
    fail("--edge must be ", kTile, " or ", kSmallTile, ", got ", *o.edge);
}

// A file to write, and how one of its kind begins.
struct Written {
  const char* option;
  const std::string& path;
  const char* kind;
  bool (*is_kind)(std::string_view beginning);
};

bool is_png(std::string_view beginning) { return beginning.starts_with("\x89PNG\r\n\x1a\n"); }

bool is_mask(std::string_view beginning) {
  return beginning.starts_with("\x93NUMPY") &&
         beginning.find("'descr': '|b1'") != std::string_view::npos;
}

// Whether writing there replaces what the file holds. /dev/stdout and the like are added to.
bool is_replaced(const std::string& path) {
  for (const char* const open : {"/proc/", "/dev/fd/", "/dev/std"})
    if (path.starts_with(open)) return false;
  std::error_code none;
  return fs::is_regular_file(path, none) && fs::file_size(path, none) > 0;
}
}  // namespace

bool draws(const InspectOptions& o) {
  return !o.png.empty() || !o.mask_out.empty() || o.position || o.columns || !o.grid.empty();
}

std::pair<const char*, std::string> chosen_head(const InspectOptions& o) {
  std::pair<const char*, std::string> chosen = {"--pattern", ""};
  for (const auto& [name, text] : {std::pair<const char*, std::string>{"--pattern", o.pattern},
                                   {"--tiles", o.tiles},
                                   {"--explain", o.explain}}) {
    if (text.empty()) continue;
    if (!chosen.second.empty()) fail(chosen.first, " and ", name, " are two outputs: give one");
    chosen = {name, text};
  }
  return chosen;
}

void check_options(const InspectOptions& o) {
  check_outputs(o);
  check_source(o);
}

void check_written(const InspectOptions& o, const std::vector<std::string>& read) {
  check_overwrites({{"--png", o.png}, {"--mask-out", o.mask_out}}, read);
  for (const Written& out : {Written{"--png", o.png, "PNG file", is_png},
                             Written{"--mask-out", o.mask_out, ".npy file of booleans", is_mask}})
    if (!out.path.empty() && is_replaced(out.path) && !out.is_kind(file_beginning(out.path)))
      fail(out.option, ": expected a new name, or a ", out.kind, " to replace; ", out.path,
           " is another file, which would be lost. Choose another name");
}
}  // namespace weft
