// SPDX-License-Identifier: MIT
#include "data/items.h"

#include "kernels/view.h"
#include "src/parts/parts.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace weft {
namespace {
std::vector<ItemKind>& table() {
  static std::vector<ItemKind> kinds;
  return kinds;
}

const std::vector<ItemKind>& kinds() {
  register_parts();
  return table();
}

void refuse_items(const TokenDataset& data) {
  if (data.image())
    fail(data.path(), ": has images of ", data.image().text(), "; ", absent_part_text("images"));
}
}  // namespace

void add_item_kind(const ItemKind& kind) { table().push_back(kind); }

std::unique_ptr<ItemBatches> item_batches(const Config& config, const TokenDataset& train,
                                          const TokenDataset* mix) {
  for (const ItemKind& kind : kinds())
    if (auto batches = kind.batches(config, train, mix)) return batches;
  refuse_items(train);
  return nullptr;
}

std::unique_ptr<ItemView> item_view(const Config& config, const TokenDataset& data) {
  for (const ItemKind& kind : kinds())
    if (auto view = kind.view(config, data)) return view;
  refuse_items(data);
  return nullptr;
}

bool asks_for_items(const Config& config) {
  return std::ranges::any_of(kinds(), [&](const ItemKind& kind) { return kind.asked_for(config); });
}

std::vector<std::string> item_summaries(const Config& config) {
  std::vector<std::string> lines;
  for (const ItemKind& kind : kinds()) lines.push_back(kind.summary(config));
  return lines;
}
}  // namespace weft
