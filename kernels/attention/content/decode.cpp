// SPDX-License-Identifier: MIT
#include "kernels/attention/content/decode_items.h"
#include "kernels/checks.h"

namespace weft {
namespace {

template <class K>
void expect_list(const K& k, std::int64_t batch, std::int64_t heads, std::int64_t longest) {
  WEFT_CHECK(k.list.rank == 3 && k.count.rank == 2 && k.list.shape[2] >= longest && k.position &&
                 k.heads.count == heads && k.heads.head(heads - 1) < k.count.shape[1],
             K::kName, ": lists ", shape_text(k.list), " for ", longest, " keys of ", heads, " heads");
  expect_size(k.list, DType::i32, batch * k.count.shape[1] * k.list.shape[2], "lists of keys");
  expect_size(k.count, DType::i32, batch * k.count.shape[1], "counts of keys");
}

void expect_members(const TensorView& members, const TensorView& sizes) {
  WEFT_CHECK(members.rank == 5 && sizes.rank == 4 && members.size() == sizes.size() * members.shape[4],
             "members of labels: ", shape_text(members), " and ", shape_text(sizes));
  expect_size(members, DType::i32, members.size(), "members of labels");
  expect_size(sizes, DType::i32, sizes.size(), "members of labels");
}

}  // namespace

void check(const LabelList& k) {
  expect_members(k.members, k.sizes);
  const std::int64_t *m = k.members.shape, sets = m[0] * m[1] * m[2];
  expect_list(k, m[1], m[2], m[0] * m[4]);
  expect_size(k.labels, DType::i32, sets, "label_list: labels");
  if (k.first_key) expect_size(k.first_key, DType::i32, m[1], "label_list: first_key");
}

void check(const BlockList& k) {
  WEFT_CHECK(k.sums.rank == 4 && k.chosen.rank == 3 && k.gates.rank == 3 && k.block > 0, "block_list: sums ",
             shape_text(k.sums), ", chosen ", shape_text(k.chosen));
  const std::int64_t sets = k.q.batch * k.q.heads;
  expect_list(k, k.q.batch, k.q.heads, k.chosen.shape[2] * k.block);
  expect_size(k.sums, DType::f32, sets * k.q.size * k.sums.shape[3], "block_list: sums");
  expect_size(k.gates, DType::f32, sets * k.sums.shape[3], "block_list: gates");
  expect_size(k.chosen, DType::i32, sets * k.chosen.shape[2], "block_list: chosen");
}

void check(const LabelFill& k) {
  expect_members(k.members, k.sizes);
  expect_size(k.labels, DType::i32, k.members.shape[0] * k.members.shape[2] * k.labels.shape[2],
              "label_fill: labels");
  WEFT_CHECK(k.first + k.texts <= k.members.shape[1] && k.count <= k.labels.shape[2], "label_fill: ", k.count,
             " of ", k.labels.shape[2], " positions, ", k.texts, " texts");
}

void check(const BlockFill& k) {
  WEFT_CHECK(k.sums.rank == 4 && k.chosen.rank == 3 && k.text_sums.rank == 3 && k.text_chosen.rank == 3 &&
                 k.first + k.texts <= k.sums.shape[0] && k.count / k.block <= k.sums.shape[3],
             "block_fill: sums ", shape_text(k.sums), ", of the text ", shape_text(k.text_sums));
}

void compute(CpuQueue& queue, const LabelList& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockList& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const LabelFill& k) { content::in_items(queue, k); }
void compute(CpuQueue& queue, const BlockFill& k) { content::in_items(queue, k); }

}  // namespace weft
