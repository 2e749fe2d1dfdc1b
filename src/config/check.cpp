// SPDX-License-Identifier: MIT
// Do the values of a config fit together? Each refusal names the keys and values that would work.
#include "kernels/philox.h"
#include "src/config/conditions.h"
#include "src/config/fields.h"
#include "src/config/names.h"
#include "src/parts/parts.h"
#include "src/patterns/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace weft {
namespace {
constexpr int64_t kHeadStep = 8, kHeadLeast = 8, kHeadMost = 256;  // head sizes of attention

// Of a convolution, alone or inside another pattern.
bool has_step(const PatternSpec& spec) {
  return spec.step > 1 || std::ranges::any_of(spec.of, has_step);
}

class Check {
 public:
  Check(const Config& config, const Places& places, ConfigUse use)
      : config_(config),
        places_(places),
        use_(use) {}

  void all() const {
    values();
    widths();
    positions();
    attention();
    batches();
    context_schedule();
    parts();
    if (const int64_t token = config_.data.separator; token >= config_.model.vocab)
      refuse({"data.separator", "model.vocab"},
             "data.separator: expected a token below model.vocab ", config_.model.vocab,
             ", or -1 for none, found ", token);
    if (config_.data.separator >= 0 && config_.model.previous_token)
      refuse({"model.previous_token", "data.separator"},
             "model.previous_token: looks across the border of documents; leave data.separator "
             "out");
  }

 private:
  // Throws with the place of the first of `keys` that --set set, else of the first that was set,
  // else of the file.
  template <class... Parts>
  [[noreturn]] void refuse(const std::vector<std::string>& keys, const Parts&... text) const {
    std::string first;
    for (const std::string& key : keys) {
      const auto it = places_.find(key);
      if (it == places_.end()) continue;
      if (it->second.starts_with("--set ")) fail(placed(it->second, str(text...)));
      if (first.empty()) first = it->second;
    }
    if (first.empty()) first = config_.source;
    fail(first, first.empty() ? "" : ": ", text...);
  }

  // Limits of single values, for a struct that code filled: the reader has checked those from YAML.
  void values() const {
    Config copy = config_;
    for_each_field(copy, [&](const Field& field) {
      std::visit([&](const auto& value) { check_value(field, *value); }, field.value);
    });
    const ModelConfig& m = config_.model;
    for (const auto& [key, p] :
         {std::pair{"model.dropout", m.dropout}, {"model.embedding_dropout", m.embedding_dropout}})
      if (dropout_threshold(p) > 0xffff)
        refuse({key}, key, ": expected less than 0.99999 (dropout counts in 65536ths), found ", p);
    if (config_.name.empty() || config_.name.find('/') != std::string::npos ||
        config_.name.starts_with('.'))
      refuse({"name"}, "name: expected the name of a folder, found \"", config_.name, "\"");
  }

  template <class T>
  void check_value(const Field& field, const T& value) const {
    if constexpr (std::is_same_v<T, Enumerated>) {
      if (value.name().empty())
        refuse({field.key}, field.key, ": expected one of ", joined(field.choices),
               ", found another value");
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (!field.range.contains(static_cast<double>(value)))
        refuse({field.key}, field.key, ": expected a number", field.range.text(), ", found ",
               value);
    }
  }

  // features / heads must be a size that attention supports. `ratio` of the width makes the
  // features.
  void head_size(double ratio, const std::vector<std::string>& keys,
                 const std::string& what) const {
    const ModelConfig& m = config_.model;
    const double size = ratio * static_cast<double>(m.width) / static_cast<double>(m.heads);
    const bool works = size == std::floor(size) && static_cast<int64_t>(size) % kHeadStep == 0;
    if (works && size >= kHeadLeast && size <= kHeadMost) return;
    const double unit = static_cast<double>(kHeadStep);
    const double below =
        std::clamp(std::floor(size / unit) * unit, double{kHeadLeast}, double{kHeadMost});
    const double above =
        std::clamp(std::ceil(size / unit) * unit, double{kHeadLeast}, double{kHeadMost});
    const auto width_for = [&](double head) { return head * static_cast<double>(m.heads) / ratio; };
    std::string widths;
    if (const double w = width_for(below); w == std::floor(w))
      widths = str(static_cast<int64_t>(w));
    if (const double w = width_for(above); above != below && w == std::floor(w))
      widths += (widths.empty() ? "" : " or ") + str(static_cast<int64_t>(w));
    refuse(keys, what, " = ", size, ": a head needs a multiple of ", kHeadStep, " from ",
           kHeadLeast, " to ", kHeadMost, " features",
           widths.empty() ? "" : "; with these heads, width " + widths + " works");
  }

  void widths() const {
    const ModelConfig& m = config_.model;
    head_size(1, {"model.heads", "model.width"},
              str("model.width / model.heads = ", m.width, " / ", m.heads));
    head_size(m.qk_ratio, {"model.qk_ratio", "model.heads", "model.width"},
              str("model.qk_ratio * model.width / model.heads = ", m.qk_ratio, " * ", m.width,
                  " / ", m.heads));
    const double hidden = m.mlp_ratio * static_cast<double>(m.width);
    if (hidden < 1 || hidden != std::floor(hidden))
      refuse({"model.mlp_ratio", "model.width"}, "model.mlp_ratio * model.width = ", m.mlp_ratio,
             " * ", m.width, " = ", hidden, ": expected a whole number");
  }

  void positions() const {
    const ModelConfig& m = config_.model;
    const auto& axes = m.position_axes;
    if (axes.empty() || axes.size() > 3)
      refuse({"model.position_axes"}, "model.position_axes: expected 1 to 3 axes, found ",
             axes.size());
    double product = 1;
    for (const int64_t axis : axes) {
      if (axis < 1)
        refuse({"model.position_axes"}, "model.position_axes: expected sizes of at least 1, found ",
               axis);
      product *= static_cast<double>(axis);
    }
    const bool endless =
        m.positions == PositionCode::rotary && axes.size() == 1;  // its angles need no table
    if (endless || product >= static_cast<double>(m.context)) return;
    const double rest = product / static_cast<double>(axes[0]);
    refuse({"model.position_axes", "model.context"}, "model.position_axes give ",
           static_cast<int64_t>(product), " positions, fewer than model.context ", m.context,
           "; a first axis of ",
           static_cast<int64_t>(std::ceil(static_cast<double>(m.context) / rest)), " is enough");
  }

  void attention() const {
    const auto& specs = config_.model.attention;
    if (specs.empty())
      refuse({"model.attention"}, "model.attention: expected at least one pattern");
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const std::string key = str("model.attention[", i, "]");
      std::unique_ptr<AttentionPattern> pattern;
      try {
        pattern = make_pattern(specs[i], static_cast<int>(config_.model.heads));
      } catch (const Error& e) {
        refuse({key, "model.heads"}, "model.attention: ", e.what());
      }
      if (use_ == ConfigUse::model && !pattern->causal())
        refuse({key}, "model.attention: ", pattern->name(),
               " sees later positions, which the model shall predict; ",
               has_step(specs[i]) ? "set causal: true and, of the convolution, step: 1"
                                  : "set causal: true",
               " (inspect draws such patterns, too)");
      if (config_.data.separator >= 0 &&
          !dynamic_ranges(*pattern, static_cast<int>(config_.model.heads)).empty())
        refuse({key, "data.separator"}, "model.attention: ", pattern->name(),
               " takes no documents; leave data.separator out");
      const Lengths most = pattern->lengths();
      if ((most.queries && config_.model.context > most.queries) ||
          (most.keys && config_.model.context > most.keys))
        refuse({key, "model.context"}, "model.attention: ", pattern->name(), " is made for ",
               most.queries, " queries and ", most.keys, " keys; model.context is ",
               config_.model.context);
    }
  }

  void batches() const {
    const TrainConfig& t = config_.train;
    const int64_t ranks = config_.ranks, parts = t.accumulation * ranks;
    if (t.batch % parts == 0) return;
    int64_t below = t.accumulation;
    while (below > 0 && t.batch % (below * ranks) != 0) --below;
    refuse({"train.accumulation", "train.batch"}, "train.accumulation ", t.accumulation,
           ranks > 1 ? str(" on ", ranks, " processes") : "", " does not divide train.batch ",
           t.batch, "; ", below > 0 ? str("accumulation ", below, " or ") : "", "batch ",
           (t.batch / parts + 1) * parts, " works");
  }

  void context_schedule() const {
    const TrainConfig& t = config_.train;
    const int64_t full = config_.model.context, tokens = t.batch * full;
    const int64_t parts = t.accumulation * config_.ranks;
    const std::vector<std::string> keys = {"train.context_schedule", "model.context", "train.batch",
                                           "train.accumulation"};
    const std::string name = "train.context_schedule";
    int64_t previous = -1;
    for (const auto& [step, context] : t.context_schedule) {
      if (previous < 0 && step != 0)
        refuse(keys, name, ": expected the first pair to start at step 0, found ", step);
      if (step <= previous)
        refuse(keys, name, ": expected ascending steps, found ", step, " after ", previous);
      previous = step;
      if (context < 1 || context > full)
        refuse(keys, name, ": expected contexts from 1 to model.context ", full, ", found ",
               context);
      const auto fits = [&](int64_t c) { return tokens % c == 0 && tokens / c % parts == 0; };
      if (fits(context)) continue;
      int64_t below = context, above = context;
      while (below > 1 && !fits(below)) --below;
      while (above < full && !fits(above)) ++above;
      refuse(keys, name, ": the ", tokens,
             " tokens of a step (train.batch * model.context) do not split into ", parts,
             " equal micro-batches of sequences of ", context,
             "; nearest contexts that work: ", below, fits(above) ? str(" and ", above) : "");
    }
  }

  // Keys of parts, and choices that parts bring: by the parts that are built; of others they have
  // to keep their defaults.
  void parts() const {
    Config set = config_, plain;
    std::vector<std::string> defaults;
    for_each_field(plain, [&](const Field& field) { defaults.push_back(value_text(field)); });
    std::size_t at = 0;
    for_each_field(set, [&](const Field& field) {
      if (value_text(field) == defaults[at++]) return;
      std::string absent = absent_part_text(field.key);
      if (absent.empty()) absent = absent_part_text(field.key.substr(0, field.key.find('.')));
      if (absent.empty() && !field.choices.empty()) absent = absent_part_text(value_text(field));
      if (!absent.empty()) refuse({field.key}, field.key, ": ", absent);
    });
    for (const ConfigExtension& extension : config_extensions())
      extension.check(config_, [&](const auto& keys, const auto& text) { refuse(keys, text); });
  }

  const Config& config_;
  const Places& places_;
  ConfigUse use_;
};
}  // namespace

void check_config(const Config& config, const Places& places, ConfigUse use) {
  Check(config, places, use).all();
}

void check_config(const Config& config, ConfigUse use) { check_config(config, {}, use); }
}  // namespace weft
