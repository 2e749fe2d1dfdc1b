// SPDX-License-Identifier: MIT
#include "train/formats/sample_images.h"

#include "data/formats/image_files.h"
#include "data/items.h"
#include "kernels/view.h"
#include "src/config/config.h"
#include "src/config/names.h"
#include "src/files/files.h"
#include "train/evaluation/evaluator.h"
#include "train/program/options.h"
#include "train/program/progress.h"
#include "train/sampling/sample_run.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace weft {
namespace {
constexpr int64_t kSmallest = 64;  // pixels: what small images are enlarged to, about
constexpr int32_t kUnknown = 128;
constexpr int64_t kPreviewed = 16;
constexpr int64_t kTokensAtATime = 786432;  // 256 images of CIFAR-10, 64 of ImageNet-64

using Tokens = std::vector<int32_t>;

Tokens image_from_png(const std::string& path, const ImageShape& shape) {
  PngImage png = read_png(path);
  if (shape.channels == 3) png = as_rgb(std::move(png));
  if (!(png.shape == shape))
    fail(path, ": is an image of ", png.shape.text(), ", this model draws ", shape.text());
  return {png.pixels.begin(), png.pixels.end()};
}

std::vector<Tokens> images_from_data(const ImageSamples& a, const Config& config) {
  const TokenDataset data(a.complete[0], a.split, config.model.vocab);
  if (!item_view(config, data)) fail(data.path(), ": has a stream of tokens, expected images");
  if (a.first < 0 || a.images < 1 || a.images > data.images() - a.first)
    fail(data.path(), ": the split ", a.split, " has images 0 to ", data.images() - 1, "; ",
         a.images, " from --first ", a.first, " on are not among them");
  const int64_t tokens = data.image().tokens();
  std::vector<Tokens> images;
  for (int64_t i = a.first; i < a.first + a.images; ++i)
    data.read(i * tokens, images.emplace_back(tokens));
  return images;
}

// The images to complete, as people see them.
std::vector<Tokens> given_images(const ImageSamples& a, const Config& config) {
  if (a.complete.empty()) return {};
  const std::string& first = a.complete[0];
  const bool is_png = first.ends_with(".png") || first.ends_with(".PNG");
  if (a.complete.size() == 1 && !is_png) return images_from_data(a, config);
  std::vector<Tokens> images;
  for (const std::string& path : a.complete)
    images.push_back(image_from_png(path, image_shape(config)));
  return images;
}

// Of an image in the folder --singles.
std::string single_name(int64_t number) {
  char name[32];
  std::snprintf(name, sizeof name, "%05lld.png", static_cast<long long>(number));
  return name;
}

class ImageSampler {
 public:
  ImageSampler(const SampleArguments& arguments, const ImageSamples& images, LoadedModel& model)
      : a_(arguments),
        images_(images),
        model_(model),
        shape_(image_shape(model.config)),
        augmenter_(model.config, shape_),
        choice_(parse_choice(images_.augmentation, model.config)),
        options_(a_.options) {
    if (a_.out.empty() && images_.singles.empty())
      fail(
          "images go to files: name a PNG for all of them, --out grid.png, or a folder, --singles "
          "DIR");
    if (!a_.prompt.empty() || !a_.prompt_file.empty())
      fail("this model draws images: --complete FILE goes on from one, --prompt is for text");
    rows_given_ = images_.rows < 0 ? shape_.height / 2 : images_.rows;
    if (rows_given_ >= shape_.height)
      fail("--rows: an image has ", shape_.height, " rows; ", rows_given_,
           " leave nothing to draw");
    const DataConfig& data = model.config.data;
    if (data.labels && (images_.label < 0 || images_.label >= data.classes))
      fail("--label: this model is told a class, expected one from 0 to ", data.classes - 1,
           images_.label < 0 ? "; none is given" : str(", got ", images_.label));
    if (!data.labels && images_.label >= 0)
      fail("--label: this model was trained without classes (data.labels); leave it out");
    choice_[Augment::label] = static_cast<int32_t>(std::max<int64_t>(images_.label, 0));
    augmenter_rows();
    std::vector<Tokens> given = given_images(images_, model.config);
    check_count(a_.options.count, std::ssize(given));
    for (Tokens& image : given) add_given(std::move(image));
    options_.length = shape_.tokens() - options_.given();
    if (!given_.empty()) options_.count = a_.options.count * std::ssize(given_);
    options_.batch =
        a_.batch > 0 ? a_.batch : std::clamp<int64_t>(kTokensAtATime / shape_.tokens(), 1, 256);
    check_sample_options(options_, model.config.model);
  }

  void run(Progress& progress) {
    std::vector<Tokens> drawn = options_.prompts;
    drawn.resize(options_.count);
    Stopwatch clock(true);
    const SampleStats stats = sample(
        *model_.device, *model_.model, model_.config.model, options_,
        [&](int64_t i, int64_t, int32_t token) { drawn[i].push_back(token); },
        [&](int64_t done, int64_t all) { progress.passing(bar_text(done, all, clock.seconds())); });
    progress.clear();
    const bool writes = options_.group->rank() == 0;
    if (!a_.out.empty() && writes) write_grid(drawn);
    if (!images_.singles.empty() && writes) write_singles(drawn);
    progress.line(sentence(stats));
    note_speed(a_, options_, stats, model_.config.model, progress);
  }

 private:
  // The conditions and the positions of the sequence.
  void augmenter_rows() {
    options_.conditions.resize(augmenter_.conditions().size());
    augmenter_.rows(choice_, options_.conditions);
    if (!augmenter_.moves_positions()) return;
    Tokens unused(shape_.tokens(), 0);
    options_.positions.resize(unused.size());
    augmenter_.apply(choice_, unused, options_.positions);
  }

  // The rows of `image` that are given, `count` times, in the order of the sequence.
  void add_given(Tokens image) {
    AugmentChoice choice = choice_;
    choice.key = given_.size();
    Tokens positions(options_.positions.size());
    augmenter_.apply(choice, image, positions);
    const int64_t known = rows_given_ * shape_.width * shape_.channels;
    const Tokens upper(image.begin(), image.begin() + known);
    for (int64_t i = 0; i < a_.options.count; ++i) options_.prompts.push_back(upper);
    given_.push_back(std::move(image));
  }

  // The order of the sequence, or with --upright that of the image.
  Image shown(const Tokens& sequence) const {
    if (!images_.upright) return image_of(shape_, sequence);
    const std::vector<int32_t> source = augmenter_.source(choice_);
    Tokens image(sequence.size());
    for (std::size_t t = 0; t < sequence.size(); ++t) image[source[t]] = sequence[t];
    return image_of(shape_, image);
  }

  void write_grid(const std::vector<Tokens>& drawn) const {
    std::vector<Image> cells;
    const auto all = std::ssize(drawn);
    if (given_.empty()) {
      for (const Tokens& tokens : drawn) cells.push_back(shown(tokens));
      const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(all))));
      return write_png(a_.out, draw_grid(cells, GridLayout(shape_, all, side)));
    }
    const auto each = static_cast<std::size_t>(a_.options.count);
    for (std::size_t i = 0; i < given_.size(); ++i) {
      Tokens upper = options_.prompts[i * each];
      upper.resize(given_[i].size(), -1);
      cells.push_back(shown(given_[i]));
      cells.push_back(shown(upper));
      for (std::size_t k = 0; k < each; ++k) cells.push_back(shown(drawn[i * each + k]));
    }
    const auto in_row = static_cast<int64_t>(each) + 2;
    write_png(a_.out, draw_grid(cells, GridLayout(shape_, std::ssize(cells), in_row)));
  }

  void write_singles(const std::vector<Tokens>& drawn) const {
    make_folder(images_.singles);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const std::string name = single_name(static_cast<int64_t>(i));
      write_png((fs::path(images_.singles) / name).string(), shown(drawn[i]));
    }
  }

  std::string sentence(const SampleStats& stats) const {
    std::string text = a_.out.empty() ? images_.singles : a_.out;
    text += str(": ", options_.count, given_.empty() ? " images of " : " completions of ",
                shape_.text());
    if (!given_.empty()) text += str(" from ", rows_given_, " rows of ", given_.size(), " images");
    if (images_.label >= 0) text += str(", label ", images_.label);
    if (const std::string told = choice_text(choice_, model_.config); told != "none")
      text += ", " + told;
    return text + str(", ", model_.weights_text(), ", ", fixed_text(stats.seconds, 2), " s");
  }

  const SampleArguments& a_;
  const ImageSamples& images_;
  LoadedModel& model_;
  ImageShape shape_;
  Augmenter augmenter_;
  AugmentChoice choice_;
  SampleOptions options_;
  int64_t rows_given_ = 0;
  std::vector<Tokens> given_;  // whole, in the order of the sequence
};
}  // namespace

Image image_of(const ImageShape& shape, std::span<const int32_t> tokens) {
  if (shape.channels != 1 && shape.channels != 3)
    fail("images of ", shape.channels, " channels cannot be drawn: 1 (grey) and 3 (colours) can");
  WEFT_CHECK(std::ssize(tokens) == shape.tokens(), tokens.size(), " tokens for an image of ",
             shape.tokens());
  Image image(shape.width, shape.height);
  const auto value = [&](int64_t at) {
    const int32_t token = tokens[at];
    if (token > 255) fail("token ", token, " is no brightness from 0 to 255");
    return static_cast<uint8_t>(token < 0 ? kUnknown : token);
  };
  for (int64_t i = 0; i < shape.height * shape.width; ++i) {
    const int64_t at = i * shape.channels, step = shape.channels == 3 ? 1 : 0;
    image.pixels[i] = {value(at), value(at + step), value(at + 2 * step)};
  }
  return image;
}

GridLayout::GridLayout(const ImageShape& shape, int64_t cells, int64_t in_row)
    : columns(std::min(cells, in_row)),
      rows((cells + columns - 1) / columns),
      zoom(std::max<int64_t>(1, kSmallest / std::max(shape.height, shape.width))),
      width(shape.width * zoom),
      height(shape.height * zoom) {}

Image draw_grid(const std::vector<Image>& cells, const GridLayout& g) {
  Image all(g.columns * (g.width + g.kGap) + g.kGap, g.rows * (g.height + g.kGap) + g.kGap);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    Image cell = cells[i];
    const auto index = static_cast<int64_t>(i);
    for (int64_t y = 0; y < cell.height; ++y)
      for (int64_t x = 0; x < cell.width; ++x)
        fill(all, g.x(index) + x * g.zoom, g.y(index) + y * g.zoom, g.zoom, g.zoom, cell.at(x, y));
  }
  return all;
}

bool draws_images(const Config& config) {
  const ModelConfig& m = config.model;
  return m.position_axes.size() == 3 && m.vocab == 256 && image_shape(config).tokens() == m.context;
}

void ImageSamples::add_options(CLI::App& app) {
  app.add_option("--singles", singles,
                 "images: a folder for each as a PNG of its own, 00000.png ...");
  app.add_option("--augmentation", augmentation,
                 "images: the model is told so, rotation=1,color=2");
  app.add_option("--label", label, "images: the class that the model is told, with data.labels")
      ->check(at_least(0));
  app.add_flag("--upright", upright, "images: shown as they were before the augmentation");
  auto* of_each =
      app.add_option("--complete", complete,
                     "images: PNG files, or a data file, whose upper rows are given; the grid "
                     "has image, what was given, completions");
  app.add_option("--rows", rows, "of each that are given (half)")
      ->needs(of_each)
      ->check(at_least(0));
  add_shown(app, "--split", split, "of the data file")->needs(of_each);
  add_shown(app, "--first", first, "number of its first image")->needs(of_each);
  add_shown(app, "--images", images, "images of the data file")->needs(of_each);
}

// Of the files in the folder --singles those that have the name of another file of this call: the
// folder may get thousands.
std::vector<OutputOption> ImageSamples::outputs(const SampleArguments& a) const {
  std::vector<OutputOption> outputs;
  if (singles.empty()) return outputs;
  const int64_t of_each = std::max(images, std::ssize(complete));
  const double drawn =
      static_cast<double>(a.options.count) * static_cast<double>(complete.empty() ? 1 : of_each);
  std::vector<std::string> others = complete;
  others.push_back(a.out);
  for (const std::string& other : others) {
    const fs::path name = fs::path(other).filename();
    const auto number = number_in<int64_t>(name.stem().string());
    if (number && static_cast<double>(*number) < drawn && single_name(*number) == name)
      outputs.push_back({"--singles", (fs::path(singles) / name).string()});
  }
  return outputs;
}

bool ImageSamples::asked(const SampleArguments& a, const Config& config) const {
  const bool draws = draws_images(config);
  if (a.options.length == 0 && draws) return true;
  const bool of_images =
      !singles.empty() || !complete.empty() || !augmentation.empty() || label >= 0 || upright;
  if (draws && (of_images || ending_of(a.out) == ".png"))
    fail("--length is for text, and this model draws whole images: leave it out");
  if (of_images)
    fail(a.checkpoint,
         ": is a model of text; --singles, --complete, --augmentation, --label and --upright are "
         "for images");
  return false;
}

void ImageSamples::sample(SampleArguments& a, LoadedModel& model, Progress& progress) {
  refuse_text_options(a, "images");
  check_ending(a.out, ".png", "images");
  ImageSampler(a, *this, model).run(progress);
}

bool ImageSamples::preview(Device& device, Model& model, const Config& config,
                           const std::string& stem, const OnPositions& on_positions) const {
  if (!draws_images(config)) return false;
  const ImageShape shape = image_shape(config);
  const Augmenter augmenter(config, shape);
  SampleOptions options{.seed = config.seed};
  options.conditions.resize(augmenter.conditions().size());
  augmenter.rows({}, options.conditions);
  options.length = config.model.context;
  options.count = options.batch = kPreviewed;
  std::vector<Tokens> drawn(options.count);
  weft::sample(
      device, model, config.model, options,
      [&](int64_t i, int64_t, int32_t token) { drawn[i].push_back(token); }, on_positions);
  std::vector<Image> cells;
  for (const Tokens& tokens : drawn) cells.push_back(image_of(shape, tokens));
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(kPreviewed)));
  write_png(stem + "png", draw_grid(cells, GridLayout(shape, kPreviewed, side)));
  return true;
}
}  // namespace weft
