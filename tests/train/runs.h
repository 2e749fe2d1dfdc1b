// SPDX-License-Identifier: MIT
// Training runs of this process in the folders of a test, and what they leave.
#pragma once

#include "tests/train/training.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
// Runs in the folders of a TempDir, by name.
struct RunFolders {
  // The values under `key` of the metrics of a run.
  std::vector<double> of(const std::string& run, const std::string& key) const {
    return metric(dir / (run + "/metrics.jsonl"), key);
  }

  std::string latest(const std::string& run) const { return dir / (run + "/latest.h5"); }

  // As many values as `want` has, each within `tolerance` of it, relatively.
  void expect_near_series(const std::string& run, const std::string& want, const std::string& key,
                          double tolerance) const {
    const std::vector<double> a = of(run, key), b = of(want, key);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i]))
          << run << ", " << key << " of line " << i + 1;
  }

  void expect_same_latest(const std::string& run, const std::string& want) const {
    expect_same_tensors(latest(run), latest(want));
  }

  // Makes the row of a token in latest.h5 so large that its sum is infinite.
  void enlarge_embedding(const std::string& run, int64_t token) const {
    const RunConfig config = small_config(dir.path(), {"train.ema_decay=0"});
    const auto device = make_device("cpu");
    ParameterStore store;
    const auto model = make_model(config, store, *device);
    store.allocate(*device, DType::f32, 0, true, false);
    const TrainState state = load_checkpoint(latest(run), *device, store);
    const auto params = store.params();
    const auto table = std::find_if(params.begin(), params.end(),
                                    [](const ParamInfo& p) { return p.name == "token_embedding"; });
    const int64_t width = table->shape[1];
    const std::vector<float> row(static_cast<std::size_t>(width), 3e38f);
    device->upload(store.master().slice(table->offset + token * width, {width}), row.data());
    save_checkpoint(latest(run), *device, store, state, checkpoint_config(latest(run)));
  }

  // A corpus in which `token` is at these places alone.
  void write_rare_token(uint16_t token, std::size_t begin, std::size_t end) const {
    std::vector<uint16_t> tokens(6000);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<uint16_t>(i >= begin && i < end ? token : i * i % 13);
    write_tokens(dir / "corpus.h5", tokens, 32, {0.8, 0.1, 0.1});
  }

  TempDir dir;
};

class Runs : public testing::Test, public RunFolders {
 protected:
  Runs() { write_corpus(dir / "corpus.h5", 6000, 32); }

  // Every step is logged, and nothing else happens.
  static std::vector<std::string> with(std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(),
                     {"train.log_every=1", "train.eval_every=0", "train.save_every=0"});
    return overrides;
  }

  // Trains in <dir>/<name>; what it throws, or "".
  std::string run(const std::string& name, const std::vector<std::string>& overrides,
                  TrainOptions options = {}) {
    options.out = dir / name;
    options.device = "cpu";
    try {
      text_[name] = train(small_config(dir.path(), overrides), options);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  }

  // What a run printed.
  std::string text_of(const std::string& name) const { return text_.at(name); }

 private:
  std::map<std::string, std::string> text_;
};
}  // namespace weft
