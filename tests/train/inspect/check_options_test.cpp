// SPDX-License-Identifier: MIT
// Files that inspect may write, and options that do not go together.
#include "models/model.h"
#include "src/config/config.h"
#include "src/config/write_config.h"
#include "src/files/checkpoint.h"
#include "src/parts/parts.h"
#include "tests/train/shell_test.h"
#include "train/inspect/report.h"

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {
namespace fs = std::filesystem;

class InspectFiles : public ShellTest {
 protected:
  InspectFiles() { alone_.attention = "{kind: local, stride: 4}", alone_.length = 8; }

  static std::string output(const InspectOptions& o) {
    std::ostringstream out;
    inspect(o, out);
    return out.str();
  }

  // The Error of these options, which leave the file `kept` as it is.
  static std::string keeps(const std::string& kept, const InspectOptions& o) {
    const std::string before = read_file(kept), text = error_of([&] { output(o); });
    EXPECT_EQ(read_file(kept), before);
    return text;
  }

  // A checkpoint of new weights.
  void save_model(const std::string& path, const std::vector<std::string>& overrides = {}) {
    const Config config = small_config(dir.path(), overrides);
    const std::unique_ptr<Device> device = make_device("cpu");
    ParameterStore store;
    const std::unique_ptr<Model> model = make_model(config, store, *device);
    store.allocate(*device, DType::f32, 1, true, false);
    save_checkpoint(path, *device, store, {}, to_yaml(config));
  }

  // What the head 0,0 of a model saw of a text.
  InspectOptions of_text(const std::string& checkpoint) {
    write_file(dir / "text", "\1\2\3\4");
    InspectOptions o;
    o.checkpoint = checkpoint, o.text = dir / "text", o.pattern = "0,0";
    return o;
  }

  InspectOptions alone_;  // looks at a pattern without a config
};

TEST_F(InspectFiles, AFileThatIsReadIsNotWritten) {
  InspectOptions o;
  o.config = dir / "small.yaml", o.pattern = "0,0", o.device = "cpu";
  o.png = dir / "./small.yaml";
  EXPECT_EQ(keeps(o.config, o), o.png + ": is both read and written; choose another --png");
  fs::create_symlink("small.yaml", dir / "link");
  o.png.clear(), o.mask_out = dir / "link";
  EXPECT_CONTAINS(keeps(o.config, o), "link: is both read and written; choose another --mask-out");

  save_model(dir / "best.h5");
  o = of_text(dir.path());
  for (const std::string& read : {dir / "best.h5", dir / "text"}) {
    o.mask_out = read;
    EXPECT_CONTAINS(keeps(read, o), read + ": is both read and written");
  }
}

TEST_F(InspectFiles, ALayoutThatIsReadIsNotWritten) {
  if (const std::string absent = absent_part_text("layout"); !absent.empty())
    GTEST_SKIP() << absent;
  alone_.mask_out = dir / "layout.npy";
  output(alone_);
  alone_.attention =
      "{kind: merged, of: [{kind: local, stride: 4}, {kind: layout, block: 8, file: " +
      alone_.mask_out + "}]}";
  EXPECT_CONTAINS(keeps(alone_.mask_out, alone_), "layout.npy: is both read and written");
}

TEST_F(InspectFiles, FilesOfAnotherKindAreNotReplaced) {
  save_model(dir / "best.h5");
  write_file(dir / "bytes.npy", "\x93NUMPY\1{'descr': '|u1', 'shape': (1,)}\n1");
  for (const std::string& file : {dir / "best.h5", dir / "corpus.h5", dir / "bytes.npy"}) {
    InspectOptions o = alone_;
    o.mask_out = file;
    EXPECT_EQ(keeps(file, o),
              "--mask-out: expected a new name, or a .npy file of booleans to replace; " + file +
                  " is another file, which would be lost. Choose another name");
    o = alone_, o.png = file;
    EXPECT_CONTAINS(keeps(file, o), "--png: expected a new name, or a PNG file to replace; ");
    o.tiles = "0,0";
    EXPECT_CONTAINS(keeps(file, o), "--png: expected a new name, or a PNG file to replace; ");
  }
}

TEST_F(InspectFiles, OwnAndEmptyFilesAreReplaced) {
  write_file(dir / "m.npy", "");
  write_file(dir / "tiles.png", "");
  for (const int64_t length : {8, 16}) {
    InspectOptions o = alone_;
    o.length = length, o.mask_out = dir / "m.npy";
    output(o);
    EXPECT_EQ(fs::file_size(o.mask_out), static_cast<std::uintmax_t>(128 + length * length));
    o.mask_out.clear(), o.tiles = "0,0", o.png = dir / "tiles.png";
    output(o);
    EXPECT_TRUE(read_file(o.png).starts_with("\x89PNG"));
  }
  const std::string inspect = "inspect --attention '{kind: local, stride: 4}' --n 8 ";
  EXPECT_EQ(shell("echo text > log; " + inspect + "--mask-out /dev/stderr 2>> log"), 0) << err_;
  EXPECT_TRUE(read_file(dir / "log").starts_with("text\n\x93NUMPY"));
}

TEST_F(InspectFiles, TwoOutputsAreTwoFiles) {
  alone_.png = dir / "x", alone_.mask_out = dir / "./x";
  EXPECT_EQ(error_of([&] { output(alone_); }),
            "--png and --mask-out name one file, " + alone_.mask_out + "; choose two names");
  EXPECT_FALSE(fs::exists(alone_.png));
}

TEST_F(InspectFiles, ARunFolderStandsForItsCheckpoint) {
  save_model(dir / "latest.h5");
  EXPECT_TRUE(output(of_text(dir.path()))
                  .starts_with("checkpoint " + (dir / "latest.h5") +
                               ", as there is no best.h5\n"
                               "layer 0, head 0: local(stride 8) on "));
  save_model(dir / "best.h5");
  EXPECT_TRUE(output(of_text(dir.path()))
                  .starts_with("checkpoint " + (dir / "best.h5") + ", the best of the run\n"));
  EXPECT_TRUE(output(of_text(dir / "best.h5")).starts_with("layer 0, head 0: "));
  fs::create_directory(dir / "empty");
  EXPECT_CONTAINS(error_of([&] { output(of_text(dir / "empty")); }), "empty is no run folder");
}

TEST_F(InspectFiles, AModelThatIsToldOfItsSequencesSeesNoText) {
  if (const std::string absent = absent_part_text("augment"); !absent.empty())
    GTEST_SKIP() << absent;
  save_model(dir / "images.h5",
             {"model.vocab=256", "model.context=48", "model.position_axes=[4, 4, 3]",
              "augment.rotation=true", "augment.color=true"});
  EXPECT_EQ(error_of([&] { output(of_text(dir / "images.h5")); }),
            (dir / "images.h5") +
                ": expected a model of text for --text; this one is told of each sequence: "
                "rotation, color. --config FILE --pattern LAYER,HEAD draws its patterns");
}

TEST_F(InspectFiles, NothingIsPrintedOfATextBeforeAnError) {
  save_model(dir / "best.h5");
  InspectOptions o = of_text(dir / "best.h5");
  o.position = 99;
  std::ostringstream out;
  EXPECT_CONTAINS(error_of([&] { inspect(o, out); }), "--position must be between 0 and 3");
  EXPECT_EQ(out.str(), "");
}

TEST_F(InspectFiles, OptionsOfAnotherSourceAreRefused) {
  save_model(dir / "best.h5");
  InspectOptions of_config;
  of_config.config = dir / "small.yaml", of_config.device = "cpu";
  const InspectOptions of_checkpoint = of_text(dir / "best.h5");
  const auto refused = [](InspectOptions o, const std::function<void(InspectOptions&)>& set) {
    set(o);
    return error_of([&] { output(o); });
  };
  const std::string text = "--text goes with --checkpoint RUN --pattern LAYER,HEAD, got it with ";
  EXPECT_EQ(refused(alone_, [](auto& o) { o.text = "F"; }), text + "--attention");
  EXPECT_EQ(refused(of_config, [](auto& o) { o.text = "F"; }), text + "--config");
  for (const InspectOptions& o : {alone_, of_checkpoint})
    EXPECT_CONTAINS(refused(o, [](auto& x) { x.overrides = {"seed=1"}; }),
                    "--set goes with --config FILE, got it with --");
  for (const InspectOptions& o : {of_config, of_checkpoint}) {
    const std::string pattern = " goes with --attention PATTERN, got it with --";
    EXPECT_CONTAINS(refused(o, [](auto& x) { x.heads = 1; }), "--heads" + pattern);
    EXPECT_CONTAINS(refused(o, [](auto& x) { x.head_size = 64; }), "--head-size" + pattern);
  }
  EXPECT_EQ(refused(of_checkpoint, [](auto& o) { o.keys = 4; }),
            "--keys goes with --config FILE or --attention PATTERN, got it with --checkpoint");
  const std::string one = "--text FILE; give one of them";
  EXPECT_CONTAINS(refused(of_checkpoint, [&](auto& o) { o.config = of_config.config; }), one);
  EXPECT_CONTAINS(refused(of_checkpoint, [&](auto& o) { o.attention = alone_.attention; }), one);
  EXPECT_CONTAINS(refused(of_config, [&](auto& o) { o.attention = alone_.attention; }), one);
}
}  // namespace
}  // namespace weft
