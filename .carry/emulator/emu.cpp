#include <ucontext.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include "kernels/device/mma.cuh"
int emu_blocks = 4, emu_shared = std::getenv("EMU_SHARED") ? std::atoi(std::getenv("EMU_SHARED")) : 232448;
namespace emu {
struct Warp { std::uint64_t value[2][32]; int count = 0; unsigned generation = 0; };
struct Block { std::vector<unsigned char> memory; std::vector<Warp> warps; int count = 0, threads = 0; unsigned generation = 0; };
struct Fiber { Thread at; ucontext_t context; std::unique_ptr<char[]> stack; Block* block; bool done = false; std::vector<std::vector<weft::device::Copy>> groups; std::vector<weft::device::Copy> open; };
static ucontext_t main_context; static Fiber* now; static const std::function<void()>* work; static std::mt19937 rng(1);
static bool racing = false;
Thread* current() { return &now->at; }
void yield() { swapcontext(&now->context, &main_context); }
unsigned char* shared_memory() { return now->block->memory.data(); }
void block_sync() { Block& b = *now->block; const unsigned g = b.generation; if (++b.count == b.threads) { b.count = 0; ++b.generation; } else while (b.generation == g) yield(); }
static Warp& warp() { return now->block->warps[now->at.thread.x / 32]; }
std::uint64_t exchange(std::uint64_t mine, int from) {
  Warp& w = warp(); const unsigned g = w.generation; w.value[g % 2][now->at.thread.x % 32] = mine;
  if (++w.count == 32) { w.count = 0; ++w.generation; } else while (w.generation == g) yield();
  return w.value[g % 2][from];
}
void warp_sync() { exchange(0, 0); }
unsigned ballot(bool p) { Warp& w = warp(); const unsigned g = w.generation; exchange(p, 0); unsigned r = 0; for (int i = 0; i < 32; ++i) r |= unsigned(w.value[g % 2][i]) << i; return r; }
static void entry() { (*work)(); now->done = true; swapcontext(&now->context, &main_context); }
void run(unsigned blocks, unsigned threads, std::size_t shared, const std::function<void()>& kernel) {
  work = &kernel; std::vector<Block> all(blocks); std::vector<Fiber> fibers(blocks * threads);
  for (unsigned b = 0; b < blocks; ++b) { all[b].memory.assign(shared, 0x7f); for (auto& m : all[b].memory) m = rng(); all[b].warps.resize(threads / 32); all[b].threads = threads; }
  constexpr int kStack = 96 << 10;
  for (unsigned i = 0; i < fibers.size(); ++i) {
    Fiber& f = fibers[i]; f.at = {dim3(i % threads), dim3(i / threads)}; f.block = &all[i / threads]; f.stack.reset(new char[kStack]);
    f.at.thread.y = f.at.thread.z = 0; getcontext(&f.context); f.context.uc_stack.ss_sp = f.stack.get(); f.context.uc_stack.ss_size = kStack; f.context.uc_link = nullptr; makecontext(&f.context, entry, 0);
  }
  std::size_t left = fibers.size(); long idle = 0; std::vector<unsigned> order(blocks * threads / 32); for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  while (left) {
    if (racing) std::shuffle(order.begin(), order.end(), rng);
    for (unsigned w : order) { if (racing && rng() % 4 == 0) continue; for (unsigned l = 0; l < 32; ++l) { Fiber& f = fibers[w * 32 + l]; if (f.done) continue; now = &f; swapcontext(&main_context, &f.context); if (f.done) --left; } }
    if (++idle > 2000000) { std::fprintf(stderr, "no end\n"); std::abort(); }
  }
}
void set_racing(unsigned seed) { racing = seed != 0; rng.seed(seed); }
}
namespace weft::device {
unsigned char* at(std::uint32_t a, int bytes) {
  auto& m = emu::now->block->memory; a -= 1024;
  if (a + bytes > m.size() || a % bytes != 0) { std::fprintf(stderr, "shared memory: %u + %d of %zu\n", a, bytes, m.size()); std::abort(); }
  return m.data() + a;
}
static void perform(const Copy& c) { if (c.valid) std::memcpy(at(c.to, 16), c.from, 16); else std::memset(at(c.to, 16), 0, 16); }
void cp_async(const Copy& c) { if (emu::racing && emu::rng() % 2) perform(c); emu::now->open.push_back(c); }
void cp_async_commit_group() { emu::now->groups.push_back(std::move(emu::now->open)); emu::now->open.clear(); }
void cp_async_wait(int pending) { auto& g = emu::now->groups; while (int(g.size()) > pending) { for (auto& c : g.front()) perform(c); g.erase(g.begin()); } }
}
