// SPDX-License-Identifier: MIT
// Errors of C functions: a status code, and a text for the thread that called. Each C library has
// its own, which the C functions of that library hand out.
#pragma once

#include "kernels/view.h"
#include "src/capi/weft_attention.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace weft::capi {
struct StatusError : Error {
  weft_status status;

  StatusError(weft_status s, const std::string& what)
      : Error(what),
        status(s) {}
};

// The argument at fault comes first in every text.
template <class... Args>
void require(bool condition, const Args&... text) {
  if (!condition) throw StatusError(WEFT_INVALID_ARGUMENT, str(text...));
}

template <class... Args>
[[noreturn]] void unsupported(const Args&... text) {
  throw StatusError(WEFT_UNSUPPORTED, str(text...));
}

// Keeps the text for last_error() of this thread. Allocates nothing.
weft_status failed(weft_status, const char* text) noexcept;
const char* last_error() noexcept;  // "" before the first error

// Runs the body of a C function: nothing is thrown beyond it. An Error without a code of its own
// gets `code`.
template <class F>
weft_status guarded(weft_status code, F&& body) noexcept {
  try {
    body();
    return WEFT_OK;
  } catch (const StatusError& e) {
    return failed(e.status, e.what());
  } catch (const Error& e) {
    return failed(code, e.what());
  } catch (const std::bad_alloc&) {
    return failed(WEFT_OUT_OF_MEMORY, "out of memory on the host");
  } catch (const std::length_error&) {
    return failed(WEFT_OUT_OF_MEMORY, "out of memory on the host");
  } catch (const std::exception& e) {
    return failed(WEFT_INTERNAL_ERROR, e.what());
  } catch (...) {
    return failed(WEFT_INTERNAL_ERROR,
                  "an exception of unknown type, perhaps thrown by a callback");
  }
}

// A struct given by a C caller, whose first field is its size.
template <class T>
const T& checked_struct(const char* name, const T* given) {
  require(given != nullptr, name, " is NULL");
  require(given->size >= sizeof(T), name, ".size must be sizeof(*", name, ") = ", sizeof(T),
          ", got ", given->size);
  if (given->size > sizeof(T))
    unsupported(name, ".size is ", given->size, ", this library knows ", sizeof(T),
                " bytes of it: the program was made for a newer version");
  return *given;
}

// The handle that make() returns, or NULL.
template <class T, class Make>
weft_status create(const char* name, T** handle, const Make& make) {
  return guarded(WEFT_INVALID_ARGUMENT, [&] {
    require(handle != nullptr, name, " is NULL");
    *handle = nullptr;
    *handle = make().release();
  });
}
}  // namespace weft::capi
