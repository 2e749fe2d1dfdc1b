/* SPDX-License-Identifier: MIT */
/* example CHECKPOINT PROMPT: what a model of bytes goes on with, the most likely byte each time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "weft_sampler.h"

static int failed(void) { return fprintf(stderr, "error: %s\n", weft_sampler_last_error()), 1; }

int main(int argc, char** argv) {
  weft_sampler* sampler = NULL;
  weft_sampler_text* text = NULL;
  weft_sampler_info info = {sizeof info, 0, 0, 0, 0};
  int32_t token;
  if (argc != 3) return fprintf(stderr, "usage: example CHECKPOINT PROMPT\n"), 2;
  if (weft_sampler_open(argv[1], WEFT_CPU, &sampler) || weft_sampler_get_info(sampler, &info) ||
      weft_sampler_text_open(sampler, 1, 0, &text))
    return failed();
  float* logits = malloc((size_t)info.vocab * sizeof *logits);
  for (const char* c = argv[2]; *c; ++c) {
    token = (unsigned char)*c;
    if (weft_sampler_text_feed(text, &token, 1)) return failed();
  }
  for (int64_t size = (int64_t)strlen(argv[2]); size + 1 < info.context; ++size) {
    if (weft_sampler_text_logits(text, logits)) return failed();
    token = 0;
    for (int32_t i = 1; i < info.vocab; ++i)
      if (logits[i] > logits[token]) token = i;
    putchar(token);
    if (weft_sampler_text_feed(text, &token, 1)) return failed();
  }
  free(logits);
  weft_sampler_text_close(text);
  weft_sampler_close(sampler);
  return 0;
}
