// SPDX-License-Identifier: MIT
// Calls of the C library made from C (capi_calls.c), as a user's program makes them.
#pragma once

#include "src/capi/weft_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a call came to, and what it should have come to: `word` is in the text of the error.
typedef struct weft_call_report {
  void* user;
  void (*report)(void* user, const char* call, weft_status got, weft_status want,
                 const char* message, const char* word);
} weft_call_report;

// Every mistake in the arguments that the library tells from a right call.
void weft_call_bad_patterns(const weft_call_report* to);
void weft_call_bad_layouts(const weft_call_report* to);
void weft_call_bad_plans(const weft_call_report* to);
void weft_call_bad_launches(const weft_call_report* to);

// 0 when a forward pass of `all` with q = 0 gives what can be worked out by hand.
int weft_call_means(void);

#ifdef __cplusplus
}
#endif
