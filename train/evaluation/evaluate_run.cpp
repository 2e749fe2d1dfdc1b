// SPDX-License-Identifier: MIT
#include "train/evaluation/evaluate_run.h"

#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "src/files/overwrites.h"
#include "train/evaluation/evaluator.h"
#include "train/program/counts.h"
#include "train/program/json.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {
// Per-token losses of one evaluation.
struct Losses {
  std::vector<float> nats;
  std::vector<int32_t> tokens;

  void add(const EvalWindow& window, std::span<const int32_t> seen,
           std::span<const double> of_seen) {
    for (auto t = static_cast<std::size_t>(window.scored); t < of_seen.size(); ++t) {
      nats.push_back(static_cast<float>(of_seen[t]));
      tokens.push_back(seen[t]);
    }
  }

  void write(Hdf5File& file, const std::string& group, const ImageShape& image) const {
    std::vector<int64_t> shape{std::ssize(nats)};
    if (image) shape = {shape[0] / image.tokens(), image.height, image.width, image.channels};
    file.write(group + "/losses", StoredType::f32, shape, nats.data());
    file.write(group + "/tokens", StoredType::u32, shape, tokens.data());
  }
};

class Evaluation {
 public:
  Evaluation(const EvaluateArguments& arguments, Processes& group, Progress& progress)
      : a_(arguments),
        group_(group),
        progress_(progress),
        loaded_(load_model(
            a_.checkpoint, [&] { return make_device(group.device(a_.device)); },
            weights_from(a_.weights))),
        path_(a_.data.empty() ? find_data(loaded_->config.data.path, a_.checkpoint, "--data F.h5")
                              : a_.data),
        data_(path_, a_.split, loaded_->config.model.vocab) {
    check_outputs();
    for (const auto& extension : a_.extensions)
      for (EvaluateVariant& variant : extension->variants(loaded_->config, data_))
        variants_.push_back(std::move(variant));
    if (variants_.empty()) variants_.push_back({"none", item_view(loaded_->config, data_)});
  }

  void run(std::ostream& out) {
    const bool writes = group_.rank() == 0;
    std::optional<Hdf5File> file;
    if (!a_.losses.empty() && writes) file.emplace(Hdf5File::create(a_.losses));
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      Losses losses;
      const EvalResult result = evaluate_one(i, a_.losses.empty() ? nullptr : &losses);
      const std::string& name = variants_[i].name;
      progress_.line(sentence(result, name));
      out << json(result, name) << std::endl;
      if (file) losses.write(*file, variants_.size() > 1 ? "/" + name : "", data_.image());
      if (!writes) continue;
      for (const auto& extension : a_.extensions) extension->finish(progress_);
    }
    if (file) file->commit();
  }

 private:
  void check_outputs() const {
    std::vector<OutputOption> outputs{{"--losses", a_.losses}};
    for (const auto& extension : a_.extensions)
      for (OutputOption& output : extension->outputs()) outputs.push_back(std::move(output));
    check_overwrites(outputs, {a_.checkpoint, path_});
    check_run_is_kept(outputs, std::filesystem::path(a_.checkpoint).parent_path().string());
  }

  EvalResult evaluate_one(std::size_t number, Losses* losses) {
    const Config& config = loaded_->config;
    EvalOptions options{
        .context = config.model.context,
        .min_context = a_.min_context,
        .batch = a_.batch,
        .items = variants_[number].items.get(),
        .decode = a_.decode,
    };
    if (options.batch == 0)
      options.batch = std::max<int64_t>(1, config.train.batch / config.train.accumulation);
    options.group = &group_;
    std::vector<OnLosses> listeners;
    if (losses)
      listeners.push_back([&](const EvalWindow& window, auto tokens, auto nats) {
        losses->add(window, tokens, nats);
      });
    for (const auto& extension : a_.extensions)
      if (OnLosses listener = extension->listener(config, data_, std::ssize(variants_)))
        listeners.push_back(std::move(listener));
    if (!listeners.empty())
      options.on_losses = [&](const EvalWindow& window, auto tokens, auto nats) {
        for (const OnLosses& listener : listeners) listener(window, tokens, nats);
      };
    int64_t rounds = 0;
    Stopwatch clock(true);
    const EvalResult result =
        evaluate(*loaded_->device, *loaded_->model, data_, options, [&](int64_t done, int64_t all) {
          group_.report_step(++rounds);
          progress_.passing(str(bar_text(done, all, clock.seconds()), part_text(number)));
        });
    group_.take_time();  // for files
    progress_.clear();
    if (!std::isfinite(result.bits))
      fail(a_.checkpoint, ": the loss on ", path_, " is not finite; training diverged");
    return result;
  }

  std::string part_text(std::size_t number) const {
    return variants_.size() > 1 ? str(", combination ", number + 1, " of ", variants_.size()) : "";
  }

  std::string sentence(const EvalResult& result, const std::string& choice) const {
    const auto of_byte = per_byte(result);
    return str(a_.split, ": ", fixed_text(result.bits, 4), " ",
               bits_unit(bool{data_.image()}, data_.bytes_per_token()),
               of_byte ? str(", ", fixed_text(*of_byte, 4), " bits per byte") : "", " over ",
               data_.image() ? str(grouped_digits(data_.images()), " images")
                             : str(grouped_digits(result.tokens), " tokens"),
               choice == "none" ? "" : ", " + choice, ", ", loaded_->weights_text());
  }

  // Of data that tells how many bytes a token stands for.
  std::optional<double> per_byte(const EvalResult& result) const {
    const double bytes = data_.bytes_per_token();
    return data_.image() || bytes == 0 || bytes == 1 ? std::nullopt
                                                     : std::optional(result.bits / bytes);
  }

  std::string json(const EvalResult& result, const std::string& choice) const {
    const auto digits = [](double value) {
      char text[32];
      std::snprintf(text, sizeof text, "%.9g", value);
      return JsonMember::Raw{text};
    };
    JsonMembers members = {{"bits", digits(result.bits)}, {"tokens", result.tokens}};
    const auto add = [&](const char* key, const auto& value) { members.emplace_back(key, value); };
    if (const auto of_byte = per_byte(result)) add("bits_per_byte", digits(*of_byte));
    if (data_.image()) add("images", data_.images()), add("augmentation", choice);
    add("min_context", a_.min_context), add("split", a_.split), add("ema", loaded_->ema);
    add("step", loaded_->state.step), add("checkpoint", a_.checkpoint), add("data", path_);
    return json_object(members);
  }

  const EvaluateArguments& a_;
  Processes& group_;
  Progress& progress_;
  std::unique_ptr<LoadedModel> loaded_;
  std::string path_;
  TokenDataset data_;
  std::vector<EvaluateVariant> variants_;
};
}  // namespace

void run_evaluate(const EvaluateArguments& arguments, Processes& group, std::ostream& out,
                  Progress& progress) {
  Evaluation(arguments, group, progress).run(out);
}
}  // namespace weft
