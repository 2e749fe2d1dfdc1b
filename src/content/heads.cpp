// SPDX-License-Identifier: MIT
#include "src/content/heads.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace weft {
std::unique_ptr<DynamicHeads> content_heads(ParameterStore& store, const std::string& name,
                                            const DynamicLayer& layer) {
  return std::make_unique<ContentHeads>(store, name, layer);
}

ContentHeads::ContentHeads(ParameterStore& store, const std::string& name, const DynamicLayer& of)
    : layer_{dynamic_ranges(*of.pattern, static_cast<int>(of.shape.heads)), of.context, of.seed,
             of.number, of.normed},
      shape_(of.shape),
      centroids_(layer_.heads.size()) {
  const Init init = Init::normal(1 / std::sqrt(static_cast<double>(shape_.qk_size)));
  for (std::size_t i = 0; i < centroids_.size(); ++i) {
    const auto& [spec, heads, tiles, passes] = layer_.heads[i];
    if (spec.kind == "routing")  // rank 1: no decay
      centroids_[i] =
          store.add(str(name, ".centroids.", i), {heads.count * spec.clusters * shape_.qk_size},
                    init, ParamKind::wide);
  }
}

std::vector<Var> ContentHeads::centroids(const ParameterStore& store) const {
  std::vector<Var> vars;
  for (const Param& p : centroids_) vars.push_back(p.index < 0 ? Var{} : store.var(p));
  return vars;
}

std::vector<std::shared_ptr<const DynamicMaps>> ContentHeads::maps(Ctx& ctx,
                                                                   const ParameterStore& store,
                                                                   MapCache& cache,
                                                                   const Tensor& packed) const {
  const auto made = content_maps(ctx, layer_, cache, packed, shape_, centroids(store));
  return {made.begin(), made.end()};
}

void ContentHeads::rotated(Ctx& ctx, const Tensor& packed) const {
  share_keys(ctx, layer_, packed, shape_);
}

int64_t ContentHeads::bytes(int64_t batch, int64_t time, bool training) const {
  return content_bytes(layer_, shape_, batch, time, training);
}

std::unique_ptr<DynamicCache> ContentHeads::make_cache(Device& device, int64_t batch,
                                                       int64_t length,
                                                       const int32_t* position) const {
  return std::make_unique<ContentCache>(device, *this, batch, length, position);
}
}  // namespace weft
