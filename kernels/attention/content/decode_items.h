// SPDX-License-Identifier: MIT
// The definitions of decode.h, for CPU and CUDA.
#pragma once

#include "kernels/attention/content/blocks_items.h"
#include "kernels/attention/content/decode.h"

namespace weft::content {

WEFT_ITEM int64_t place_of_list(const TensorView& count, const HeadRange& heads, int64_t b, int64_t h) {
  return b * count.shape[1] + heads.head(h);
}

// ---- labels

// The members that the position sees in one round: numbers begin .. end - 1.
struct Members {
  const int32_t* of_label;
  int32_t window, begin, end;

  WEFT_ITEM Members(const LabelList& k, int64_t r, int64_t b, int64_t h)
      : window(static_cast<int32_t>(k.members.shape[4])) {
    const int64_t set = (r * k.members.shape[1] + b) * k.members.shape[2] + h,
                  label = set * k.members.shape[3] + data_of<const int32_t>(k.labels)[set];
    of_label = data_of<const int32_t>(k.members) + label * window;
    end = *k.position == 0 ? 0 : data_of<const int32_t>(k.sizes)[label];
    begin = end > window ? end - window : 0;
    const int32_t first = k.first_key.data ? data_of<const int32_t>(k.first_key)[b] : 0;
    for (int32_t high = end; begin < high;) {
      const int32_t middle = (begin + high) / 2;
      if (at(middle) < first)
        begin = middle + 1;
      else
        high = middle;
    }
  }
  WEFT_ITEM int32_t at(int32_t number) const { return of_label[number % window]; }
};

WEFT_ITEM void label_list_item(const LabelList& k, int64_t i) {
  const int64_t window = k.members.shape[4], rounds = k.members.shape[0], w = i % window,
                h = i / window % k.heads.count, b = i / window / k.heads.count,
                place = place_of_list(k.count, k.heads, b, h);
  int32_t* list = data_of<int32_t>(k.list) + place * k.list.shape[2];
  int32_t count = 0;
  for (int64_t r = 0; r < rounds; ++r) {
    const Members members(k, r, b, h);
    if (const auto number = static_cast<int32_t>(members.begin + w); number < members.end)
      list[count + w] = members.at(number);
    count += members.end - members.begin;
  }
  if (w > 0) return;
  if (count == 0) list[0] = *k.position;
  data_of<int32_t>(k.count)[place] = count > 0 ? count : 1;
}

WEFT_ITEM void member_item(const LabelList& k, int64_t set) {
  const int64_t labels = k.members.shape[3], window = k.members.shape[4];
  int32_t* sizes = data_of<int32_t>(k.sizes) + set * labels;
  for (int64_t g = 0; *k.position == 0 && g < labels; ++g) sizes[g] = 0;
  const int32_t label = data_of<const int32_t>(k.labels)[set];
  data_of<int32_t>(k.members)[(set * labels + label) * window + sizes[label]++ % window] = *k.position;
}

template <class Queue>
void in_items(Queue& queue, const LabelList& k) {
  const int64_t sets = k.members.shape[1] * k.members.shape[2];
  for_items<label_list_item>(queue, k, sets * k.members.shape[4]);
  for_items<member_item>(queue, k, k.members.shape[0] * sets);
}

WEFT_ITEM void label_fill_item(const LabelFill& k, int64_t i) {
  const int64_t labels = k.members.shape[3], window = k.members.shape[4], heads = k.members.shape[2],
                g = i % labels, h = i / labels % heads, text = i / labels / heads % k.texts,
                r = i / labels / heads / k.texts,
                label = ((r * k.members.shape[1] + k.first + text) * heads + h) * labels + g;
  const int32_t* of_text = data_of<const int32_t>(k.labels) + (r * heads + h) * k.labels.shape[2];
  int32_t* members = data_of<int32_t>(k.members) + label * window;
  int32_t size = 0;
  for (int64_t t = 0; t < k.count; ++t)
    if (of_text[t] == g) members[size++ % window] = static_cast<int32_t>(t);
  data_of<int32_t>(k.sizes)[label] = size;
}

template <class Queue>
void in_items(Queue& queue, const LabelFill& k) {
  for_items<label_fill_item>(queue, k,
                             k.members.shape[0] * k.texts * k.members.shape[2] * k.members.shape[3]);
}

// ---- blocks

template <class T>
WEFT_ITEM void add_key_item(const BlockList& k, int64_t i) {
  const int64_t size = k.k.size, d = i % size, set = i / size, block = *k.position / k.block;
  float& sum = data_of<float>(k.sums)[i * k.sums.shape[3] + block];
  const auto key = static_cast<float>(row_at<const T>(k.k, set / k.k.heads, 0, set % k.k.heads)[d]);
  sum = (*k.position % k.block == 0 ? 0.0f : sum) + key;
}

template <class T, int P>
WEFT_ITEM void list_gate_item(const BlockList& k, int64_t i) {
  const int64_t blocks = k.sums.shape[3], g = i % blocks, set = i / blocks;
  if (*k.position % k.block != 0 || g >= *k.position / k.block) return;
  data_of<float>(k.gates)[i] =
      gate_of<T, P>(row_at<const T>(k.q, set / k.q.heads, 0, set % k.q.heads), k.q.size,
                    data_of<const float>(k.sums) + set * k.q.size * blocks + g, blocks);
}

WEFT_ITEM void list_choice_item(const BlockList& k, int64_t set) {
  const int64_t most = k.chosen.shape[2], heads = k.q.heads;
  int32_t* chosen = data_of<int32_t>(k.chosen) + set * most;
  const auto t = static_cast<int32_t>(*k.position / k.block);
  if (*k.position % k.block == 0)
    choose(chosen, most, data_of<const float>(k.gates) + set * k.gates.shape[2], 1, t);
  const int64_t earlier = t < most - 1 ? t : most - 1;
  data_of<int32_t>(k.count)[place_of_list(k.count, k.heads, set / heads, set % heads)] =
      static_cast<int32_t>(earlier * k.block + *k.position % k.block + 1);
}

WEFT_ITEM void block_list_item(const BlockList& k, int64_t i) {
  const int64_t longest = k.chosen.shape[2] * k.block, set = i / longest, heads = k.q.heads, at = i % longest,
                place = place_of_list(k.count, k.heads, set / heads, set % heads);
  if (at >= data_of<const int32_t>(k.count)[place]) return;
  data_of<int32_t>(k.list)[place * k.list.shape[2] + at] = static_cast<int32_t>(
      data_of<const int32_t>(k.chosen)[set * k.chosen.shape[2] + at / k.block] * k.block + at % k.block);
}

template <class Queue>
void in_items(Queue& queue, const BlockList& k) {
  const int64_t sets = k.q.batch * k.q.heads;
  dispatch(queue, k.q.dtype, [&]<class T>() {
    for_items<add_key_item<T>>(queue, k, sets * k.k.size);
    with_size(k.q.size, [&]<int P>() { for_items<list_gate_item<T, P>>(queue, k, sets * k.gates.shape[2]); });
  });
  for_items<list_choice_item>(queue, k, sets);
  for_items<block_list_item>(queue, k, sets * k.chosen.shape[2] * k.block);
}

WEFT_ITEM void block_fill_item(const BlockFill& k, int64_t i) {
  const int64_t blocks = k.sums.shape[3], of_text = k.text_sums.shape[2], g = i % blocks,
                row = i / blocks,  // text, head, feature
      rows = k.text_sums.shape[0] * k.text_sums.shape[1], t = k.count / k.block, most = k.chosen.shape[2];
  if (g < of_text)
    data_of<float>(k.sums)[(k.first * rows + row) * blocks + g] =
        data_of<const float>(k.text_sums)[row % rows * of_text + g];
  const int64_t h = row % rows / k.text_sums.shape[1];
  if (g == 0 && row % k.text_sums.shape[1] == 0 && t < of_text)
    for (int64_t m = 0; m < most; ++m)
      data_of<int32_t>(k.chosen)[(k.first * k.text_sums.shape[0] + row / k.text_sums.shape[1]) * most + m] =
          data_of<const int32_t>(k.text_chosen)[(h * of_text + t) * most + m];
}

template <class Queue>
void in_items(Queue& queue, const BlockFill& k) {
  for_items<block_fill_item>(queue, k,
                             k.texts * k.text_sums.shape[0] * k.text_sums.shape[1] * k.sums.shape[3]);
}

}  // namespace weft::content
