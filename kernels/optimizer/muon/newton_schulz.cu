// SPDX-License-Identifier: MIT
// A step of Newton-Schulz on Hopper: three launches, each of the products of all matrices.
//   A = X X^T      or X^T X, where X has more rows than columns
//   P = b A + c A A
//   X = scale (a X + P X), or scale (a X + X P)
// A and P are symmetric: tiles above the diagonal are computed, and stored on both sides of it.
// A work item is a tile of 128 x 128 of a result. Persistent thread blocks take those with the
// longest sums first; a producer thread loads stages of 64 terms through TMA, two consumer
// warpgroups have 64 rows each.
#include "kernels/device/cuda.cuh"
#include "kernels/device/dependent_launch.cuh"
#include "kernels/device/pipeline.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/warp_roles.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/forms.h"
#include "kernels/optimizer/muon/newton_schulz.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace weft::newton_schulz {
using namespace device;

using T = __nv_bfloat16;
inline constexpr int kEdge = 128;  // of a tile of the result
inline constexpr int kTerms = 64;  // of a stage
inline constexpr int kStages = 6;
inline constexpr int kMost = 8;  // products of a launch

// Which way the operands of a product lie in memory.
enum class Kind { abt, atb, ab };  // A B^T, A^T B, A B

// The same product of n matrices: out = alpha A B + beta addend.
struct Product {
  Kind kind;
  int rows, cols, terms;
  bool symmetric;
  float alpha, beta;
  const T* addend;  // null: none
  T* out;           // (rows, cols)
  int64_t addend_stride, out_stride;
  int across, tiles;  // of a result: tiles of a row, tiles to compute
  int end;            // work items of this product and those before it
};

struct Arguments {
  CUtensorMap a[kMost], b[kMost];  // (n, rows, cols) in boxes of 64 x 64
  Product product[kMost];
  int count = 0, items = 0;
};

struct Storage {
  struct Stage {
    Panel a[2], b[2];
  };

  Stage stages[kStages];
  Pipeline<kStages> pipeline;
};

// A work item: the tile of a product's matrix that begins at a row and a column.
struct Tile {
  int product, matrix, row, col;

  __device__ __forceinline__ static Tile of(const Arguments& a, int item) {
    Tile t{};
    while (item >= a.product[t.product].end) ++t.product;
    if (t.product > 0) item -= a.product[t.product - 1].end;
    const Product& p = a.product[t.product];
    t.matrix = item / p.tiles;
    int at = item % p.tiles;
    if (p.symmetric) {
      for (int width = p.across; at >= width; --width, ++t.row) at -= width;
      t.col = t.row + at;
    } else {
      t.row = at / p.across, t.col = at % p.across;
    }
    t.row *= kEdge, t.col *= kEdge;
    return t;
  }
};

__device__ __forceinline__ void load(Storage::Stage& to, const Arguments& a, const Tile& t,
                                     int term, const Barrier& full) {
  const Kind kind = a.product[t.product].kind;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = t.row + i * 64, col = t.col + i * 64;
    if (kind == Kind::atb)
      tma_load(to.a[i], a.a[t.product], row, term, t.matrix, 0, full.address());
    else
      tma_load(to.a[i], a.a[t.product], term, row, t.matrix, 0, full.address());
    if (kind == Kind::abt)
      tma_load(to.b[i], a.b[t.product], term, col, t.matrix, 0, full.address());
    else
      tma_load(to.b[i], a.b[t.product], col, term, t.matrix, 0, full.address());
  }
}

// The terms of a stage.
template <Kind kKind>
__device__ __forceinline__ void multiply(float (&c)[64], Descriptor a, Descriptor b, bool add) {
#pragma unroll
  for (int k = 0; k < kTerms / 16; ++k) {
    const int along = k * kColumnStep, down = k * kRowStep;
    if constexpr (kKind == Kind::abt) wgmma<T>(c, a + along, b + along, add || k > 0);
    if constexpr (kKind == Kind::atb) wgmma_atb<T>(c, a + down, b + down, add || k > 0);
    if constexpr (kKind == Kind::ab) wgmma_ab<T>(c, a + along, b + down, add || k > 0);
  }
}

// The sum over all stages of a work item.
template <Kind kKind>
__device__ __forceinline__ void sum(float (&c)[64], Storage& storage, PipelineState<kStages>& place,
                                    int stages, int self) {
  int before = 0;
  for (int i = 0; i < stages; ++i, place.advance()) {
    storage.pipeline.wait(place);
    wgmma_fence();
    multiply<kKind>(c, descriptor(storage.stages[place.stage].a[self]),
                    descriptor(storage.stages[place.stage].b), i > 0);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    if (i > 0) storage.pipeline.release(before);
    before = place.stage;
  }
  wgmma_wait_group<0>();
  pin(c);
  storage.pipeline.release(before);
}

// Where this thread's pair of neighbours begins: in a half of the tile's rows, number j of them.
struct PairPlace {
  int row, col;

  __device__ __forceinline__ PairPlace(const Tile& t, int self, int half, int j)
      : row(t.row + self * 64 + row_of(half)),
        col(t.col + j * 8 + static_cast<int>(threadIdx.x % 4) * 2) {}

  __device__ __forceinline__ bool is_in(const Product& p) const {
    return row < p.rows && col < p.cols;
  }

  __device__ __forceinline__ int64_t offset(const Product& p) const {
    return static_cast<int64_t>(row) * p.cols + col;
  }
};

// The addend of a tile. Loaded before the sum, whose MMAs hide it: behind the first store, loads
// would wait one for the other, as `out` could be the same memory to the compiler.
struct Addend {
  uint32_t pairs[2][kEdge / 8];

  __device__ __forceinline__ void load(const Product& p, const Tile& t, int self) {
    const T* const from = p.addend ? p.addend + t.matrix * p.addend_stride : nullptr;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < kEdge / 8; ++j) {
        const PairPlace place(t, self, half, j);
        pairs[half][j] = from && place.is_in(p)
                             ? __ldg(reinterpret_cast<const uint32_t*>(from + place.offset(p)))
                             : 0;
      }
    }
  }
};

// alpha c + beta addend, rounded, and its mirror image beyond the diagonal.
__device__ __forceinline__ void store(const float (&c)[64], const Addend& addend, const Product& p,
                                      const Tile& t, int self) {
  T* const out = p.out + t.matrix * p.out_stride;
  const bool mirrored = p.symmetric && t.row != t.col;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < kEdge / 8; ++j) {
      const PairPlace place(t, self, half, j);
      if (!place.is_in(p)) continue;
      const uint32_t added = addend.pairs[half][j];
      const float low = fmaf(p.beta, low_half<T>(added), p.alpha * c[4 * j + 2 * half]),
                  high = fmaf(p.beta, high_half<T>(added), p.alpha * c[4 * j + 2 * half + 1]);
      const uint32_t pair = pack<T>(low, high);
      *reinterpret_cast<uint32_t*>(out + place.offset(p)) = pair;
      if (!mirrored) continue;
      auto* const image =
          reinterpret_cast<uint16_t*>(out) + static_cast<int64_t>(place.col) * p.cols + place.row;
      image[0] = static_cast<uint16_t>(pair);
      image[p.cols] = static_cast<uint16_t>(pair >> 16);
    }
  }
}

struct ProductsKernel {
  using SharedStorage = Storage;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr RegisterSplit kRegisters = {.producer = 40, .consumer = 232};

  __device__ __forceinline__ static void init(Storage& storage, const Arguments& arguments) {
    if (threadIdx.x == 0) {
      storage.pipeline.init(1, 2 * kWarpgroup / 32);  // consumer warps
      fence_proxy_async();
      for (int i = 0; i < arguments.count; ++i) prefetch(arguments.a[i]), prefetch(arguments.b[i]);
    }
    __syncthreads();
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
  }

  __device__ __forceinline__ static void produce(Storage& storage, const Arguments& a) {
    if (threadIdx.x != 0) return;
    PipelineState<kStages> place;
    for (int item = static_cast<int>(blockIdx.x); item < a.items; item += this_grid()) {
      const Tile t = Tile::of(a, item);
      const int terms = a.product[t.product].terms;
      for (int term = 0; term < terms; term += kTerms, place.advance()) {
        storage.pipeline.acquire(place, sizeof(Storage::Stage));
        load(storage.stages[place.stage], a, t, term, storage.pipeline.full[place.stage]);
      }
    }
  }

  __device__ __forceinline__ static void consume(Storage& storage, const Arguments& a) {
    const int self = warp_uniform(warpgroup_index() - 1);
    PipelineState<kStages> place;
    for (int item = static_cast<int>(blockIdx.x); item < a.items; item += this_grid()) {
      const Tile t = Tile::of(a, item);
      const Product& p = a.product[t.product];
      const int stages = (p.terms + kTerms - 1) / kTerms;
      Addend addend;
      addend.load(p, t, self);
      float c[64];
      switch (p.kind) {
        case Kind::abt: sum<Kind::abt>(c, storage, place, stages, self); break;
        case Kind::atb: sum<Kind::atb>(c, storage, place, stages, self); break;
        case Kind::ab: sum<Kind::ab>(c, storage, place, stages, self); break;
      }
      store(c, addend, p, t, self);
    }
  }
};

// ---- host ----

// n matrices of `rows` x `cols`, `stride` elements apart.
struct Operand {
  T* data;
  int64_t rows, cols, stride;
};

inline void describe(CUtensorMap& map, const Operand& x, int64_t n) {
  const bool described = encode_tensor_map<4>(map, DType::bf16, x.data, {x.cols, x.rows, n, 1},
                                              {x.cols, x.stride, n * x.stride}, {64, 64, 1, 1},
                                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  WEFT_CHECK(described, NewtonSchulz::kName, ": TMA does not take ", x.rows, " x ", x.cols);
}

// The products of a launch.
class Launch {
 public:
  explicit Launch(int64_t n)
      : n_(n) {}

  void add(Product p, const Operand& a, const Operand& b) {
    const int down = (p.rows + kEdge - 1) / kEdge;
    p.across = (p.cols + kEdge - 1) / kEdge;
    p.tiles = p.symmetric ? down * (down + 1) / 2 : down * p.across;
    p.end = arguments_.items += static_cast<int>(n_) * p.tiles;
    describe(arguments_.a[arguments_.count], a, n_);
    describe(arguments_.b[arguments_.count], b, n_);
    arguments_.product[arguments_.count++] = p;
  }

  void start(CudaQueue& q) {
    constexpr int kBytes = kSharedBytes<Storage>;
    void (*const kernel)(Arguments) = warp_specialized<ProductsKernel, Arguments>;
    WEFT_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
    const auto blocks = static_cast<unsigned>(std::min(arguments_.items, multiprocessors()));
    launch_dependent(q, kernel, {blocks, ProductsKernel::kThreads, kBytes}, arguments_);
  }

 private:
  int64_t n_;
  Arguments arguments_{};
};

inline Operand in_row(const TensorView& x, const MuonMatrix& m) {
  return {x.as<T>() + m.offset, m.rows, m.cols, x.cols()};
}

// A where `which` is 0, P where it is 1.
inline Operand square(const NewtonSchulz& k, const MuonMatrix& m, int which) {
  int64_t offset = which * k.square_elements();
  for (const MuonMatrix* before = k.matrices.data(); before != &m; ++before)
    offset += k.x.rows() * before->square();
  return {k.squares.as<T>() + offset, m.side(), m.side(), m.square()};
}

inline Product product_into(const Operand& out, Kind kind, int64_t terms) {
  Product p{};
  p.kind = kind;
  p.rows = static_cast<int>(out.rows), p.cols = static_cast<int>(out.cols);
  p.terms = static_cast<int>(terms);
  p.alpha = 1;
  p.out = out.data, p.out_stride = out.stride;
  return p;
}

inline void add_to(Product& p, const Operand& addend, double beta) {
  p.addend = addend.data, p.addend_stride = addend.stride, p.beta = static_cast<float>(beta);
}

bool covers(const NewtonSchulz& k) {
  constexpr int64_t kLargest = 1 << 15;  // indices of work items are of 32 bits
  const auto fits = [](const MuonMatrix& m) {
    return m.rows % 8 == 0 && m.cols % 8 == 0 && m.offset % 8 == 0 && m.rows <= kLargest &&
           m.cols <= kLargest;
  };
  return k.x.dtype == DType::bf16 &&
         reason_against_sm90a(k.x.dtype, compute_capability()).empty() &&
         k.matrices.size() <= kMost && std::ranges::all_of(k.matrices, fits) &&
         k.x.cols() % 8 == 0 && k.x.rows() <= kLargest && aligned16(k.x, k.other, k.squares);
}

void run_hopper(CudaQueue& q, const NewtonSchulz& k, const TensorView& out, const TensorView& x,
                bool last) {
  const int64_t n = k.x.rows();
  std::vector<const MuonMatrix*> longest_first;  // sums of A
  for (const MuonMatrix& m : k.matrices) longest_first.push_back(&m);
  std::ranges::stable_sort(longest_first, std::greater(),
                           [](const MuonMatrix* m) { return std::max(m->rows, m->cols); });
  Launch grams(n), polynomials(n), products(n);
  for (const MuonMatrix* m : longest_first) {
    const bool wide = m->rows <= m->cols;
    const Operand from = in_row(x, *m), to = in_row(out, *m), a = square(k, *m, 0),
                  p = square(k, *m, 1);
    Product gram = product_into(a, wide ? Kind::abt : Kind::atb, std::max(m->rows, m->cols));
    gram.symmetric = true;
    grams.add(gram, from, from);
    Product polynomial = product_into(p, Kind::abt, m->side());
    polynomial.symmetric = true;
    polynomial.alpha = static_cast<float>(NewtonSchulz::kC);
    add_to(polynomial, a, NewtonSchulz::kB);
    polynomials.add(polynomial, a, a);
    const double scale = last ? m->scale() : 1;
    Product product = product_into(to, wide ? Kind::ab : Kind::abt, m->side());
    product.alpha = static_cast<float>(scale);
    add_to(product, from, scale * NewtonSchulz::kA);
    wide ? products.add(product, p, from) : products.add(product, from, p);
  }
  grams.start(q);
  polynomials.start(q);
  products.start(q);
}
}  // namespace weft::newton_schulz
