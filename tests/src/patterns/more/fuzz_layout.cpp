// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as a .npy file, as a layout, as tile tables. The first byte chooses the size
// of a block and whether the layout is causal. Only Error may come out.
#include "src/patterns/more/layout.h"
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"

#include <cstddef>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    weft::BlockLayout layout = weft::parse_block_layout(bytes, "fuzz");
    layout.block = int64_t{8} << (data[0] & 3);
    layout.causal = data[0] & 4;
    if (data[0] & 8)
      layout.keep = [](int head, auto i, auto j) { return (head + i * 3 + j) % 4 != 0; };
    const auto heads = static_cast<int>(layout.heads == 1 ? 2 : layout.heads);
    const auto pattern = weft::layout_pattern(layout, heads);
    const weft::Lengths most = pattern->lengths();
    if (most.queries > 1024 || most.keys > 1024) return 0;  // tables of long ones only take time
    for (const int edge : {weft::kTile, weft::kSmallTile})
      weft::build_tile_tables(*pattern, heads - 1, most, edge);
  } catch (const weft::Error&) {}
  return 0;
}
