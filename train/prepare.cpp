// SPDX-License-Identifier: MIT
// prepare: raw data in, a token file out. See data/README.md.
#include "data/prepare/prepare.h"

#include "train/program/prepare_commands.h"
#include "train/program/program.h"

#include <functional>

using namespace weft;

struct PrepareArguments {
  PrepareText text;
  PrepareTokens tokens;
  PrepareEnwik8 enwik8;
  PrepareNovels novels;
  PrepareCopy copy;
};

static void add_streams(Commands commands, PrepareArguments& a) {
  CLI::App* text = commands.add("text", "Files as one stream of bytes, vocabulary 256",
                                [&] { say(prepare_text(a.text)); });
  text->add_option("FILE", a.text.files, "joined in this order")->required();
  add_out(text, a.text.out)->required();
  add_split(text, a.text.split);
  text->footer("Example:\n  prepare text a.txt b.txt --out text.h5 --split 0.9,0.05,0.05");

  CLI::App* tokens = commands.add("tokens", "Numbers of any tokenizer, vocabulary up to 1,048,576",
                                  [&] { say(prepare_tokens(a.tokens)); });
  tokens->add_option("FILE", a.tokens.file, ".npy of whole numbers, or bare little-endian numbers")
      ->required();
  tokens->add_option("--vocab", a.tokens.vocab, "token values")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  tokens
      ->add_option("--dtype", a.tokens.dtype,
                   "of bare numbers (u16, or u32 with a vocabulary over 65,536)")
      ->check(CLI::IsMember({"u16", "u32"}));
  tokens
      ->add_option("--bytes", a.tokens.bytes, "of the text: evaluate then gives bits per byte, too")
      ->check(at_least(1));
  add_out(tokens, a.tokens.out)->required();
  add_split(tokens, a.tokens.split);
  tokens->footer(
      "Example:\n  prepare tokens gpt2.bin --vocab 50257 --bytes 1115394 --out tokens.h5");

  CLI::App* enwik8 =
      commands.add("enwik8", "The first 10^8 bytes of Wikipedia: 90, 5 and 5 million",
                   [&] { say(prepare_enwik8(a.enwik8)); });
  enwik8->add_option("--from", a.enwik8.from, "the unzipped file; without it, it is downloaded");
  add_out(enwik8, a.enwik8.out)->capture_default_str();
  add_shown(*enwik8, "--url", a.enwik8.url, "where it is downloaded from");
  enwik8->add_flag("--allow-prefix", a.enwik8.allow_prefix,
                   "take a shorter beginning of enwik8 too");

  CLI::App* novels =
      commands.add("novels", "100 English novels, 77 MB: shares of 0.9, 0.05 and 0.05",
                   [&] { say(prepare_novels(a.novels)); });
  novels->add_option("--from", a.novels.from,
                     "a clone of the repository; without it, it is downloaded");
  add_out(novels, a.novels.out)->capture_default_str();
  add_shown(*novels, "--url", a.novels.repository, "the repository");

  CLI::App* copy =
      commands.add("copy", "A stream that repeats itself at a distance: entropy is known",
                   [&] { say(prepare_copy(a.copy)); });
  add_shown(*copy, "--distance", a.copy.distance, "positions back to what is repeated");
  add_shown(*copy, "--length", a.copy.length, "tokens in all");
  add_shown(*copy, "--vocab", a.copy.vocab, "token values");
  add_shown(*copy, "--resample", a.copy.resample, "probability of a new token instead of a copy");
  add_shown(*copy, "--seed", a.copy.seed, "of the random tokens")->check(whole_number<uint64_t>());
  add_out(copy, a.copy.out)->required();
  add_split(copy, a.copy.split);
}

int main(int argc, char** argv) {
  PrepareArguments arguments;
  std::function<void()> command;
  const auto add_options = [&](CLI::App& app) {
    const Commands commands{app, command};
    add_streams(commands, arguments);
    for (const AddPrepareCommands& add : prepare_commands()) add(commands);
  };
  const char* purpose = "Makes the HDF5 files that training reads.";
  return run_program({"prepare", purpose, add_options, [&] { command(); }}, argc, argv);
}
