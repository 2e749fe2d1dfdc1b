# SPDX-License-Identifier: MIT
"""Times on a GPU of attention, functions of q, k, v (B, H, n, D): verified first, then a line for each."""
import time

import torch


def with_gradients(form, inputs, dy):
    """y, then gradients of those inputs that have one."""
    y = form(*inputs)
    return [y.detach()] + [g for g in torch.autograd.grad(y, inputs, dy, allow_unused=True) if g is not None]


def verify(definition, form, inputs, dy, heads=1):
    """Against the definition in f32, of one sequence and key head with its query heads, at full length."""
    got = [x[:1, :heads].float() for x in with_gradients(form, inputs, dy)]
    wanted = with_gradients(definition, [x[:1, :heads].detach().float().requires_grad_() for x in inputs],
                            dy[:1, :heads].float())
    for a, b in zip(got, wanted, strict=True):
        assert (a - b).norm() <= 0.02 * b.norm(), f"wrong: off by {(a - b).norm() / b.norm():.3f}"


def median(run):
    """Milliseconds on the device. Caches are flushed; the device sleeps while the launches are made."""
    flush, times = torch.empty(1 << 28, dtype=torch.int8, device="cuda"), []
    for _ in range(13):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(10_000_000)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[2:])[5]


def timed(title, definition, prepare, inputs, dy, heads=1):
    """(forward, forward + backward) of what prepare() gives; None and a line with the reason on failure."""
    begin = time.monotonic()
    try:
        form = prepare()
        verify(definition, form, inputs, dy, heads)
        both = median(lambda: with_gradients(form, inputs, dy))
        with torch.no_grad():
            forward = median(lambda: form(*inputs))
    except Exception as error:  # any: what cannot run is a line, too
        print(f"{title}: not timed: {' '.join(repr(error).split())[:400]}", flush=True)
        return None
    finally:
        torch.cuda.empty_cache()
    print(f"{title}: forward {forward:.2f} ms, forward + backward {both:.2f} ms"
          f" (compiled, verified and timed in {time.monotonic() - begin:.0f} s)", flush=True)
    return forward, both
