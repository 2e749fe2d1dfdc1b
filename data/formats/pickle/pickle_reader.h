// SPDX-License-Identifier: MIT
// The pickle machine: opcodes push values on a stack, marks cut it, a memo names values. What plain data
// needs of it, bounds included; classes are recognised by name and never looked up.
#pragma once

#include <optional>

#include "data/formats/pickle/pickle.h"
#include "kernels/view.h"

namespace weft {

class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}
  Pickle read();

 private:
  using Kind = PickleValue::Kind;
  // A value and what only building it needs.
  struct Slot {
    PickleValue* value;
    int depth = 1;        // 1 + that of the deepest item
    bool placed = false;  // inside another value: nothing is added to it any more, so there are no cycles
  };
  using Index = std::uint32_t;

  [[noreturn]] void bad(const std::string& what) const {
    fail(str(where_, ": is no pickle of plain data: ", what, " (opcode at byte ", opcode_at_, ")"));
  }
  void require(bool good, const char* what) const {
    if (!good) bad(what);
  }

  // What follows in the bytes.
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_)
      bad(str("it is truncated: ", count, " bytes should follow, ", bytes_.size() - at_, " do"));
    const std::string_view piece = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return piece;
  }
  std::uint64_t number(int size) { return unsigned_of(take(static_cast<std::uint64_t>(size))); }
  static std::uint64_t unsigned_of(std::string_view little_endian) {
    std::uint64_t value = 0;
    for (std::size_t k = little_endian.size(); k-- > 0;)
      value = value << 8 | static_cast<std::uint8_t>(little_endian[k]);
    return value;
  }
  static std::int64_t signed_of(std::string_view little_endian) {
    const auto unused = static_cast<int>(64 - 8 * little_endian.size());
    return unused == 64 ? 0 : static_cast<std::int64_t>(unsigned_of(little_endian) << unused) >> unused;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > 128) bad("a name does not end");
    const std::string_view text = take(end - at_);
    ++at_;
    return text;
  }

  // The stack. Nothing below the last mark is touched.
  Index push(Kind kind);
  void push_text(Kind kind, std::string_view text) { value(push(kind)).text = text; }
  void push_integer(std::int64_t integer, Kind kind = Kind::integer) { value(push(kind)).integer = integer; }
  Index pop() {
    require(stack_.size() > floor(), "a value is missing on the stack");
    const Index top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Index top() const {
    require(stack_.size() > floor(), "a value is missing on the stack");
    return stack_.back();
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<Index> pop_to_mark() {
    require(!marks_.empty(), "a mark is missing on the stack");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Index> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  PickleValue& value(Index slot) { return *slots_[slot].value; }

  void run(char opcode);
  bool run_scalar(char opcode);
  bool run_container(char opcode);
  bool run_memo(char opcode);
  bool run_object(char opcode);
  void append(Index container, const std::vector<Index>& items, Kind kind);
  void make_tuple(const std::vector<Index>& items);
  void remember(std::uint64_t key, Index slot);
  void recall(std::uint64_t key);

  // Classes.
  void push_global(std::string_view module, std::string_view name);
  void reduce(const PickleValue& function, const PickleValue& arguments);
  void push_encoded(const PickleValue& arguments);
  void push_dtype(const PickleValue& arguments);
  void build(PickleValue& object, const PickleValue& state);
  void set_byte_order(PickleValue& dtype, const PickleValue& state);
  void fill(PickledArray& array, const PickleValue& shape, const PickleValue& dtype, bool column_major,
            std::string_view data);
  const PickleValue& item(const PickleValue& tuple, std::size_t index, Kind kind, const char* what) const;

  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::size_t decoded_bytes_ = 0;
  Pickle pickle_;
  std::vector<Slot> slots_;
  std::vector<Index> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::optional<Index>> memo_;
};

}  // namespace weft
