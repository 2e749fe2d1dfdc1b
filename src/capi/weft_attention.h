// SPDX-License-Identifier: MIT
// Sparse attention as a C library (C99 and C++), on the CPU or on a CUDA stream. Formulas and
// shapes: kernels/attention/attention.h; patterns: src/patterns/README.md.
//   y_i = sum_{j in S_i} softmax_j(scale * q_i . k_j) v_j
// Where S_i is empty, y_i = 0 and lse_i = -inf.
// No function throws or ends the process, there is no global state, and every function may be
// called from several threads at once; a handle must outlive the calls that use it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- versions and errors ----

// Major * 10000 + minor * 100 + patch. A library runs programs made for earlier minors of its major
// version.
#define WEFT_ATTENTION_VERSION 10000
WEFT_API int weft_attention_version(void);

typedef enum weft_status {
  WEFT_OK = 0,
  WEFT_INVALID_ARGUMENT = 1,  // the call is wrong
  WEFT_UNSUPPORTED = 2,       // the call is right, and this build, form or device does not cover it
  WEFT_OUT_OF_MEMORY = 3,     // on the host or on the device
  WEFT_CUDA_ERROR = 4,        // reported by the CUDA runtime
  WEFT_INTERNAL_ERROR = 5     // a defect of the library
} weft_status;

WEFT_API const char* weft_status_name(weft_status status);  // "WEFT_INVALID_ARGUMENT"
// What went wrong in the last failed call of this thread: the argument, what was expected and what
// came. Valid until the next failing call of this thread; "" before the first.
WEFT_API const char* weft_last_error(void);

// ---- patterns ----

// A named pattern. weft_pattern_spec_init() fills in the defaults; a kind reads the fields that it
// needs (src/patterns/README.md) and leaves the others alone. Arrays are read during the call only.
// "fixed" sees its own block so far and the summaries of the blocks before it. "block" is the first
// part alone; "summary" is the summaries of all blocks so far, its own block included.
typedef struct weft_pattern_spec {
  size_t size;        // sizeof(weft_pattern_spec) of the caller's header
  const char* kind;   // "all", "local", "strided", "fixed", ...
  int64_t stride;     // 128: window, column distance or block length
  int64_t c;          // 32: fixed, summary: summary positions at the end of each block
  int64_t num_verts;  // 1: fixed, summary: sub-blocks that heads take in turn
  int64_t block;      // 0: exact positions; else the edge of the blocks of a block-level form
  int64_t vertsize;   // 1: fixed, summary with blocks: c = vertsize * block
  int32_t causal;     // 1; 0: later keys are seen too
  const struct weft_pattern_spec* const* of;  // merged, heads: `of_count` patterns
  size_t of_count;
  int64_t prefix;            // 0: none; later keys are seen below this position
  const int64_t* documents;  // ascending first positions: none sees across a border
  size_t documents_count;
  int64_t length;           // 0: any; positions from here on neither see nor are seen
  int64_t window;           // longformer, bigbird: width of the sliding window
  const int64_t* dilation;  // longformer: distance of the window's keys, heads in turn; none: 1
  size_t dilation_count;
  const int64_t* globals;  // longformer, bigbird: see all and are seen by all
  size_t globals_count;
  int64_t random;         // bigbird: random blocks a row of blocks
  uint64_t seed;          // bigbird: of the random blocks
  const int64_t* grid;    // convolution: size of the grid of keys, [W] or [H, W]
  size_t grid_count;      //
  const int64_t* filter;  // convolution: [w] or [h, w]
  size_t filter_count;    //
  int64_t step;           // 1: convolution: its stride
  int32_t transposed;     // 0; else convolution: queries and keys swapped
} weft_pattern_spec;

// Fills the first `size` bytes (sizeof(weft_pattern_spec)) with the defaults; kind is NULL.
WEFT_API weft_status weft_pattern_spec_init(weft_pattern_spec* spec, size_t size);

typedef struct weft_pattern weft_pattern;
// `heads` >= 1 is what the plans and the tensors will have.
WEFT_API weft_status weft_pattern_create(const weft_pattern_spec* spec, int32_t heads,
                                         weft_pattern** pattern);

// Any pattern: 0 and 1 on a grid of square blocks, and optionally a predicate for the pairs of
// active blocks.
typedef int32_t (*weft_pair_predicate)(void* user, int32_t head, int64_t query, int64_t key);

typedef struct weft_layout {
  size_t size;            // sizeof(weft_layout), set by the caller
  const uint8_t* active;  // (heads, q_blocks, k_blocks): 0 or 1; read during the call only
  int64_t heads;          // 1: all heads share it; else as many as the pattern has
  // sequences of up to q_blocks * block queries and k_blocks * block keys
  int64_t q_blocks;
  int64_t k_blocks;  //
  int64_t block;     // edge of a block: 8, 16, 32 or 64
  int32_t causal;    // not 0: only pairs with key <= query
  // NULL: all pairs; asked once a pair, during the call, which one is attended
  weft_pair_predicate keep;
  void* user;  // handed to keep
} weft_layout;

WEFT_API weft_status weft_pattern_create_layout(const weft_layout* layout, int32_t heads,
                                                weft_pattern** pattern);
WEFT_API void weft_pattern_destroy(weft_pattern* pattern);  // NULL: nothing happens
// With all its numbers; lives as long as the pattern.
WEFT_API const char* weft_pattern_name(const weft_pattern* pattern);
// The pattern of one head as n_q * n_k bytes, row = query: 1 where attended, else 0.
WEFT_API weft_status weft_pattern_mask(const weft_pattern* pattern, int32_t head, int64_t n_q,
                                       int64_t n_k, uint8_t* mask);

// ---- plans ----

#define WEFT_CPU (-1)  // device numbers: WEFT_CPU, or a CUDA device from 0 on

// f64: CPU
typedef enum weft_dtype { WEFT_F32 = 1, WEFT_F16 = 2, WEFT_BF16 = 3, WEFT_F64 = 4 } weft_dtype;

// Which CUDA kernels run; automatic takes the fastest that covers the case.
typedef enum weft_form {
  WEFT_AUTOMATIC = 0,
  WEFT_SIMPLE = 1,
  WEFT_GENERAL = 2,
  WEFT_HOPPER = 3
} weft_form;

// The tables of a pattern for fixed lengths and head sizes, in memory that the plan owns. The
// pattern may be destroyed afterwards. Head sizes: any on the CPU; 8 to 256 in steps of 8 on CUDA.
typedef struct weft_attention_plan weft_attention_plan;
WEFT_API weft_status weft_attention_plan_create(const weft_pattern* pattern, int64_t n_q,
                                                int64_t n_k, int64_t d_qk, int64_t d_v,
                                                int32_t device, weft_attention_plan** plan);
// No launch that uses the plan may be running.
WEFT_API void weft_attention_plan_destroy(weft_attention_plan* plan);

typedef struct weft_plan_info {
  size_t size;             // sizeof(weft_plan_info), set by the caller
  int64_t bytes;           // of the tables
  int64_t needed_pairs;    // attended (query, key) pairs of all heads, of one sequence
  int64_t executed_pairs;  // pairs of the tiles that are visited
  int32_t passes;          // launches of the forward pass
  int32_t heads;
} weft_plan_info;

WEFT_API weft_status weft_attention_plan_info(const weft_attention_plan* plan,
                                              weft_plan_info* info);
// The kernels that would run forward for one sequence: "hopper/band", or "hopper/band+general"
// where passes differ; "cpu" on the CPU. What stands before a slash is the form. A static text.
WEFT_API weft_status weft_attention_plan_form(const weft_attention_plan* plan, int32_t dtype,
                                              int32_t form, int32_t has_segments,
                                              const char** name);
// Bytes of scratch memory that weft_attention_backward() needs, on the device of the plan, 16-byte
// aligned.
WEFT_API weft_status weft_attention_workspace_size(const weft_attention_plan* plan, int64_t batch,
                                                   int32_t dtype, size_t* bytes);

// ---- launches ----

// (batch, time, heads, size) with any strides of the first three axes, in elements; the last axis
// is contiguous. On CUDA every row starts at a multiple of 16 bytes. Rows of outputs must not
// overlap.
typedef struct weft_input {
  const void* data;
  int64_t batch_stride, time_stride, head_stride;
} weft_input;

typedef struct weft_output {
  void* data;
  int64_t batch_stride, time_stride, head_stride;
} weft_output;

// Zero-initialise, then set `size` and what is needed. All pointers are in the memory of the plan's
// device.
typedef struct weft_forward_args {
  size_t size;    // sizeof(weft_forward_args)
  int64_t batch;  // 0: nothing happens
  int32_t dtype;  // weft_dtype
  int32_t form;   // weft_form
  double scale;   // 0: 1 / sqrt(d_qk)
  weft_input q;   // (batch, n_q, heads, d_qk)
  weft_input k;   // (batch, n_k, heads, d_qk)
  weft_input v;   // (batch, n_k, heads, d_v)
  weft_output o;  // (batch, n_q, heads, d_v)
  // (batch, heads, n_q) contiguous, f32 (f64 beside f64): natural log-sum-exp of each row
  void* lse;
  // Both or neither: (batch, n_q) and (batch, n_k) contiguous. A pair is attended only where both
  // numbers are equal and not negative: packed documents, padding. The caller ranks wider numbers.
  const int32_t* q_segments;
  const int32_t* k_segments;
  void* stream;  // cudaStream_t, NULL: the default stream; not looked at on the CPU
} weft_forward_args;

// Returns when the work is done on the CPU, and when it is queued on CUDA. Same inputs, same bits.
WEFT_API weft_status weft_attention_forward(const weft_attention_plan* plan,
                                            const weft_forward_args* args);

typedef struct weft_backward_args {
  size_t size;  // sizeof(weft_backward_args)
  int64_t batch;
  int32_t dtype;
  int32_t form;
  double scale;
  weft_input q, k, v, o, d_o;  // as in the forward pass; d_o is the gradient of o
  const void* lse;             // of the forward pass
  weft_output dq, dk, dv;      // like q, k, v: stored, not added to
  const int32_t* q_segments;
  const int32_t* k_segments;
  void* workspace;  // weft_attention_workspace_size() bytes, written
  size_t workspace_bytes;
  void* stream;
} weft_backward_args;

WEFT_API weft_status weft_attention_backward(const weft_attention_plan* plan,
                                             const weft_backward_args* args);

#ifdef __cplusplus
}
#endif
