// SPDX-License-Identifier: MIT
#include "kernels/attention/content/decode_items.h"

namespace weft {
namespace {

// What lists the keys of `heads` heads of a batch.
template <class K>
void expect_list(const K& k, std::int64_t batch, std::int64_t heads, std::int64_t longest) {
  WEFT_CHECK(k.list.rank == 3 && k.list.cols() >= longest && k.position && k.heads.count == heads &&
                 k.list.shape[0] == batch && k.heads.head(heads - 1) < k.list.shape[1],
             K::kName, ": lists ", shape_text(k.list), " for ", longest, " keys of ", heads, " heads");
  expect_size(k.list, DType::i32, k.list.size(), "lists of keys");
  expect_matrix(k.count, DType::i32, batch, k.list.shape[1], "counts of keys");
}

void expect_members(const TensorView& members, const TensorView& sizes) {
  expect_size(sizes, DType::i32, members.rows(), "sizes of labels");
  expect_size(members, DType::i32, members.size(), "members of labels");
}

}  // namespace

void check(const LabelList& k) {
  const std::int64_t* m = k.members.shape;
  expect_members(k.members, k.sizes);
  expect_list(k, m[1], m[2], m[0] * m[4]);
  expect_size(k.labels, DType::i32, m[0] * m[1] * m[2], "content_label_list: labels");
}

void check(const BlockList& k) {
  const std::int64_t sets = k.q.batch * k.q.heads;
  expect_list(k, k.q.batch, k.q.heads, k.chosen.cols() * k.block);
  expect_size(k.sums, DType::f32, sets * k.q.size * k.sums.cols(), "content_block_list: sums");
  expect_size(k.gates, DType::f32, sets * k.sums.cols(), "content_block_list: gates");
  expect_matrix(k.chosen, DType::i32, sets, k.chosen.cols(), "content_block_list: chosen");
}

void check(const LabelFill& k) {
  expect_members(k.members, k.sizes);
  expect_matrix(k.labels, DType::i32, k.members.shape[0] * k.members.shape[2], k.labels.cols(),
                "content_label_fill: labels");
  WEFT_CHECK(k.first + k.texts <= k.members.shape[1] && k.count <= k.labels.cols(),
             "content_label_fill: ", k.count, " positions, ", k.texts, " texts");
}

void check(const BlockFill& k) {
  expect_matrix(k.sums, DType::f32, k.sums.shape[0] * k.text_sums.shape[0] * k.text_sums.shape[1],
                k.sums.cols(), "content_block_fill: sums");
  WEFT_CHECK(k.first + k.texts <= k.sums.shape[0] && k.count / k.block <= k.sums.cols() &&
                 k.chosen.cols() <= k.text_chosen.cols(),
             "content_block_fill: ", k.count, " positions, ", k.texts, " texts");
}

void compute(CpuQueue& queue, const LabelList& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockList& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const LabelFill& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockFill& k) { content::in_items(queue, k); }

}  // namespace weft
