// SPDX-License-Identifier: MIT
// libFuzzer: any bytes as a pickle, whose values are looked at as data sets do. Only Error may come out.
#include "data/formats/pickle/pickle.h"
#include "kernels/view.h"

namespace {

template <class Call>
void or_error(Call&& call) {
  try {
    call();
  } catch (const weft::Error&) {}
}

void look_at(const weft::PickleValue& value) {
  or_error([&] { weft::pickled_integers(value, "fuzz", "labels"); });
  if (value.array && value.array->array.data.size() < 1 << 20) weft::row_major_bytes(*value.array);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  or_error([&] {
    const weft::Pickle pickle = weft::parse_pickle({reinterpret_cast<const char*>(data), size}, "fuzz");
    look_at(pickle.root());
    for (const char* key : {"data", "labels"})
      if (const weft::PickleValue* value = pickle.root().find(key)) look_at(*value);
  });
  return 0;
}
