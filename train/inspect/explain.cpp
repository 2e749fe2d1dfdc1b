// SPDX-License-Identifier: MIT
#include "train/inspect/explain.h"

#include "src/patterns/pattern.h"
#include "train/inspect/tile_text.h"
#include "train/program/counts.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace weft {
namespace {
std::string keys_text(const std::vector<int64_t>& keys) {
  if (keys.empty()) return "no key";
  return str(numbers_text(keys), ": ", keys.size(), keys.size() == 1 ? " key" : " keys");
}

// What a pattern says of itself, and what those say that it is made of.
std::string statement_of(const PatternSpec& spec, const std::string& indent) {
  std::string text;
  for (const PatternKind& kind : patterns())
    if (spec.kind == kind.kind) text = wrapped(spec.kind + ": " + kind.summary, indent);
  if (spec.prefix) text += wrapped(str("of the later keys only those below ", spec.prefix), indent);
  if (!spec.documents.empty())
    text +=
        wrapped("no key of another document; they begin at " + list_text(spec.documents), indent);
  if (spec.length) text += wrapped(str("no key from ", spec.length, " on"), indent);
  for (const PatternSpec& of : spec.of) text += statement_of(of, indent + "  ");
  return text;
}

// A character a key in rows of 64, under their numbers.
std::string keys_drawn(const std::vector<char>& seen, int64_t query) {
  constexpr std::size_t kRow = 64;
  std::string text;
  for (std::size_t first = 0; first < seen.size(); first += kRow) {
    const std::string number = std::to_string(first);
    text += "  " + std::string(5 - number.size(), ' ') + number + "  ";
    for (std::size_t j = first; j < std::min(first + kRow, seen.size()); ++j)
      text += static_cast<int64_t>(j) == query ? (seen[j] ? 'O' : 'o') : seen[j] ? '#' : '.';
    text += '\n';
  }
  return text;
}

std::string predicate_text(const PatternView& view, int64_t query, std::vector<int64_t>& keys) {
  std::vector<char> seen(view.n.keys);
  for (int64_t j = 0; j < view.n.keys; ++j) {
    seen[j] = view.pattern.attends(view.head, query, j) ? 1 : 0;
    if (seen[j]) keys.push_back(j);
  }
  const bool self = view.n.queries == view.n.keys;
  std::string text = str("\n1. Predicate: attends(head ", view.head, ", query ", query,
                         ", key j) is true for these j\n");
  text += statement_of(view.spec, "  ");
  text += wrapped(keys_text(keys), "  ");
  text += str("  64 keys in a row, # attended, . not",
              self ? "; the query's own position is O, or o" : "", "\n");
  return text + keys_drawn(seen, self ? query : -1);
}

std::string runs_text(const PatternView& view, int64_t query) {
  std::vector<KeyRun> runs;
  view.pattern.key_runs(view.head, query, runs);
  std::string text = "\n2. Runs: key_runs() gives the same keys as begin, end and step\n";
  std::vector<std::vector<std::string>> rows = {{"keys", "begin", "end", "step"}};
  for (const KeyRun& run : runs) {
    std::vector<int64_t> keys;
    for (int64_t j = run.begin; j < std::min(run.end, view.n.keys); j += run.step)
      keys.push_back(j);
    rows.push_back({keys_text(keys), std::to_string(run.begin), std::to_string(run.end),
                    std::to_string(run.step)});
  }
  if (runs.empty()) return text + "  none: y = 0 and lse = -inf for this query\n";
  return text + text_table(rows, 1);
}

// Where a query is in the tables of a pass.
struct Row {
  int32_t tile = 0;
  int row = 0;  // in the tile
};

Row row_of(const TileTables& t, int64_t query) {
  const auto slot = std::ranges::find(t.query_order, query) - t.query_order.begin();
  return {static_cast<int32_t>(slot / t.edge), static_cast<int>(slot % t.edge)};
}

std::string slot_text(const TileTables& t, int64_t query, const Row& row) {
  const int64_t slot = int64_t{row.tile} * t.edge + row.row;
  const auto slots = std::span(t.query_order).subspan(std::size_t(row.tile) * t.edge, t.edge);
  const std::string what = str("  Kernels take positions in an order of slots; ", t.edge,
                               " slots in a row are a tile.\n");
  return str("\n3. Slot: query_order[", slot, "] = ", query, ", so query ", query, " has slot ",
             slot, " = ", row.tile, " x ", t.edge, " + ", row.row, "\n") +
         what +
         wrapped(str("It is row ", row.row, " of query tile ", row.tile, ": positions ",
                     slots_text(slots)),
                 "  ");
}

// The keys of an entry that the word of a row names.
std::vector<int64_t> keys_of(const TileTables& t, int64_t entry, int row) {
  std::vector<int64_t> keys;
  for (uint64_t bits = row_word(t, entry, row); bits != 0; bits &= bits - 1)
    keys.push_back(t.key_order[int64_t{t.row_tile[entry]} * t.edge + std::countr_zero(bits)]);
  return keys;
}

std::string tile_list_text(const TileTables& t, const Row& row) {
  const int32_t first = t.row_start[row.tile], end = t.row_start[row.tile + 1];
  std::string text = str("\n4. Tiles: the kernel visits entries row_start[", row.tile,
                         "] = ", first, " to row_start[", row.tile + 1, "] - 1 = ", end - 1, "\n");
  if (first == end) return text + "  none: no query of this tile has a key\n";
  text +=
      "  These are the key tiles in which any query of the tile has a key. All pairs are "
      "computed.\n";
  std::vector<std::vector<std::string>> rows = {
      {"entry", "row_tile", "key slots", "row_mask", "kind", "keys of the query"}};
  for (int32_t entry = first; entry < end; ++entry) {
    const int64_t key = t.row_tile[entry];
    const auto number = [](int64_t value) { return std::to_string(value); };
    rows.push_back({number(entry), number(key), str(key * t.edge, "-", (key + 1) * t.edge - 1),
                    number(t.row_mask[entry]), t.row_mask[entry] == -1 ? "full" : "masked",
                    std::to_string(keys_of(t, entry, row.row).size())});
  }
  text += text_table(rows, 0);
  std::vector<int64_t> skipped;
  for (int32_t key = 0; key < t.key_tiles(); ++key)
    if (entry_of(t, row.tile, key) < 0) skipped.push_back(key);
  return text + wrapped(skipped.empty() ? "no key tile is skipped"
                                        : "skipped key tiles: " + numbers_text(skipped),
                        "  ");
}

// The word of the row in one entry, its bits above the positions of their key slots.
std::string word_text(const TileTables& t, int32_t entry, int row) {
  const int32_t mask = t.row_mask[entry], key = t.row_tile[entry];
  const std::vector<int64_t> keys = keys_of(t, entry, row);
  std::string text = str("  entry ", entry, ", key tile ", key, ": ");
  if (mask == -1)
    return text + "row_mask is -1, no word is read, every bit counts as 1\n" +
           wrapped("keys " + keys_text(keys), "    ");
  char word[24];
  std::snprintf(word, sizeof word, "0x%0*llx", t.edge / 4,
                static_cast<unsigned long long>(row_word(t, entry, row)));
  text += str("masks[", mask, " x ", t.edge, " + ", row, "] = ", word, ", bit 0 first\n");
  std::string bits = "    bits  ";
  for (int bit = 0; bit < t.edge; ++bit) bits += (row_word(t, entry, row) >> bit & 1) ? '1' : '0';
  const auto slots = std::span(t.key_order).subspan(std::size_t(key) * t.edge, t.edge);
  std::string numbers = numbers_downwards(slots, "          ");
  numbers.replace(4, 3, "key");
  return text + bits + "\n" + numbers +
         wrapped(keys.empty() ? "no key of this query: the row is computed and masked as a whole"
                              : "keys " + keys_text(keys),
                 "    ");
}

std::string words_text(const TileTables& t, const Row& row) {
  std::string text = str("\n5. Mask words: bit k of word ", row.row,
                         " says whether the query attends the key in slot k of the tile\n"
                         "  Where it is 0, the score becomes -inf, and the key has no weight.\n");
  for (int32_t entry = t.row_start[row.tile]; entry < t.row_start[row.tile + 1]; ++entry)
    text += word_text(t, entry, row.row);
  return text;
}

std::string band_text(const TilePass& pass, Lengths n, int64_t query) {
  if (!pass.band) return "";
  std::vector<int64_t> keys;
  for (int64_t j = 0; j < n.keys; ++j)
    if (pass.band.attends(query, j)) keys.push_back(j);
  return wrapped(str("This pass is also a band of stride ", pass.band.stride, " and reach ",
                     pass.band.reach, ": kernels for bands find ",
                     keys.empty() ? "that it has no key" : str("keys ", numbers_text(keys)),
                     " from these two numbers, without tiles."),
                 "  ");
}
}  // namespace

void check_explained(Lengths n, int64_t query) {
  if (std::max(n.queries, n.keys) > kMostExplained)
    fail("--explain shows every key of a query, of at most ", kMostExplained, " positions, got ",
         std::max(n.queries, n.keys), ": add --n 64, and --set or --attention for a short stride");
  if (query < 0 || query >= n.queries)
    fail("--query must be between 0 and ", n.queries - 1, " (the length is ", n.queries, "), got ",
         query);
}

std::string explain_text(const PatternView& view, const HeadTiles& tiles, int64_t query) {
  check_explained(view.n, query);
  std::string text = wrapped(str(title_of(view), ", query ", query), "");
  std::vector<int64_t> needed, found;
  text += predicate_text(view, query, needed);
  text += runs_text(view, query);
  const std::size_t passes = tiles.passes().size();
  if (passes > 1)
    text += str("\nThe keys are split over ", passes,
                " passes, each with an order of slots of its own.\n");
  int64_t executed = 0;
  for (std::size_t p = 0; p < passes; ++p) {
    const TilePass& pass = tiles.passes()[p];
    const TileTables& t = *pass.tables;
    const Row row = row_of(t, query);
    if (passes > 1)
      text += "\n" + wrapped(str("Pass ", p + 1, " of ", passes, ": ", pass.name), "");
    text += slot_text(t, query, row) + tile_list_text(t, row) + words_text(t, row);
    text += band_text(pass, view.n, query);
    for (int32_t entry = t.row_start[row.tile]; entry < t.row_start[row.tile + 1]; ++entry) {
      const std::vector<int64_t> keys = keys_of(t, entry, row.row);
      found.insert(found.end(), keys.begin(), keys.end());
      executed += t.edge;
    }
  }
  std::ranges::sort(found);
  WEFT_CHECK(found == needed, view.pattern.name(), ": the tile tables give query ", query, " ",
             keys_text(found), ", and the predicate ", keys_text(needed));
  return text + "\n6. Together: the words give the keys of the predicate\n" +
         wrapped(keys_text(found), "  ") +
         str("  a kernel computes ", executed, " scores for this query and keeps ", found.size(),
             "\n");
}
}  // namespace weft
