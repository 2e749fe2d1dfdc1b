// SPDX-License-Identifier: MIT
// Options that several programs have. The rest of a command line is in train/<program>.cpp.
#pragma once

#include "src/config/names.h"
#include "src/files/files.h"
#include "src/files/seal.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft {
// An option whose help shows its default.
template <class T>
CLI::Option* add_shown(CLI::App& app, const char* name, T& value, const char* text) {
  return app.add_option(name, value, text)->capture_default_str();
}

// Refuses smaller numbers, in words. The errors of CLI11's own ranges print the largest double
// digit by digit.
inline CLI::Validator at_least(double least, bool itself = true) {
  return {[=](const std::string& text) {
            double value = 0;
            const bool number = CLI::detail::lexical_cast(text, value);
            if (number && (itself ? value >= least : value > least)) return std::string();
            return str("expected a number ", itself ? "of at least " : "of more than ", least,
                       ", got ", text);
          },
          ""};
}

inline CLI::Validator more_than(double least) { return at_least(least, false); }

// The commands of a program. `work` is set to that of the command on the command line.
struct Commands {
  CLI::App& app;
  std::function<void()>& work;

  CLI::App* add(const std::string& name, const std::string& purpose,
                std::function<void()> of_command) {
    CLI::App* command = app.require_subcommand(1)->add_subcommand(name, purpose);
    command->callback([&work = work, of_command = std::move(of_command)] { work = of_command; });
    return command;
  }
};

// Refuses what is no whole number of type T. CLI11 itself lets unsigned numbers wrap around.
template <class T>
CLI::Validator whole_number() {
  return {[](const std::string& text) {
            if (number_in<T>(text)) return std::string();
            return str("expected a whole number from 0 to ", std::numeric_limits<T>::max(),
                       ", got ", text);
          },
          ""};
}

// An option that names a file to write. Names under which none can appear are refused before any
// work.
inline CLI::Option* add_output(CLI::App& app, const char* name, std::string& path, const char* text,
                               Devices devices = Devices::refused) {
  const auto check = [devices](const std::string& given) {
    try {
      check_output(given, devices);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  return app.add_option(name, path, text)->check(CLI::Validator(check, ""));
}

inline void add_device(CLI::App& app, std::string& device,
                       const char* text = "auto, cpu, cuda or cuda:N") {
  add_shown(app, "--device", device, text);
}

// Adds --config, which it returns, and --set.
inline CLI::Option* add_config(CLI::App& app, std::string& config,
                               std::vector<std::string>& overrides) {
  CLI::Option* file = app.add_option(
      "--config", config, "config file; a name that is no path is looked for in configs/");
  app.add_option("--set", overrides, "a.b=c: sets one key of the config; may be repeated")
      ->allow_extra_args(false);
  return file;
}

// Adds --checkpoint, which is the first word without a name, too.
inline void add_checkpoint(CLI::App& app, std::string& checkpoint) {
  app.add_option("RUN,--checkpoint", checkpoint,
                 "run folder of train, of which best.h5 is taken (or latest.h5), or a checkpoint")
      ->required();
}

inline void add_no_verify(CLI::App& app) {
  app.add_flag_callback(
      "--no-verify", [] { verify_seals = false; },
      "skip the hash of checkpoints and data files: damage may go unnoticed, or crash the program");
}

inline void add_weights(CLI::App& app, std::string& weights) {
  auto* which = app.add_option("--weights", weights,
                               "ema (the moving average; default where it was kept) or last")
                    ->check(CLI::IsMember({"ema", "last"}));
  app.add_flag_callback(
         "--ema", [&weights] { weights = "ema"; }, "--weights ema")
      ->excludes(which);
}
}  // namespace weft
