// SPDX-License-Identifier: MIT
// Part of every program: what runs before its libraries start.
#include <cstddef>
#include <unistd.h>

namespace {
bool sets(const char* variable, const char* name) {  // "NAME=value"; `name` ends in "="
  while (*name != '\0' && *variable == *name) ++variable, ++name;
  return *name == '\0';
}

// from its "=" on; null where it is not set
const char* value_of(char** environment, const char* name) {
  for (; *environment != nullptr; ++environment)
    if (sets(*environment, name)) {
      const char* value = *environment;
      while (*value != '=') ++value;
      return value + 1;
    }
  return nullptr;
}

// Libraries read their settings when they start, so this process starts once more with these:
// - Idle OpenMP threads spin. On shared cores that slows a training step 20 times (2 cores, load
// 6); threads
//   that sleep at once cost a small model a fifth of its step. So they spin for 0.1 ms (libgomp's
//   count). OMP_WAIT_POLICY overrides.
// - GEMMs run on OpenMP's threads. Each of OpenBLAS's own asks for 128 MiB at its start, and for
// ever where
//   memory is short.
// The C library is hardly ready here.
void set_up_libraries(int, char** argv, char** environment) {
  constexpr std::size_t kMost = 4096;
  static const char* changed[kMost];
  const bool has_policy = value_of(environment, "OMP_WAIT_POLICY=") != nullptr;
  const char* threads = value_of(environment, "OPENBLAS_NUM_THREADS=");
  if (has_policy && threads && threads[0] == '1' && threads[1] == '\0') return;
  std::size_t count = 0;
  changed[count++] = "OPENBLAS_NUM_THREADS=1";
  if (!has_policy) changed[count++] = "OMP_WAIT_POLICY=passive";
  if (!has_policy && !value_of(environment, "GOMP_SPINCOUNT="))
    changed[count++] = "GOMP_SPINCOUNT=3000";
  for (; *environment != nullptr && count + 1 < kMost; ++environment)
    if (!sets(*environment, "OPENBLAS_NUM_THREADS=")) changed[count++] = *environment;
  // Returns only when it fails: then this process goes on as it is.
  if (*environment == nullptr) execve("/proc/self/exe", argv, const_cast<char**>(changed));
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const first)(int, char**,
                                                                  char**) = set_up_libraries;
}  // namespace
