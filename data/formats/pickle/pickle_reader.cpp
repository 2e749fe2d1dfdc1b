// SPDX-License-Identifier: MIT
// The opcodes of plain values, containers and the memo.
#include "data/formats/pickle/pickle_reader.h"

#include <algorithm>
#include <bit>

namespace weft {

using Kind = PickleValue::Kind;

namespace {

constexpr std::size_t kMostValues = std::size_t{1} << 21;  // some 200 MB of them
constexpr int kMostDepth = 32;

}  // namespace

Pickle PickleReader::read() {
  for (;;) {
    opcode_at_ = at_;
    const char opcode = take(1)[0];
    if (opcode == '.') break;
    run(opcode);
  }
  const Index root = pop();
  require(stack_.empty() && marks_.empty(), "values are left on the stack at its end");
  require(value(root).kind != Kind::other, "it holds a class, not data");
  if (value(root).kind == Kind::array) require(value(root).array->array.item > 0, "an array is not filled");
  if (at_ != bytes_.size()) bad(str(bytes_.size() - at_, " bytes follow its end"));
  pickle_.root_ = &value(root);
  return std::move(pickle_);
}

PickleReader::Index PickleReader::push(Kind kind) {
  if (slots_.size() == kMostValues) bad(str("it has more than ", kMostValues, " values"));
  pickle_.values_.emplace_back().kind = kind;
  slots_.push_back({&pickle_.values_.back()});
  stack_.push_back(static_cast<Index>(slots_.size() - 1));
  return stack_.back();
}

void PickleReader::run(char opcode) {
  if (run_scalar(opcode) || run_container(opcode) || run_memo(opcode) || run_object(opcode)) return;
  const auto code = static_cast<unsigned char>(opcode);
  constexpr const char* kDigits = "0123456789abcdef";
  const std::string hex = {'0', 'x', kDigits[code >> 4], kDigits[code & 15]};
  bad(str("opcode ", hex, code > ' ' && code < 127 ? str(" ('", opcode, "')") : "",
          " is none that plain data needs"));
}

bool PickleReader::run_scalar(char opcode) {
  switch (opcode) {
    case 'N': push(Kind::none); return true;
    case '\x88': push_integer(1, Kind::boolean); return true;
    case '\x89': push_integer(0, Kind::boolean); return true;
    case 'J': push_integer(signed_of(take(4))); return true;
    case 'K': push_integer(static_cast<std::int64_t>(number(1))); return true;
    case 'M': push_integer(static_cast<std::int64_t>(number(2))); return true;
    case '\x8a': {
      const std::uint64_t size = number(1);
      if (size > 8) bad(str("an integer of ", size, " bytes; at most 8 are read"));
      push_integer(signed_of(take(size)));
      return true;
    }
    case 'G': {  // big-endian
      std::uint64_t bits = 0;
      for (const char c : take(8)) bits = bits << 8 | static_cast<std::uint8_t>(c);
      value(push(Kind::real)).real = std::bit_cast<double>(bits);
      return true;
    }
    case 'U':
    case 'C': push_text(Kind::bytes, take(number(1))); return true;
    case 'T':
    case 'B': push_text(Kind::bytes, take(number(4))); return true;
    case '\x8e':
    case '\x96': push_text(Kind::bytes, take(number(8))); return true;
    case '\x8c': push_text(Kind::text, take(number(1))); return true;
    case 'X': push_text(Kind::text, take(number(4))); return true;
    case '\x8d': push_text(Kind::text, take(number(8))); return true;
    default: return false;
  }
}

bool PickleReader::run_container(char opcode) {
  switch (opcode) {
    case '(': marks_.push_back(stack_.size()); return true;
    case ']': push(Kind::list); return true;
    case '}': push(Kind::dict); return true;
    case ')': push(Kind::tuple); return true;
    case 't': make_tuple(pop_to_mark()); return true;
    case '\x85':
    case '\x86':
    case '\x87': {
      std::vector<Index> items(static_cast<std::size_t>(static_cast<unsigned char>(opcode) - 0x84));
      for (auto i = items.rbegin(); i != items.rend(); ++i) *i = pop();
      make_tuple(items);
      return true;
    }
    case 'l': {
      const auto items = pop_to_mark();
      append(push(Kind::list), items, Kind::list);
      return true;
    }
    case 'd': {
      const auto items = pop_to_mark();
      append(push(Kind::dict), items, Kind::dict);
      return true;
    }
    case 'a': {
      const Index last = pop();
      append(top(), {last}, Kind::list);
      return true;
    }
    case 'e': {
      const auto items = pop_to_mark();
      append(top(), items, Kind::list);
      return true;
    }
    case 's': {
      const Index last = pop(), key = pop();
      append(top(), {key, last}, Kind::dict);
      return true;
    }
    case 'u': {
      const auto items = pop_to_mark();
      append(top(), items, Kind::dict);
      return true;
    }
    default: return false;
  }
}

void PickleReader::append(Index container, const std::vector<Index>& items, Kind kind) {
  Slot& into = slots_[container];
  if (into.value->kind != kind) bad(str("items for ", name_of(kind), " that is ", name_of(into.value->kind)));
  require(!into.placed || items.empty(), "a value grows after it was put into another");
  require(kind != Kind::dict || items.size() % 2 == 0, "a key without a value");
  for (const Index item : items) {
    require(item != container, "a value inside itself");
    Slot& inner = slots_[item];
    if (inner.value->kind == Kind::array)
      require(inner.value->array->array.item > 0, "an array is not filled");
    require(kind == Kind::tuple || inner.value->kind != Kind::other, "a class among the data");
    inner.placed = true;
    into.depth = std::max(into.depth, inner.depth + 1);
    into.value->items.push_back(inner.value);
  }
  if (into.depth > kMostDepth) bad(str("values lie more than ", kMostDepth, " deep in each other"));
}

void PickleReader::make_tuple(const std::vector<Index>& items) {
  append(push(Kind::tuple), items, Kind::tuple);
}

bool PickleReader::run_memo(char opcode) {
  switch (opcode) {
    case 'q': remember(number(1), top()); return true;
    case 'r': remember(number(4), top()); return true;
    case '\x94': remember(memo_.size(), top()); return true;
    case 'h': recall(number(1)); return true;
    case 'j': recall(number(4)); return true;
    default: return false;
  }
}

void PickleReader::remember(std::uint64_t key, Index slot) {
  if (key >= kMostValues) bad(str("memo entry ", key, "; at most ", kMostValues, " are read"));
  if (key >= memo_.size()) memo_.resize(static_cast<std::size_t>(key) + 1);
  memo_[static_cast<std::size_t>(key)] = slot;
}

void PickleReader::recall(std::uint64_t key) {
  if (key >= memo_.size() || !memo_[static_cast<std::size_t>(key)])
    bad(str("memo entry ", key, " was never made"));
  stack_.push_back(*memo_[static_cast<std::size_t>(key)]);
}

bool PickleReader::run_object(char opcode) {
  switch (opcode) {
    case '\x80': {
      const std::uint64_t protocol = number(1);
      if (opcode_at_ != 0 || protocol > 5)
        bad(str("protocol ", protocol, "; expected 2 to 5, at its beginning alone"));
      return true;
    }
    case '\x95': {  // a frame only helps those who read a stream
      const std::uint64_t size = number(8);
      if (size > bytes_.size() - at_) bad(str("it is truncated: a frame of ", size, " bytes"));
      return true;
    }
    case 'c': {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case '\x93': {
      const PickleValue& name = value(pop());
      const PickleValue& module = value(pop());
      require(name.kind == Kind::text && module.kind == Kind::text, "a class without a name");
      push_global(module.text, name.text);
      return true;
    }
    case 'R': {
      const PickleValue& arguments = value(pop());
      const PickleValue& function = value(pop());
      require(function.kind == Kind::other && arguments.kind == Kind::tuple, "a call of what is no function");
      reduce(function, arguments);
      return true;
    }
    case 'b': {
      const PickleValue& state = value(pop());
      build(value(top()), state);
      return true;
    }
    default: return false;
  }
}

}  // namespace weft
