// SPDX-License-Identifier: MIT
#include "train/evaluation/evaluate_run.h"

#include "src/config/config.h"
#include "src/files/hdf5.h"
#include "train/evaluation/evaluator.h"
#include "train/program/counts.h"
#include "train/program/json.h"
#include "train/program/loaded_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kPanel = 384;  // pixels: the longest side of a panel
constexpr int64_t kMargin = 12, kBar = 14;
constexpr Rgb kPaper{250, 250, 250}, kNothing{215, 215, 215};

// From dark (t 0) to bright (1), so that it survives printing in grey.
Rgb heat(double t) {
  static constexpr std::array<Rgb, 5> kHeat{
      {{13, 8, 42}, {94, 24, 110}, {188, 55, 84}, {245, 135, 20}, {250, 240, 160}}};
  const double place = t * (kHeat.size() - 1);
  const auto low = std::min<std::size_t>(place, kHeat.size() - 2);
  return mix(kHeat[low], kHeat[low + 1], place - static_cast<double>(low));
}

// ---- the program ----

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

// Images as they are; a text in rows of its innermost axis.
ImageShape map_shape(const TokenDataset& data, const ModelConfig& model) {
  if (data.image()) return data.image();
  const int64_t width = std::min(model.context, model.position_axes.back());
  return {(model.context + width - 1) / width, width, 1};
}

const char* unit_of(const TokenDataset& data) {
  return data.image()                  ? "bits per dimension"
         : data.bytes_per_token() == 1 ? "bits per byte"
                                       : "bits per token";
}

class Evaluation {
 public:
  Evaluation(const EvaluateArguments& arguments, Processes& group, Progress& progress)
      : a_(arguments),
        group_(group),
        progress_(progress),
        loaded_(load_model(
            a_.checkpoint, [&] { return make_device(group.device(a_.device)); },
            weights_from(a_.weights))),
        path_(a_.data.empty() ? find_data(loaded_->config.data.path, a_.checkpoint) : a_.data),
        data_(path_, a_.split, loaded_->config.model.vocab),
        augmenter_(augmenter_for(loaded_->config, data_)) {
    if (!a_.augmentations.empty() && !data_.image())
      fail("--augmentations are of images; ", path_, " has a stream of tokens");
    choices_ = a_.augmentations == "all"
                   ? all_choices(loaded_->config)
                   : std::vector<AugmentChoice>{parse_choice(a_.augmentations, loaded_->config)};
    if (!a_.heatmap.empty() && choices_.size() > 1)
      fail("--heatmap draws one evaluation: name one combination instead of --augmentations all");
  }

  void run(std::ostream& out) {
    const bool writes = group_.rank() == 0;
    std::optional<Hdf5File> file;
    if (!a_.losses.empty() && writes) file.emplace(Hdf5File::create(a_.losses));
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      HeatMap map(map_shape(data_, loaded_->config.model));
      Losses losses;
      const EvalResult result = evaluate_one(i, a_.losses.empty() ? nullptr : &losses,
                                             a_.heatmap.empty() ? nullptr : &map);
      const std::string choice = choice_text(choices_[i], loaded_->config);
      progress_.line(sentence(result, choice));
      out << json(result, choice) << std::endl;
      if (file) losses.write(*file, choices_.size() > 1 ? "/" + choice : "", data_.image());
      if (!a_.heatmap.empty() && writes) {
        write_png(a_.heatmap, map.image());
        progress_.line(str(a_.heatmap, ": ", map.text()));
      }
    }
    if (file) file->commit();
  }

 private:
  EvalResult evaluate_one(std::size_t number, Losses* losses, HeatMap* map) {
    const Config& config = loaded_->config;
    EvalOptions options{
        .context = config.model.context,
        .min_context = a_.min_context,
        .batch = a_.batch,
        .augmenter = augmenter_ ? &*augmenter_ : nullptr,
        .choice = choices_[number],
        .decode = a_.decode,
    };
    if (options.batch == 0)
      options.batch = std::max<int64_t>(1, config.train.batch / config.train.accumulation);
    options.group = &group_;
    const auto keep = [&](const EvalWindow& window, auto tokens, auto nats) {
      if (losses) losses->add(window, tokens, nats);
      for (int64_t t = window.scored; map && t < window.length; ++t)
        map->add(t, nats[t] / std::numbers::ln2);
    };
    if (losses || map) options.on_losses = keep;
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
    return choices_.size() > 1 ? str(", combination ", number + 1, " of ", choices_.size()) : "";
  }

  std::string sentence(const EvalResult& result, const std::string& choice) const {
    const auto of_byte = per_byte(result);
    return str(a_.split, ": ", fixed_text(result.bits, 4), " ", unit_of(data_),
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
  std::optional<Augmenter> augmenter_;
  std::vector<AugmentChoice> choices_;
};
}  // namespace

HeatMap::HeatMap(const ImageShape& shape)
    : shape_(shape),
      sum_(shape.tokens(), 0),
      count_(sum_.size(), 0) {}

void HeatMap::add(int64_t position, double bits) {
  sum_.at(position) += bits;
  ++count_[position];
}

double HeatMap::mean(int64_t position) const {
  const auto p = static_cast<std::size_t>(position);
  return count_.at(p) == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sum_[p] / static_cast<double>(count_[p]);
}

double HeatMap::pixel(int64_t row, int64_t column) const {
  return value(row * shape_.width + column, -1);
}

double HeatMap::value(int64_t pixel, int64_t channel) const {
  if (channel >= 0) return mean(pixel * shape_.channels + channel);
  double all = 0;
  for (int64_t c = 0; c < shape_.channels; ++c) all += mean(pixel * shape_.channels + c);
  return all;
}

// What a colour bar stands for.
struct HeatMap::Scale {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  int64_t least_at = 0, most_at = 0;  // row * width + column

  Rgb colour(double v) const {
    return std::isnan(v) ? kNothing : heat(most > least ? (v - least) / (most - least) : 0);
  }

  std::string text(const char* what, int64_t width) const {
    const auto place = [&](int64_t at) {
      return str("(row ", at / width, ", column ", at % width, ")");
    };
    return str(what, ": ", fixed_text(least, 4), " dark ", place(least_at), " to ",
               fixed_text(most, 4), " bright ", place(most_at));
  }
};

HeatMap::Scale HeatMap::scale(int64_t first_channel, int64_t end_channel) const {
  Scale s;
  for (int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
    for (int64_t c = first_channel; c < end_channel; ++c) {
      const double v = value(pixel, c);
      if (v < s.least) s.least = v, s.least_at = pixel;
      if (v > s.most) s.most = v, s.most_at = pixel;
    }
  return s;
}

Image HeatMap::image() const {
  const int64_t zoom = std::max<int64_t>(1, kPanel / std::max(shape_.height, shape_.width));
  const int64_t panel = shape_.width * zoom + kMargin, bar = kBar + kMargin;
  const int64_t height = shape_.height * zoom;
  const int64_t channels = shape_.channels > 1 ? shape_.channels : 0;
  Image image(kMargin + panel + bar + (channels > 0 ? channels * panel + bar : 0),
              height + 2 * kMargin);
  fill(image, 0, 0, image.width, image.height, kPaper);
  int64_t x = kMargin;
  const auto draw_panel = [&](int64_t channel, const Scale& s) {
    for (int64_t pixel = 0; pixel < shape_.height * shape_.width; ++pixel)
      fill(image, x + pixel % shape_.width * zoom, kMargin + pixel / shape_.width * zoom, zoom,
           zoom, s.colour(value(pixel, channel)));
    x += panel;
  };
  const auto draw_bar = [&] {
    for (int64_t y = 0; y < height; ++y)
      fill(image, x, kMargin + y, kBar, 1,
           heat(1 - (static_cast<double>(y) + 0.5) / static_cast<double>(height)));
    x += bar;
  };
  draw_panel(-1, scale(-1, 0));
  draw_bar();
  for (int64_t c = 0; c < channels; ++c) draw_panel(c, scale(0, channels));
  if (channels > 0) draw_bar();
  return image;
}

std::string HeatMap::text() const {
  if (shape_.channels == 1) return scale(-1, 0).text("bits of a position", shape_.width);
  return scale(-1, 0).text("bits of a pixel", shape_.width) + "\n" +
         scale(0, shape_.channels).text("bits of a channel", shape_.width);
}

void run_evaluate(const EvaluateArguments& arguments, Processes& group, std::ostream& out,
                  Progress& progress) {
  Evaluation(arguments, group, progress).run(out);
}
}  // namespace weft
