#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch offers for the patterns that `bench attention` times, at the same shapes, in bf16: a JSON row for each, with the
keys of `bench attention --json`. Needs a GPU and PyTorch 2.5 or later; errors are rows, too.

    torch_peers.py [--shapes enwik8,cifar10_half,...] [--modes all,fixed,...] [--seconds 100] > peers.jsonl

sdpa_cudnn, sdpa_flash: scaled_dot_product_attention with that backend (flash: queries and keys padded to the size of values). flex_plain: FlexAttention with the pattern as its mask.
transposed_*: a time axis of (rows, stride) turned around, which makes columns of `strided` sequences of their own.
joined_flex: local and transposed strided, joined by their log-sum-exp. gathered_flex: summaries of `fixed` put before the keys, so that the mask has few blocks.

Compiling takes far longer than timing, so that each shape and pattern gets a process; they compile side by side and are timed
one after the other when all are ready. What is not ready after two thirds of --seconds is left out, which a row says. Medians
of triton.testing.do_bench, which clears the second-level cache before each run."""
import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time

SHAPES = {  # B, H, N, Dqk, Dv, stride, c
    "enwik8": (4, 8, 12288, 64, 64, 128, 32),
    "cifar10": (32, 2, 3072, 128, 128, 128, 32),
    "cifar10_half": (32, 2, 3072, 64, 128, 128, 32),
    "cifar10_s96": (32, 2, 3072, 128, 128, 96, 32),
    "cifar10_half_s96": (32, 2, 3072, 64, 128, 96, 32),
    "long64k": (1, 8, 65536, 64, 64, 256, 32),
    "long1m": (1, 4, 1048576, 64, 64, 1024, 32),
}
MODES = ("all", "local", "strided", "fixed", "merged_strided")
DEVICE = "cuda"
BLOCK = 128  # edge of FlexAttention's blocks
GRACE = 8  # seconds for a process to notice that its time is over
LONGEST_MASK = 1 << 17  # masks as written are evaluated pair by pair


def needed_pairs(mode, n, s, c):
    """Of one head and sequence."""
    blocks, rest = divmod(n, s)
    local = s * (s + 1) // 2 + (n - s) * s
    columns = sum(min(s, n - row * s) * (row + 1) for row in range(-(-n // s)))
    own = blocks * (s * (s + 1) // 2) + rest * (rest + 1) // 2
    earlier = s * blocks * (blocks - 1) // 2 + rest * blocks
    return {"all": n * (n + 1) // 2, "local": local, "strided": columns, "fixed": own + c * earlier,
            "merged_strided": local + columns - n}[mode]


class Case:
    """A shape and a pattern; its functions take q, k and v of (B, H, N, size) and give (B, H, N, Dv)."""

    def __init__(self, shape, mode):
        import torch
        self.shape, self.mode = shape, mode
        self.B, self.H, self.N, self.Dqk, self.Dv, self.s, self.c = SHAPES[shape]
        self.torch = torch

    def inputs(self):
        make = lambda size: self.torch.randn(self.B, self.H, self.N, size, device=DEVICE, dtype=self.torch.bfloat16, requires_grad=True)
        return [make(self.Dqk), make(self.Dqk), make(self.Dv)]

    def block_mask(self, mask, keys):
        """create_block_mask() in rows of blocks, so that no table of all pairs is held."""
        from torch.nn.attention.flex_attention import BlockMask
        torch, rows = self.torch, -(-self.N // BLOCK)
        if self.N > LONGEST_MASK:
            some, every = self.blocks_of_gathered()
        else:
            some, every = (torch.zeros(rows, -(-keys // BLOCK), dtype=torch.bool, device=DEVICE) for _ in range(2))
            k = torch.arange(keys, device=DEVICE)
            for row in range(rows):
                q = torch.arange(row * BLOCK, min(self.N, (row + 1) * BLOCK), device=DEVICE)[:, None]
                seen = mask(0, 0, q, k[None, :]).expand(len(q), keys)
                pad = -keys % BLOCK
                seen = torch.nn.functional.pad(seen, (0, pad)).view(len(q), -1, BLOCK)
                some[row], every[row] = seen.any(2).any(0), seen.all(2).all(0)
        ordered = lambda blocks: (blocks.sum(-1).int()[None, None],
                                  torch.argsort(blocks.int(), dim=-1, descending=True, stable=True).int()[None, None])
        return BlockMask.from_kv_blocks(*ordered(some & ~every), *ordered(every), BLOCK_SIZE=BLOCK, mask_mod=mask, seq_lengths=(self.N, keys))

    def blocks_of_gathered(self):
        """Of gathered_flex, where strides are whole blocks: those with any and with only seen pairs."""
        torch, of_stride, in_block = self.torch, self.s // BLOCK, BLOCK // self.c
        row = torch.arange(self.N // BLOCK, device=DEVICE)[:, None]
        summary = torch.arange(self.N // self.s * self.c // BLOCK, device=DEVICE)[None, :]
        own, same = row.T, row // of_stride == row.T // of_stride
        return (torch.cat([summary * in_block < row // of_stride, same & (own <= row)], 1),
                torch.cat([summary * in_block + in_block - 1 < row // of_stride, same & (own < row)], 1))

    def sdpa(self, backend):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        functional = self.torch.nn.functional
        which = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]

        def attend(q, k, v):
            if backend == "flash" and self.Dqk < self.Dv:
                q, k = (functional.pad(x, (0, self.Dv - self.Dqk)) for x in (q, k))
            with sdpa_kernel(which):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.Dqk**-0.5)
        return attend

    def compiled(self, function):
        return self.torch.compile(function, dynamic=False)

    def flex(self):
        import by_hand
        from torch.nn.attention.flex_attention import flex_attention
        mask = self.block_mask(by_hand.cases(self.s, self.c)[self.mode][1], self.N)
        return self.compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=mask))

    def transposed(self, backend):
        import by_hand
        return self.compiled(by_hand.transposed(self.s, self.sdpa(backend)))

    def gathered(self):
        import by_hand
        mask = self.block_mask(by_hand.seen_of_gathered(self.N, self.s, self.c), self.N + self.N // self.s * self.c)
        return self.compiled(by_hand.gathered(self.N, self.s, self.c, DEVICE, mask))

    def joined(self):
        import by_hand
        return self.compiled(by_hand.joined(self.N, self.s, DEVICE))

    def peers(self):
        """{name: what makes the function}"""
        makers = {}
        if self.mode == "all":
            makers = {"sdpa_" + b: lambda b=b: self.sdpa(b) for b in ("cudnn", "flash")}
        if self.mode == "strided":
            makers = {"transposed_sdpa_" + b: lambda b=b: self.transposed(b) for b in ("cudnn", "flash")}
        if self.mode == "fixed":
            makers = {"gathered_flex": self.gathered}
        if self.mode == "merged_strided" and self.N <= LONGEST_MASK:
            makers = {"joined_flex": self.joined}
        if self.N <= LONGEST_MASK:
            makers["flex_plain"] = self.flex
        return makers

    def row(self, peer, **more):
        return {"case": self.shape, "mode": self.mode, "dtype": "bf16", "B": self.B, "H": self.H, "N": self.N, "D": self.Dqk, "Dv": self.Dv,
                "s": self.s, "c": self.c, "peer": peer, **more}

    def prepare(self, make):
        """Compiles both passes; returns what runs the forward pass alone, and both."""
        function, inputs = make(), self.inputs()
        out = function(*inputs)
        gradient = self.torch.randn_like(out)

        def forward():
            with self.torch.no_grad():
                return function(*inputs)

        def both():
            for x in inputs:
                x.grad = None
            function(*inputs).backward(gradient)
        forward()
        both()
        if DEVICE == "cuda":
            self.torch.cuda.synchronize()
            self.torch.cuda.empty_cache()
        return forward, both

    def measure(self, peer, forward, both):
        from triton.testing import do_bench
        f = do_bench(forward, warmup=25, rep=120, return_mode="median")
        fb = do_bench(both, warmup=25, rep=200, return_mode="median")
        pairs = needed_pairs(self.mode, self.N, self.s, self.c) * self.B * self.H
        forward_flops = 2 * (self.Dqk + self.Dv) * pairs
        both_flops = forward_flops + (6 * self.Dqk + 4 * self.Dv) * pairs
        return self.row(peer, fwd_ms=round(f, 4), fwdbwd_ms=round(fb, 4), fwd_tflops=round(forward_flops / f / 1e9, 1),
                        fwdbwd_tflops=round(both_flops / fb / 1e9, 1))


def child(shape, mode, seconds):
    """Compiles what it can in that time, says READY, waits for a line on stdin, times."""
    def too_late(*_):
        raise TimeoutError("not compiled in the time that was given")
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, float(seconds)), 1)  # again each second: for each that is left
    case, ready = Case(shape, mode), {}
    for peer, make in case.peers().items():
        try:
            ready[peer] = case.prepare(make)
        except Exception as error:  # any: what cannot run is a row of the table, too
            print(json.dumps(case.row(peer, error=repr(error)[:300])), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("READY", flush=True)
    sys.stdin.readline()
    for peer, functions in ready.items():
        print(json.dumps(case.measure(peer, *functions)), flush=True)


def start(shape, mode, deadline):
    """(process, rows so far) of a child that is ready; (None, rows) of one that is not in time."""
    environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS="1", OMP_NUM_THREADS="1")
    left = str(deadline - time.monotonic())
    process = subprocess.Popen([sys.executable, sys.argv[0], "--child", shape, mode, left], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=environment)
    watch = concurrent.futures.ThreadPoolExecutor(1)
    rows = []

    def until_ready():
        for line in process.stdout:
            if line == "READY\n":
                return True
            rows.append(line)
        return False
    try:
        if watch.submit(until_ready).result(max(0.1, deadline + GRACE - time.monotonic())):
            return process, rows
        why = f"ended with exit code {process.wait()}"
    except concurrent.futures.TimeoutError:
        process.kill()
        why = "not compiled in the time that was given"
    B, H, N, D, Dv, s, c = SHAPES[shape]
    rows.append(json.dumps(dict(case=shape, mode=mode, B=B, H=H, N=N, D=D, Dv=Dv, s=s, c=c, peer="PyTorch", error=why)) + "\n")
    return None, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--compile", action="store_true", help="fill PyTorch's cache of compiled kernels, time nothing")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.child:
        return child(*a.child)
    begun = time.monotonic()
    cases = [(shape, mode) for shape in a.shapes.split(",") for mode in a.modes.split(",") if shape != "long1m" or mode in ("strided", "fixed")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        started = list(pool.map(lambda case: start(*case, begun + a.seconds * 2 / 3), cases))
    print(f"compiled after {time.monotonic() - begun:.1f} s", file=sys.stderr)
    for (shape, mode), (process, rows) in zip(cases, started):
        sys.stdout.writelines(rows)
        sys.stdout.flush()
        left = begun + a.seconds - time.monotonic()
        if process is None:
            continue
        if a.compile:
            process.kill()
            continue
        if left <= 0:
            process.kill()
            print(f"no time was left for {shape} {mode}", file=sys.stderr)
            continue
        sys.stdout.write(process.communicate("go\n")[0])
        sys.stdout.flush()
    print(f"done after {time.monotonic() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
