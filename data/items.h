// SPDX-License-Identifier: MIT
// Data whose items are read whole, as images are. The core reads streams of tokens; a part adds an
// ItemKind (src/parts/parts.h).
#pragma once

#include "data/dataset.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {
struct Config;

// Sequences in host memory; see Sequences in src/ops.h. Empty where they are absent.
struct HostBatch {
  std::vector<int32_t> tokens, offsets, positions, conditions;
};

// The items that updates are trained on.
class ItemBatches {
 public:
  virtual ~ItemBatches() = default;
  // Items first .. first + count - 1 of update `step`. out.tokens has room for them.
  virtual void read(int64_t step, int64_t first, int64_t count, HostBatch& out) const = 0;
};

// How an evaluation gives items to a model.
class ItemView {
 public:
  virtual ~ItemView() = default;
  virtual int64_t conditions() const = 0;    // of an item
  virtual bool moves_positions() const = 0;  // true: items carry positions of their own
  // Changes the tokens of item `item` of the data in place, and writes what goes with them.
  // `positions` is empty unless moves_positions().
  virtual void apply(int64_t item, std::span<int32_t> tokens, std::span<int32_t> positions,
                     std::span<int32_t> conditions) const = 0;
};

struct ItemKind {
  // Null: the data is a stream. Throws Error, naming keys and shapes, when data and config differ.
  // `mix`: the data of data.mix, or null.
  std::unique_ptr<ItemBatches> (*batches)(const Config&, const TokenDataset& train,
                                          const TokenDataset* mix);
  // Null: the data is a stream. Throws Error when the model is made for other data.
  std::unique_ptr<ItemView> (*view)(const Config&, const TokenDataset&);
  // Whether the config asks for items, so that random data to time it on has to have them.
  bool (*asked_for)(const Config&);
  std::string (*summary)(const Config&);  // a line of what training says first
};

// The table: a part adds a row.
void add_item_kind(const ItemKind&);

// The first row that reads the data. Null for a stream. Throws Error for items that no row reads.
std::unique_ptr<ItemBatches> item_batches(const Config&, const TokenDataset& train,
                                          const TokenDataset* mix);
std::unique_ptr<ItemView> item_view(const Config&, const TokenDataset&);
bool asks_for_items(const Config&);
std::vector<std::string> item_summaries(const Config&);
}  // namespace weft
