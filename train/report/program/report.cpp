// SPDX-License-Identifier: MIT
// report: folders of runs as one page of HTML.
#include "src/files/files.h"
#include "src/files/overwrites.h"
#include "train/program/options.h"
#include "train/program/program.h"
#include "train/report/run_page.h"

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

using namespace weft;

int main(int argc, char** argv) {
  std::vector<std::string> folders;
  std::string out;
  const auto add_options = [&](CLI::App& app) {
    app.add_option("RUN,--checkpoint", folders, "folders of runs, runs/NAME")->required();
    add_output(app, "--out", out,
               "FILE.html: one page without scripts, which needs no network; report.html in the "
               "folder of a single run when not given",
               Devices::written);
    app.footer(
        "train writes such a page, report.html, into its run folder at each evaluation.\n"
        "Examples:\n  report runs/my\n  report runs/a runs/b --out compare.html");
  };
  const auto work = [&] {
    if (out.empty() && folders.size() > 1)
      fail("--out: ", folders.size(), " runs on one page belong to no folder: add --out FILE.html");
    for (const std::string& folder : folders) check_run_is_kept({{"--out", out}}, folder);
    const std::string page = run_page(folders);
    if (out.empty()) out = (std::filesystem::path(folders[0]) / "report.html").string();
    write_whole_file(out, [&](std::ostream& file) { file << page; });
    std::cout << out << ": " << folders.size() << (folders.size() == 1 ? " run, " : " runs, ")
              << page.size() << " bytes\n";
  };
  return run_program({"report", "Draws runs as one page of HTML.", add_options, work}, argc, argv);
}
