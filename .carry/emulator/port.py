import re
src='/work/wt/onecard/kernels/sampling/'
s=open(src+'decode_persistent.cuh').read()
def body(name, new):
    global s
    m=re.search(r'__device__ __forceinline__ [^\n{;]*?\b'+name+r'\((?:[^{]|\n)*?\{', s)
    assert m, name
    i=m.end(); d=1
    while d: d+={'{':1,'}':-1}.get(s[i],0); i+=1
    s=s[:m.end()]+new+s[i-1:]
    return
body('this_thread', ' const int thread = threadIdx.x; return {thread / kWarp, thread % kWarp}; ')
s=re.sub(r'asm volatile\("st\.relaxed[^;]*;"[^;]*;', '{ emu::yield(); if (*to != kAbsent) std::abort(); *to = word; }', s)
s=re.sub(r'asm volatile\("ld\.relaxed\.gpu\.global\.u32[^;]*;"[^;]*;', 'emu::yield(); word = *p;', s)
s=re.sub(r'asm volatile\("ld\.relaxed\.gpu\.global\.v4[^;]*;"[^;]*;', 'emu::yield(); std::memcpy(&v, p, 16);', s)
body('st_shared_16', ' std::memcpy(device::at(address, 16), &v, 16); ')
body('st_shared_4', ' std::memcpy(device::at(address, 4), &v, 4); ')
body('load_once', ' if (reinterpret_cast<std::uintptr_t>(p) % 16) std::abort(); std::memcpy(&v, p, 16); ')
body('cp_async_16_once', ' if (reinterpret_cast<std::uintptr_t>(from) % 16) std::abort(); device::cp_async({to, from, valid}); ')
body('evict_first', ' return 0; ')
body('prefetch_bulk', ' volatile char c = *static_cast<const char*>(p); c = static_cast<const char*>(p)[bytes - 1]; if (bytes % 16 || reinterpret_cast<std::uintptr_t>(p) % 16) std::abort(); ')
assert 'asm' not in s, s[s.index('asm')-200:s.index('asm')+200]
open('/tmp/emu/kernels/sampling/decode_persistent.cuh','w').write(s)
m=open(src+'decode_persistent_matmul.cuh').read()
m=re.sub(r'asm volatile\("st\.shared\.v2[^;]*;"[^;]*;', 'std::memcpy(device::at(to, 4), &x, 4), std::memcpy(device::at(to + 4, 4), &y, 4);', m)
assert 'asm' not in m
open('/tmp/emu/kernels/sampling/decode_persistent_matmul.cuh','w').write(m)
a=open(src+'decode_persistent_attention.cuh').read(); assert 'asm' not in a
for w in ('{q[c], 0, q[c + 1], 0}','{values[0], values[2], values[1], values[3]}'):
    assert w in a
open('/tmp/emu/kernels/sampling/decode_persistent_attention.cuh','w').write(a)
b=open(src+'decode_blocks.cu').read()
b=b.replace('extern __shared__ __align__(128) unsigned char shared[];','unsigned char* shared = emu::shared_memory();')
b=re.sub(r'#if defined\(__CUDA_ARCH_FEAT_SM90_ALL\)\n','',b).replace('#endif\n','')
b=b.replace('return run_in_steps(queue, k);','fail("not covered");')
open('/tmp/emu/decode_blocks.cpp','w').write(b)
