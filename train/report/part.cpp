// SPDX-License-Identifier: MIT
// The part report: the page of a run, pictures of patterns, files for TensorBoard.
#include "train/report/event_file.h"
#include "train/report/pattern_image.h"
#include "train/report/run_page.h"
#include "train/trainer/extension.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

namespace weft {
namespace {
// The page of the run, and files for TensorBoard.
HooksAsked add_report(CLI::App& app) {
  struct Flags {
    bool no_report = false, tensorboard = false;
  };

  const auto flags = std::make_shared<Flags>();
  app.add_flag("--no-report", flags->no_report, "no report.html and no samples at evaluations");
  app.add_flag("--tensorboard", flags->tensorboard,
               "also write <run folder>/tensorboard/, for tensorboard --logdir");
  return [flags] {
    TrainHooks hooks{.name = "report"};
    if (!flags->no_report) hooks.evaluated = keep_report();
    if (flags->tensorboard)
      hooks.log_to = [](const std::string& folder) {
        return [file = EventFile(folder)](const StepMetrics& m) { file.append(m); };
      };
    return std::optional(hooks);
  };
}
}  // namespace

void register_report() {
  add_train_options(add_report);
  set_picture_writer(write_pattern_image);
}
}  // namespace weft
