// SPDX-License-Identifier: MIT
#include "src/files/checkpoint.h"

#include "src/files/hdf5.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace weft {
namespace {
struct Group {
  const char* path;
  Tensor block;
};

StoredType stored_type(DType t) {
  WEFT_CHECK(t == DType::f32 || t == DType::f64, "master weights are f32 or f64, got ", name_of(t));
  return t == DType::f64 ? StoredType::f64 : StoredType::f32;
}

std::string path_in(const std::string& group, const ParamInfo& p) { return group + "/" + p.name; }

std::vector<Group> groups_of(const ParameterStore& store) {
  std::vector<Group> groups{{"/params", store.master()}};
  if (store.m())
    groups.insert(groups.end(), {{"/optimizer/m", store.m()}, {"/optimizer/v", store.v()}});
  if (store.ema()) groups.push_back({"/ema", store.ema()});
  return groups;
}

void write_group(Hdf5File& file, Device& device, const ParameterStore& store, const Group& group) {
  std::vector<char> values;
  store.visit_whole(group.block, [&](const ParamInfo& p, const TensorView& view) {
    values.resize(view.bytes());
    device.download(values.data(), view);
    file.write(path_in(group.path, p), stored_type(view.dtype), p.shape, values.data());
  });
}

template <class Number>
void check_numbers(const std::string& where, bool squares, const std::vector<char>& values) {
  for (std::size_t at = 0; at < values.size(); at += sizeof(Number)) {
    Number value;
    std::memcpy(&value, &values[at], sizeof value);
    if (!std::isfinite(value) || (squares && value < 0))
      fail(where, " holds ", value, " (element ", at / sizeof value, "), expected ",
           squares ? "means of squares" : "finite numbers");
  }
}

// Calls use(param, values) for each array of the group, of which one is in memory at a time.
template <class Use>
void read_group(const Hdf5File& file, const ParameterStore& store, const Group& group, Use use) {
  const DType dtype = group.block.dtype();
  std::vector<char> values;
  for (const ParamInfo& p : store.params()) {
    values.resize(p.size * size_of(dtype));
    file.read(path_in(group.path, p), stored_type(dtype), p.shape, values.data());
    use(p, values);
  }
}

void check_values(const Hdf5File& file, const ParameterStore& store, const Group& group) {
  read_group(file, store, group, [&](const ParamInfo& p, const std::vector<char>& values) {
    const std::string where = str(file.path(), ": ", path_in(group.path, p));
    const bool squares = std::string_view(group.path) == "/optimizer/v";
    group.block.dtype() == DType::f64 ? check_numbers<double>(where, squares, values)
                                      : check_numbers<float>(where, squares, values);
  });
}

void upload_group(const Hdf5File& file, const ParameterStore& store, const Group& group) {
  read_group(file, store, group, [&](const ParamInfo& p, const std::vector<char>& values) {
    store.upload(group.block, p, values.data());
  });
}

// The arrays of a group must be exactly the parameters of the store.
void check_group(const Hdf5File& file, const ParameterStore& store, const std::string& group) {
  const std::string other = file.path() + ": checkpoint of another model: ";
  const std::vector<std::string> names = file.list(group);
  std::set<std::string> there(names.begin(), names.end());
  for (const ParamInfo& p : store.params()) {
    const std::string path = path_in(group, p);
    if (there.erase(path) == 0)
      fail(other, p.name, " is ", shape_text(p.shape), " here and missing there (", group, ")");
    if (const Shape shape = file.shape_of(path); shape != p.shape)
      fail(other, p.name, " is ", shape_text(p.shape), " here and ", shape_text(shape), " there (",
           group, ")");
  }
  if (!there.empty())
    fail(other, there.begin()->substr(group.size() + 1), " is missing here and ",
         shape_text(file.shape_of(*there.begin())), " there (", group, ")");
}

template <class T>
T required(const Hdf5File& file, const char* name, const std::optional<T>& value) {
  if (!value) fail(file.path(), ": has no attribute ", name, ", which every checkpoint has");
  return *value;
}

int64_t required_int(const Hdf5File& file, const char* name) {
  return required(file, name, file.int_attribute(name));
}

double required_real(const Hdf5File& file, const char* name) {
  return required(file, name, file.real_attribute(name));
}

Hdf5File open_checkpoint(const std::string& path) {
  Hdf5File file = Hdf5File::open(path);
  if (!file.has("/params"))
    fail(path, ": is not a checkpoint (it has no group /params)",
         file.has("/train") ? "; it looks like a data file made by prepare" : "");
  if (const int64_t format = required_int(file, "format"); format != kCheckpointFormat)
    fail(path, ": is of checkpoint format ", format, "; this program reads format ",
         kCheckpointFormat);
  return file;
}

TrainState read_state(const Hdf5File& file) {
  const TrainState state{
      .step = required_int(file, "step"),
      .updates = required_int(file, "updates"),
      .loss_scale = required_real(file, "loss_scale"),
      .good_steps = required_int(file, "good_steps"),
      .best_valid_bits = required_real(file, "best_valid_bits"),
      .seed = std::bit_cast<uint64_t>(required_int(file, "seed")),
  };
  const auto refuse = [&](const char* name, auto value, const char* expected) {
    fail(file.path(), ": attribute ", name, " is ", value, ", expected ", expected);
  };
  if (state.step < 0) refuse("step", state.step, "0 or more");
  if (state.updates < 0 || state.updates > state.step)
    refuse("updates", state.updates, "0 to step");
  if (!std::isfinite(state.loss_scale) || state.loss_scale <= 0)
    refuse("loss_scale", state.loss_scale, "a positive number");
  if (state.good_steps < 0) refuse("good_steps", state.good_steps, "0 or more");
  if (!std::isfinite(state.best_valid_bits) || state.best_valid_bits < 0)
    refuse("best_valid_bits", state.best_valid_bits, "0 or more");
  return state;
}
}  // namespace

int64_t step_of_name(const std::string& file) {
  if (file.size() != 16 || !file.starts_with("step_") || !file.ends_with(".h5")) return -1;
  const std::string digits = file.substr(5, 8);
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::atoll(digits.c_str());
}

void save_checkpoint(const std::string& path, Device& device, const ParameterStore& store,
                     const TrainState& state, const std::string& config_yaml) {
  Hdf5File file = Hdf5File::create(path);
  file.set_attribute("format", kCheckpointFormat);
  file.set_attribute("config", config_yaml);
  file.set_attribute("step", state.step);
  file.set_attribute("updates", state.updates);
  file.set_real_attribute("loss_scale", state.loss_scale);
  file.set_attribute("good_steps", state.good_steps);
  file.set_real_attribute("best_valid_bits", state.best_valid_bits);
  file.set_attribute("seed", std::bit_cast<int64_t>(state.seed));
  for (const Group& group : groups_of(store)) write_group(file, device, store, group);
  file.commit();
}

void join_save_checkpoint(const ParameterStore& store) {
  for (const Group& group : groups_of(store))
    store.visit_whole(group.block, [](const ParamInfo&, const TensorView&) {});
}

TrainState load_checkpoint(const std::string& path, Device& device, ParameterStore& store,
                           bool use_ema) {
  const Hdf5File file = open_checkpoint(path);
  const bool moving_average = use_ema || store.ema();
  if (moving_average && !file.has("/ema"))
    fail(path, ": holds no moving average of the weights (it was trained with train.ema_decay 0)");
  if (store.m() && !file.has("/optimizer"))
    fail(path, ": holds no optimizer state, so that training cannot go on from it");
  const TrainState state = read_state(file);
  std::vector<Group> groups = groups_of(store);
  if (use_ema) groups[0].path = "/ema";
  for (const Group& group : groups) check_group(file, store, group.path);
  for (const Group& group : groups) check_values(file, store, group);
  for (const Group& group : groups) upload_group(file, store, group);
  Ctx ctx{.queue = &device.queue, .pool = device.pool.get()};
  store.refresh_compute(ctx);
  device.synchronize();
  return state;
}

std::string checkpoint_config(const std::string& path) {
  const Hdf5File file = open_checkpoint(path);
  return required(file, "config", file.text_attribute("config"));
}

bool checkpoint_has_ema(const std::string& path) { return open_checkpoint(path).has("/ema"); }

WeightsFile checkpoint_weights(const std::string& path, bool last) {
  const auto file = std::make_shared<Hdf5File>(open_checkpoint(path));
  WeightsFile weights{
      .path = path,
      .config = required(*file, "config", file->text_attribute("config")),
  };
  weights.step = read_state(*file).step;
  weights.ema = !last && file->has("/ema");
  const std::string group = weights.ema ? "/ema/" : "/params/";
  for (const std::string& dataset : file->list(group)) {
    if (file->type_of(dataset) != StoredType::f32)
      fail(path, ": ", dataset, " is ", name_of(file->type_of(dataset)), ", expected f32");
    weights.shapes[dataset.substr(group.size())] = file->shape_of(dataset);
  }
  weights.read = [file, group](const std::string& name) {
    const Shape shape = file->shape_of(group + name);
    const auto size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    std::vector<float> values(size);
    file->read(group + name, StoredType::f32, shape, values.data());
    return values;
  };
  return weights;
}
}  // namespace weft
