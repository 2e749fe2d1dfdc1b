// SPDX-License-Identifier: MIT
// The model of a checkpoint as a C library (C99 and C++): texts grow token by token, and each gives
// the logits of its next token. On the CPU or on a CUDA device. What weft_attention.h says of
// versions, sizes of structs and statuses holds here, too.
// Promise of the cache: a text's logits depend in their bits on the model, the device, its tokens
// and the places where logits were asked for. Other texts of a batch or of the model make no
// difference.
// Texts of one model may be used from several threads, one text from one thread at a time; the
// library computes one after the other.
#pragma once

#include <weft_attention.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_SAMPLER_VERSION 10000
WEFT_API int weft_sampler_version(void);
// As weft_last_error(), of the functions in this header.
WEFT_API const char* weft_sampler_last_error(void);

// ---- models ----

typedef struct weft_sampler weft_sampler;

// Loads a checkpoint that `train` wrote (.h5), the moving average of its weights where there is
// one. device: WEFT_CPU or the number of a CUDA device. A model that is told of a sequence before
// its first token (labels, augmentation) is WEFT_UNSUPPORTED.
// The process is not copied (no fork()). HDF5 reads the file here: a program that uses the same
// libhdf5 does not call it meanwhile, and afterwards has no messages and no external links of HDF5.
WEFT_API weft_status weft_sampler_open(const char* path, int32_t device, weft_sampler** sampler);
// Its texts stay as they are, and hold what they need.
WEFT_API void weft_sampler_close(weft_sampler* sampler);

typedef struct weft_sampler_info {
  size_t size;      // sizeof(weft_sampler_info)
  int64_t vocab;    // tokens are 0 .. vocab - 1; models of bytes have 256
  int64_t context;  // positions of a text, at most
  int64_t step;     // updates of its training
  int32_t ema;      // the weights are the moving average
} weft_sampler_info;

WEFT_API weft_status weft_sampler_get_info(const weft_sampler* sampler, weft_sampler_info* info);

// ---- texts ----

typedef struct weft_sampler_text weft_sampler_text;

// `batch` empty texts that grow together, with a cache for `length` positions (0: the context).
WEFT_API weft_status weft_sampler_text_open(const weft_sampler* sampler, int64_t batch,
                                            int64_t length, weft_sampler_text** text);
WEFT_API void weft_sampler_text_close(weft_sampler_text* text);
// Appends tokens (batch, count), or nothing where one of them is wrong. A text has at most
// length - 1 tokens, as the next one needs a position.
WEFT_API weft_status weft_sampler_text_feed(weft_sampler_text* text, const int32_t* tokens,
                                            int64_t count);
// Writes logits (batch, vocab) of the next token. The first call reads the tokens so far in one
// pass, a prompt; a later call goes position by position through what was fed since.
WEFT_API weft_status weft_sampler_text_logits(weft_sampler_text* text, float* logits);

#ifdef __cplusplus
}
#endif
