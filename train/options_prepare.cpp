// SPDX-License-Identifier: MIT
// The command line of `prepare`, and its work.
#include <CLI/CLI.hpp>

#include "train/options.h"

namespace weft {
namespace {

CLI::Option* add_out(CLI::App* command, std::string& out) {
  return command->add_option("--out", out, "HDF5 file to write");
}

void add_split(CLI::App* command, std::vector<double>& split) {
  command->add_option("--split", split, "shares of train, valid and test")
      ->delimiter(',')
      ->capture_default_str();
}

void add_streams(CLI::App& app, PrepareArguments& a) {
  CLI::App* text = app.add_subcommand("text", "Files as one stream of bytes, vocabulary 256");
  text->add_option("FILE", a.text.files, "joined in this order")->required();
  add_out(text, a.text.out)->required();
  add_split(text, a.text.split);
  text->footer("Example:\n  prepare text a.txt b.txt --out text.h5 --split 0.9,0.05,0.05");

  CLI::App* enwik8 = app.add_subcommand("enwik8", "The first 10^8 bytes of Wikipedia: 90, 5 and 5 million");
  enwik8->add_option("--from", a.enwik8.from, "the unzipped file; without it, it is downloaded");
  add_out(enwik8, a.enwik8.out)->capture_default_str();
  enwik8->add_option("--url", a.enwik8.url, "where it is downloaded from")->capture_default_str();
  enwik8->add_flag("--allow-prefix", a.enwik8.allow_prefix, "take a shorter beginning of enwik8 too");

  CLI::App* copy = app.add_subcommand("copy", "A stream that repeats itself at a distance: entropy is known");
  copy->add_option("--distance", a.copy.distance, "positions back to what is repeated")
      ->capture_default_str();
  copy->add_option("--length", a.copy.length, "tokens in all")->capture_default_str();
  copy->add_option("--vocab", a.copy.vocab, "token values")->capture_default_str();
  copy->add_option("--resample", a.copy.resample, "probability of a new token instead of a copy")
      ->capture_default_str();
  copy->add_option("--seed", a.copy.seed, "of the random tokens")->capture_default_str();
  add_out(copy, a.copy.out)->required();
  add_split(copy, a.copy.split);
}

}  // namespace

void add_prepare_commands(CLI::App& app, PrepareArguments& a) {
  app.require_subcommand(1);
  add_streams(app, a);
  for (CLI::App* command : app.get_subcommands({}))
    command->callback([&a, command] { a.command = command->get_name(); });
}

std::string run_prepare(const PrepareArguments& a) {
  if (a.command == "text") return prepare_text(a.text);
  if (a.command == "enwik8") return prepare_enwik8(a.enwik8);
  if (a.command == "copy") return prepare_copy(a.copy);
  fail("name a command; prepare --help lists them");
}

}  // namespace weft
