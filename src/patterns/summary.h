// SPDX-License-Identifier: MIT
// The summary positions of fixed attention: of every block of l = `stride` positions the c from first(head)
// on. Heads take sub-blocks in turn, the last one first. c is given, or, in blocks as OpenAI's code has it,
// `block` and `vertsize`: c = vertsize * block.
#pragma once

#include "src/patterns/pattern.h"

namespace weft {

struct SummaryPositions {
  std::int64_t l = 0, c = 0, num_verts = 1;

  // Throws Error that names the wrong field of a pattern of this kind.
  static SummaryPositions of(const char* kind, const PatternSpec&, int heads);
  static std::vector<std::string> fields(const PatternSpec&);  // that of() reads

  std::string text() const;  // "(stride 128, c 32, num_verts 4)"
  int groups(int heads) const { return heads < num_verts ? heads : static_cast<int>(num_verts); }
  int group(int head) const { return static_cast<int>(head % num_verts); }

  std::int64_t first(int head) const { return l - (head % num_verts + 1) * c; }
  bool contains(int head, std::int64_t j) const {
    const std::int64_t offset = j % l - first(head);
    return offset >= 0 && offset < c;
  }
  // Of a summary position among all of them, and how many there are below n.
  std::int64_t rank(int head, std::int64_t j) const { return j / l * c + j % l - first(head); }
  std::int64_t count(int head, std::int64_t n) const;
  // The summaries of the blocks that begin below `end`, appended.
  void runs(int head, std::int64_t end, std::vector<KeyRun>&) const;
};

}  // namespace weft
