#include <cstdio>
#include <cstring>
#include <cstdlib>
#include <random>
#include <cmath>
#include <vector>
#include <deque>
#include "kernels/sampling/decode_blocks.h"
#include "kernels/dtype.h"
using namespace weft;
extern int emu_blocks, emu_shared;
namespace emu { void set_racing(unsigned); }
static std::mt19937 rng(7);
static float uni(float s) { return s * (float(rng()) * 0x1p-31f - 1); }
template <class T> struct Run {
  struct Case { int batch, width, heads, qk, v, hidden, layers, rows; std::vector<std::vector<int>> keys; bool own; int form; int layouts; };
  std::deque<std::vector<T>> t; std::deque<std::vector<float>> f; std::deque<std::vector<std::int32_t>> n;
  DecodeBlocks k; std::vector<T>* y; std::vector<std::vector<T>*> caches;
  static constexpr DType kT = dtype_of<T>;
  TensorView ten(std::vector<std::int64_t> s, float scale, float mean = 0) {
    std::int64_t size = 1; for (auto d : s) size *= d; t.emplace_back(size + 8); auto& v = t.back(); for (auto& x : v) x = T(mean + uni(scale));
    TensorView w; w.data = v.data(); w.dtype = kT; w.rank = int(s.size()); for (std::size_t i = 0; i < s.size(); ++i) w.shape[i] = s[i]; return w;
  }
  TensorView wide(std::vector<std::int64_t> s, float scale, float mean = 0) {
    std::int64_t size = 1; for (auto d : s) size *= d; f.emplace_back(size); auto& v = f.back(); for (auto& x : v) x = mean + uni(scale);
    TensorView w; w.data = v.data(); w.dtype = DType::f32; w.rank = int(s.size()); for (std::size_t i = 0; i < s.size(); ++i) w.shape[i] = s[i]; return w;
  }
  const std::int32_t* num(std::vector<std::int32_t> v) { v.push_back(0); n.push_back(v); return n.back().data(); }
  TensorView ints(std::vector<std::int32_t> v, std::vector<std::int64_t> s) { TensorView w; w.dtype = DType::i32; w.rank = int(s.size()); for (std::size_t i = 0; i < s.size(); ++i) w.shape[i] = s[i]; n.push_back(v); w.data = n.back().data(); return w; }
  Run(const Case& c, unsigned seed) {
    rng.seed(seed);
    k.heads = c.heads; k.qk_size = c.qk; k.v_size = c.v; k.scale = 1 / std::sqrt(double(c.qk)); k.f = seed % 2 ? Activation::relu2 : Activation::gelu;
    k.y = ten({c.batch, c.width}, 0); y = &t.back(); 
    rng.seed(seed + 2);
    if (c.form & 1) { k.qk.norm = true; k.qk.eps = 1e-2; }
    if (c.form & 2) { k.qk.table = wide({50, c.qk / 2, 2}, 0.7f); k.qk.first_at = num({6}); }
    if ((c.form & 2) && (c.form & 1)) { std::vector<std::int32_t> p(c.batch * 7); for (int i = 0; i < c.batch * 7; ++i) p[i] = (i * 37) % 150; k.qk.positions = ints(p, {c.batch, 7}); }
    else if (c.form & 2) { std::vector<std::int32_t> p(c.batch); for (int i = 0; i < c.batch; ++i) p[i] = (i * 37) % 150; k.qk.offsets = ints(p, {c.batch}); }
    rng.seed(seed + 1); std::vector<DecodeBlock> lists;
    for (int l = 0; l < c.layouts; ++l) {
      DecodeBlock b; std::vector<std::int32_t> keys, start = {0}, group, first, own; const auto& counts = c.keys[l % c.keys.size()];
      for (int count : counts) { for (int i = 0; i < count; ++i) keys.push_back(c.rows - 1 - (count - 1 - i) * 3 % c.rows); start.push_back(int(keys.size())); b.longest = std::max<std::int64_t>(b.longest, count); }
      if (b.longest == 0) b.longest = 1;
      for (int h = 0; h < c.heads; ++h) { group.push_back(h % int(counts.size())); first.push_back(h * c.rows); own.push_back(c.own ? (h + 1) * c.rows - 1 : -1); }
      b.keys = num(keys); b.key_start = num(start); b.group_of_head = num(group); b.first_row = num(first); b.own_row = num(own); lists.push_back(b);
    }
    const int packed = c.heads * (2 * c.qk + c.v), att = c.heads * c.v;
    const auto aff = [&](int o, int i, float g) { auto w = ten({o, i}, g / std::sqrt(float(i))); return DecodeAffine{w, ten({o}, 0.2f)}; };
    for (int l = 0; l < c.layers; ++l) {
      DecodeBlock b = lists[l % c.layouts];
      b.attention_norm = {wide({c.width}, 0.2f, 1), wide({c.width}, 0.2f), 1e-2}; b.mlp_norm = {wide({c.width}, 0.2f, 1), wide({c.width}, 0.2f), 1e-2};
      b.qkv = aff(packed, c.width, 2); b.proj = aff(c.width, att, 1); b.up = aff(c.hidden, c.width, 2); b.down = aff(c.width, c.hidden, 1); k.blocks.push_back(b);
    }
    // what depends on the sequence comes from its own seed, so that batches share sequences
    k.x = ten({c.batch, c.width}, 0); auto* x = &t.back();
    for (int s = 0; s < c.batch; ++s) { rng.seed(1000 + s); for (int i = 0; i < c.width; ++i) (*x)[s * c.width + i] = T(0.2f + uni(1)); }
    for (int l = 0; l < c.layers; ++l) for (int w = 0; w < 2; ++w) {
      const int size = w ? c.v : c.qk; auto view = ten({c.batch, c.heads * c.rows, size}, 0); auto* v = &t.back(); caches.push_back(v); const int each = c.heads * c.rows * size;
      for (int s = 0; s < c.batch; ++s) { rng.seed(5000 + s * 97 + l * 2 + w); for (int i = 0; i < each; ++i) (*v)[s * each + i] = T(uni(1.5f));
        if (c.own) for (int h = 0; h < c.heads; ++h) for (int i = 0; i < size; ++i) (*v)[s * each + ((h + 1) * c.rows - 1) * size + i] = T(NAN); }  // never read
      (w ? k.blocks[l].v : k.blocks[l].k) = view;
    }
    k.packed = ten({c.batch, packed}, 0); k.attended = ten({c.batch, att}, 0); k.hidden = ten({c.batch, c.hidden}, 0);
  }
};
template <class T> double differ(const std::vector<T>& a, const std::vector<T>& b, std::size_t n) {
  double d = 0, s = 0; for (std::size_t i = 0; i < n; ++i) { const double x = a[i], z = b[i]; if (std::isnan(x) != std::isnan(z)) return 1e9; if (std::isnan(x)) continue; d += (x - z) * (x - z); s += z * z; } return std::sqrt(d / (s + 1e-30));
}
template <class T> bool check(const char* name, typename Run<T>::Case c, int blocks, unsigned racing, const char* only) {
  if (only && !std::strstr(name, only)) return true;
  emu_blocks = blocks; CpuQueue cpu; CudaQueue gpu; std::vector<char> space(64 << 20); gpu.workspace = space.data(); gpu.workspace_bytes = space.size();
  Run<T> a(c, 3), b(c, 3); check(a.k); compute(cpu, a.k); emu::set_racing(racing);
  compute(gpu, b.k);
  double y = differ(*b.y, *a.y, std::size_t(c.batch) * c.width), worst = 0; for (std::size_t i = 0; i < a.caches.size(); ++i) worst = std::max(worst, differ(*b.caches[i], *a.caches[i], a.caches[i]->size() - 8));
  const double limit = sizeof(T) == 2 && dtype_of<T> == DType::bf16 ? 0.02 : 0.004; bool ok = y < limit && worst < limit;
  // alone: the same bits
  int equal = -1;
  if (c.batch > 1) { equal = 1; for (int s : {0}) { auto one = c; one.batch = 1; Run<T> o(one, 3); if (o.k.qk.offsets || o.k.qk.positions || true) {} emu::set_racing(racing * 3); compute(gpu, o.k);
      if (std::memcmp(o.y->data(), b.y->data() + s * c.width, 2 * c.width)) equal = 0;
      for (std::size_t i = 0; i < o.caches.size(); ++i) { const std::size_t n = o.caches[i]->size() - 8; if (std::memcmp(o.caches[i]->data(), b.caches[i]->data() + s * n, 2 * n)) equal = 0; } } ok = ok && equal; }
  std::printf("%s %-30s y %.5f caches %.5f same bits alone %d\n", ok ? "ok  " : "FAIL", name, y, worst, equal); std::fflush(stdout); return ok;
}
int main(int argc, char** argv) {
  const char* only = argc > 1 ? argv[1] : nullptr; const unsigned race = argc > 2 ? atoi(argv[2]) : 0; bool ok = true;
  using B = Run<bf16>; using H = Run<f16>; 
  ok &= check<bf16>("one", {1, 128, 2, 64, 64, 128, 2, 40, {{33, 5}}, true, 0, 1}, 3, race, only);
  ok &= check<bf16>("five", {5, 128, 2, 64, 64, 128, 2, 40, {{33, 5}}, true, 0, 1}, 3, race, only);
  ok &= check<f16>("image7", {7, 256, 2, 64, 128, 512, 3, 100, {{96}, {33, 5}, {20, 0}}, true, 0, 3}, 5, race, only);
  ok &= check<bf16>("image17", {17, 256, 2, 64, 128, 512, 2, 100, {{96}, {20, 0}}, false, 1, 2}, 5, race, only);
  ok &= check<bf16>("odd", {3, 128, 8, 40, 24, 192, 2, 40, {{33, 5}, {20, 0}}, true, 3, 2}, 4, race, only);
  ok &= check<f16>("wide heads", {5, 384, 3, 128, 128, 384, 2, 40, {{33, 5}, {20, 0}}, true, 2, 2}, 3, race, only);
  ok &= check<bf16>("sizes", {19, 576, 6, 32, 96, 576, 1, 130, {{130, 17}}, true, 3, 1}, 4, race, only);
  ok &= check<bf16>("small", {5, 64, 1, 64, 64, 64, 2, 130, {{130}, {0, 12}}, true, 2, 2}, 12, race, only);
  ok &= check<f16>("rounds", {6, 64, 4, 64, 64, 64, 2, 400, {{390, 97, 64, 32}, {31}}, true, 0, 2}, 1, race, only);
  ok &= check<bf16>("slices", {37, 64, 2, 32, 32, 64, 2, 20, {{9}}, true, 1, 1}, 2, race, only);
  ok &= check<bf16>("hidden", {2, 192, 3, 64, 64, 320, 2, 20, {{9, 16, 17}}, true, 3, 1}, 7, race, only);
  ok &= check<bf16>("text", {9, 512, 8, 64, 64, 2048, 1, 130, {{130, 17}, {0, 12}}, true, 0, 2}, 6, race, only);
  return !ok;
}
