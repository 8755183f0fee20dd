"""The CUDA target on the device at hand, against torch and upstream on the same kernel sources.

`python benchmarks/cuda.py [ROW ...]` prints a table: medians of rounds in which ours and torch take
turns, the level-2 cache flushed before each launch, with the bounds that hold 95 % of the rounds.
`--upstream FOLDER` runs the same sources in a second process, against the package `tilelang` in
FOLDER; rows not done `--seconds` after the start are left blank. `--write` puts the table into
docs/performance.md with the date and the device.

A row whose kernel is refused, or gives wrong numbers, says so in the table.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import tilelang
import tilelang.language as T

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
ROUNDS, LAUNCHES = 5, 12


# Kernels ------------------------------------------------------------------------------------------


def gemm(M, N, K, tiles, stages, threads, dtype="float16", out=None, nn=False, swizzle=True):
    """C = A B^T, or A B with `nn`; fp32 sums."""
    BM, BN, BK = tiles
    out = out or dtype
    b_shape, b_tile = ((K, N), (BK, BN)) if nn else ((N, K), (BN, BK))

    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bx, by):
            A_s = T.alloc_shared((BM, BK), dtype)
            B_s = T.alloc_shared(b_tile, dtype)
            C_s = T.alloc_shared((BM, BN), out)
            C_f = T.alloc_fragment((BM, BN), "float32")
            if swizzle:
                T.use_swizzle(10)
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(A[by * BM, k * BK], A_s)
                if nn:
                    T.copy(B[k * BK, bx * BN], B_s)
                else:
                    T.copy(B[bx * BN, k * BK], B_s)
                T.gemm(A_s, B_s, C_f, transpose_B=not nn)
            T.copy(C_f, C_s)
            T.copy(C_s, C[by * BM, bx * BN])

    return kernel


def attention(B, H, S, D, causal, tiles, stages, threads):
    """softmax(Q K^T / sqrt(D)) V over (batch, sequence, head, channel), with a running softmax."""
    BM, BN = tiles
    scale = D**-0.5 * 1.44269504
    shape = (B, S, H, D)
    f16, f32 = "float16", "float32"

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, f16),
        K: T.Tensor(shape, f16),
        V: T.Tensor(shape, f16),
        O: T.Tensor(shape, f16),  # noqa: E741 - its usual name
    ):
        with T.Kernel(T.ceildiv(S, BM), H, B, threads=threads) as (bx, by, bz):
            Q_s = T.alloc_shared((BM, D), f16)
            K_s = T.alloc_shared((BN, D), f16)
            V_s = T.alloc_shared((BN, D), f16)
            O_s = T.alloc_shared((BM, D), f16)
            P = T.alloc_fragment((BM, BN), f32)
            P_h = T.alloc_fragment((BM, BN), f16)
            acc = T.alloc_fragment((BM, D), f32)
            top = T.alloc_fragment((BM,), f32)
            before = T.alloc_fragment((BM,), f32)
            shrink = T.alloc_fragment((BM,), f32)
            part = T.alloc_fragment((BM,), f32)
            total = T.alloc_fragment((BM,), f32)
            T.copy(Q[bz, bx * BM : (bx + 1) * BM, by, :], Q_s)
            T.fill(acc, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity(f32))
            last = T.min(T.ceildiv(S, BN), T.ceildiv((bx + 1) * BM, BN)) if causal else S // BN
            for k in T.Pipelined(last, num_stages=stages):
                T.copy(K[bz, k * BN : (k + 1) * BN, by, :], K_s)
                if causal:
                    for i, j in T.Parallel(BM, BN):
                        P[i, j] = T.if_then_else(bx * BM + i >= k * BN + j, 0, -T.infinity(f32))
                else:
                    T.clear(P)
                T.gemm(Q_s, K_s, P, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, before)
                T.fill(top, -T.infinity(f32))
                T.reduce_max(P, top, dim=1, clear=False)
                for i in T.Parallel(BM):
                    top[i] = T.max(top[i], before[i])
                for i in T.Parallel(BM):
                    shrink[i] = T.exp2(before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(BM, BN):
                    P[i, j] = T.exp2(P[i, j] * scale - top[i] * scale)
                T.reduce_sum(P, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * shrink[i] + part[i]
                T.copy(P, P_h)
                for i, j in T.Parallel(BM, D):
                    acc[i, j] *= shrink[i]
                T.copy(V[bz, k * BN : (k + 1) * BN, by, :], V_s)
                T.gemm(P_h, V_s, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, D):
                acc[i, j] /= total[i]
            T.copy(acc, O_s)
            T.copy(O_s, O[bz, bx * BM : (bx + 1) * BM, by, :])

    return kernel


def add(M, N, tile, threads):
    """C = A + B in float32."""
    BM, BN = tile
    f32 = "float32"

    @T.prim_func
    def kernel(A: T.Tensor((M, N), f32), B: T.Tensor((M, N), f32), C: T.Tensor((M, N), f32)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bx, by):
            for i, j in T.Parallel(BM, BN):
                C[by * BM + i, bx * BN + j] = (
                    A[by * BM + i, bx * BN + j] + B[by * BM + i, bx * BN + j]
                )

    return kernel


def rms_norm(M, N, threads):
    """Root mean square norm of rows in float16, one row to a block."""
    f16, f32 = "float16", "float32"

    @T.prim_func
    def kernel(A: T.Tensor((M, N), f16), B: T.Tensor((M, N), f16)):
        with T.Kernel(M, threads=threads) as bx:
            row = T.alloc_fragment((1, N), f32)
            square = T.alloc_fragment((1, N), f32)
            total = T.alloc_fragment((1,), f32)
            T.copy(A[bx : bx + 1, :], row)
            for i, j in T.Parallel(1, N):
                square[i, j] = row[i, j] * row[i, j]
            T.reduce_sum(square, total, dim=1)
            for i in T.Parallel(1):
                total[i] = T.rsqrt(total[i] / N + 1e-6)
            for i, j in T.Parallel(1, N):
                row[i, j] *= total[i]
            T.copy(row, B[bx : bx + 1, :])

    return kernel


def softmax(M, N, threads):
    """Softmax of rows in float16, one row to a block."""
    f16, f32 = "float16", "float32"

    @T.prim_func
    def kernel(A: T.Tensor((M, N), f16), B: T.Tensor((M, N), f16)):
        with T.Kernel(M, threads=threads) as bx:
            row = T.alloc_fragment((1, N), f32)
            top = T.alloc_fragment((1,), f32)
            total = T.alloc_fragment((1,), f32)
            T.copy(A[bx : bx + 1, :], row)
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(1, N):
                row[i, j] = T.exp2((row[i, j] - top[i]) * 1.44269504)
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(1, N):
                row[i, j] /= total[i]
            T.copy(row, B[bx : bx + 1, :])

    return kernel


# Rows ---------------------------------------------------------------------------------------------


def random(*shape, dtype=torch.float16):
    """Normal numbers on the device."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def gemm_row(M, N, K, configs, dtype="float16", nn=False, out=None):
    """A product, against torch's."""
    kind = getattr(torch, dtype)
    scale = K**-0.25

    def arrays():
        a = (random(M, K, dtype=torch.float32) * scale).to(kind)
        b = (random(*((K, N) if nn else (N, K)), dtype=torch.float32) * scale).to(kind)
        return a, b, torch.empty(M, N, device="cuda", dtype=getattr(torch, out or dtype))

    def reference(a, b, c):
        if kind is torch.float8_e4m3fn:
            one = torch.ones((), device="cuda")
            return torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=c.dtype, out=c)
        return torch.matmul(a, b if nn else b.T, out=c)

    made = [lambda c=c: gemm(M, N, K, *c, dtype=dtype, out=out, nn=nn) for c in configs]
    size = 1 if kind is torch.float8_e4m3fn else 2
    skinny = M < 64
    work = size * (M * K + N * K) + 2 * M * N if skinny else 2 * M * N * K
    return made, arrays, reference, work, "GB/s" if skinny else "TFLOP/s", {}


def attention_row(B, H, S, D, causal, configs, settings):
    """Attention, against cuDNN's through torch."""

    def arrays():
        return [random(B, S, H, D) for _ in range(3)] + [
            torch.empty(B, S, H, D, device="cuda").half()
        ]

    def reference(q, k, v, o):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
            out = torch.nn.functional.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal
            )
        return out.transpose(1, 2)

    made = [lambda c=c: attention(B, H, S, D, causal, *c) for c in configs]
    work = 4 * B * H * S * S * D // (2 if causal else 1)
    return made, arrays, reference, work, "TFLOP/s", settings


def memory_row(made, arrays, reference, moved):
    """A kernel that moves bytes."""
    return made, arrays, reference, moved, "GB/s", {}


N8 = 8192


def unary(fn):
    """Arrays and reference of a function of one float16 matrix."""
    return (
        lambda: (random(N8, N8), torch.empty(N8, N8, device="cuda", dtype=torch.float16)),
        lambda a, b: fn(a),
    )


def rows():
    """What each row needs, by name."""
    big = [((128, 256, 64), 4, 256), ((128, 256, 64), 3, 256)]
    full = [((128, 128), 2, 256), ((192, 128), 2, 384)]
    causally = [((128, 128), 2, 256), ((128, 128), 1, 256)]
    fast = {"tl.enable_fast_math": True}  # as upstream's own attention is compiled
    rms = lambda a: torch.nn.functional.rms_norm(a, (N8,), eps=1e-6)  # noqa: E731
    soft = lambda a: torch.softmax(a, -1)  # noqa: E731
    three = lambda: [random(N8, N8, dtype=torch.float32) for _ in range(3)]  # noqa: E731
    return {
        "gemm fp16 2048^3": gemm_row(2048, 2048, 2048, [((128, 256, 64), 3, 256)]),
        "gemm fp16 8192^3": gemm_row(8192, 8192, 8192, big),
        "gemm bf16 1024^3": gemm_row(
            1024, 1024, 1024, [((128, 128, 64), 4, 256), ((64, 128, 64), 5, 128)], "bfloat16"
        ),
        "gemm bf16 4096^3": gemm_row(4096, 4096, 4096, big, "bfloat16"),
        "gemm bf16 8192^3": gemm_row(8192, 8192, 8192, big, "bfloat16"),
        "gemm fp16 4096^3, C = A B": gemm_row(4096, 4096, 4096, big, nn=True),
        "gemm bf16 16 x 8192 x 8192": gemm_row(
            16, 8192, 8192, [((16, 64, 256), 3, 128)], "bfloat16"
        ),
        "gemm fp8 e4m3 4096^3, bf16 out": gemm_row(
            4096, 4096, 4096, [((128, 256, 128), 3, 256)], "float8_e4m3fn", out="bfloat16"
        ),
        **{
            f"attention fp16 B4 H32 S4096 D128{', causal' if causal else ''}{said}": attention_row(
                4, 32, 4096, 128, causal, tiles, settings
            )
            for causal, tiles in ((False, full), (True, causally))
            for said, settings in ((", fast math", fast), ("", {}))
        },
        "add fp32 8192^2": memory_row(
            [lambda: add(N8, N8, (8, 256), 128)],
            three,
            lambda a, b, c: torch.add(a, b, out=c),
            12 * N8 * N8,
        ),
        "RMS norm fp16 8192^2": memory_row(
            [lambda: rms_norm(N8, N8, 512)], *unary(rms), 4 * N8 * N8
        ),
        "softmax fp16 8192^2": memory_row(
            [lambda: softmax(N8, N8, 512)], *unary(soft), 4 * N8 * N8
        ),
    }


# Measuring ----------------------------------------------------------------------------------------


class Clock:
    """Times of single launches, the level-2 cache flushed before each."""

    def __init__(self):
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def median(self, fn):
        """Milliseconds of one launch."""
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(LAUNCHES)]
        for start, end in events:
            self.flush.zero_()
            start.record()
            fn()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in events)


@contextlib.contextmanager
def device_compiler():
    """The seconds spent in NVRTC inside the block, in a list; none for upstream, which has nvcc."""
    took = []
    try:
        from tilelang.runtime import cuda_cache
    except ImportError:
        yield took
        return
    real = cuda_cache.compile_source

    def timed(*args, **how):
        start = time.perf_counter()
        made = real(*args, **how)
        took.append(time.perf_counter() - start)
        return made

    cuda_cache.compile_source = timed
    yield took
    cuda_cache.compile_source = real


def compiled(make, settings, arrays, want):
    """A kernel of the row, with the seconds that it took and those of the device compiler among
    them; or why there is none.
    """
    func = make()
    start = time.perf_counter()
    try:
        with device_compiler() as inside:
            kernel = tilelang.compile(func, target="cuda", pass_configs=settings)
        took = (time.perf_counter() - start, sum(inside))
        arrays[-1].fill_(float("nan"))
        kernel(*arrays)
        torch.cuda.synchronize()
    except Exception as e:  # a row that fails is a line of the table
        return None, (0.0, 0.0), f"{type(e).__name__}: {str(e).splitlines()[0][:90]}"
    off = ((arrays[-1].float() - want).norm() / want.norm()).item()
    return (kernel, took, "") if off < 2e-2 else (None, took, f"wrong: off by {off:.1e}")


def measured(row, clock, against_torch=True):
    """Rates of a row: ours in the best configuration, and torch's."""
    makes, make_arrays, reference, work, unit, settings = row
    arrays = make_arrays()
    want = reference(*arrays).float()
    tried = [compiled(make, settings, arrays, want) for make in makes]
    usable = [t for t in tried if t[0] is not None]
    if not usable:
        return {"unit": unit, "why": tried[0][2]}
    best = min(usable, key=lambda t: clock.median(lambda: t[0](*arrays)))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(clock.median(lambda: best[0](*arrays)))
        if against_torch:
            theirs.append(clock.median(lambda: reference(*arrays)))
    scale = 1e9 if unit == "TFLOP/s" else 1e6
    rates = sorted(work / t / scale for t in ours)
    return {
        "unit": unit,
        "ours": statistics.median(rates),
        "low": rates[0],
        "high": rates[-1],
        "torch": work / statistics.median(theirs) / scale if theirs else math.nan,
        "compile": statistics.median(t[1][0] for t in usable),
        "device compiler": statistics.median(t[1][1] for t in usable),
    }


def tiny_kernel():
    """A kernel that does almost nothing, and allocates its output."""

    @T.prim_func
    def tiny(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(256):
                B[i] = A[i] + 1.0

    return tilelang.compile(tiny, out_idx=-1, target="cuda")


def bare_launch(kernel, a):
    """What no launch can do without, as a function: `torch.empty_like`, and the driver's call with
    arguments that lie ready. None for upstream.
    """
    try:
        from tilelang.runtime.cuda import Prepared
        from tilelang.targets.cuda.driver import driver
    except ImportError:
        return None
    first = kernel._program.on(a.get_device()).kernels[0]
    ready = Prepared(first.facts, first.handle)
    ready.config.grid_x = ready.config.grid_y = ready.config.grid_z = 1
    ready.config.stream = torch.cuda.current_stream().cuda_stream
    b = torch.empty_like(a)
    ready.packing.pack_into(ready.block, 0, a.data_ptr(), b.data_ptr())
    call, new = driver().launch_kernel, torch.empty_like

    def bare(at=ready.arguments, kept=ready):
        made = new(a)
        call(*at, None)
        return made

    return bare


def launching():
    """Microseconds of host time for a launch with its output allocated: ours, the least that there
    can be, and torch.add. They take turns.
    """
    kernel = tiny_kernel()
    a = random(256, dtype=torch.float32)
    kernel(a)
    bare = bare_launch(kernel, a)
    ways = {"ours": lambda: kernel(a), "torch": lambda: torch.add(a, 1.0)}
    ways |= {} if bare is None else {"bare": bare}
    times = {name: [] for name in ways}
    for _ in range(40):
        for name, fn in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(100):
                fn()
            times[name].append((time.perf_counter() - start) * 1e4)
    torch.cuda.synchronize()
    return {name: statistics.median(found) for name, found in times.items()}


def run(names, against_torch, tell=None):
    """All results by name; `tell` is called with each name and result as soon as it is made."""
    clock = Clock()
    tiny_kernel()  # what is imported with the first kernel is in no row
    wanted = {n: r for n, r in rows().items() if not names or any(x in n for x in names)}
    results = {}
    for name, row in wanted.items():
        results[name] = measured(row, clock, against_torch)
        print(name, results[name], file=sys.stderr, flush=True)
        if tell:
            tell(name, results[name])
        torch.cuda.empty_cache()
    if not names or "launch" in names:
        results["launch"] = launching()
        if tell:
            tell("launch", results["launch"])
    return results


# The table ----------------------------------------------------------------------------------------


def upstream(folder, names, seconds):
    """The same rows by the package in a folder, in a process of its own: those done in time."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, __file__, "--json", *names]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        try:
            how = {"stdout": out, "stderr": log, "timeout": seconds, "env": env, "cwd": "/tmp"}
            code = subprocess.run(command, check=False, **how).returncode
        except subprocess.TimeoutExpired:
            code = f"stopped after {seconds:.0f} s"
        log.seek(0), out.seek(0)
        if code:
            print("upstream:", code, log.read()[-2000:], file=sys.stderr)
        return rows_told(out.read())


def rows_told(text):
    """Results by name, from lines that each hold one as JSON; other lines are passed over."""
    found = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            found |= told if isinstance(told, dict) else {}
    return found


def tell_row(name, result):
    """A line that `rows_told` reads."""
    print(json.dumps({name: result}), flush=True)


def table(results, theirs):
    """Markdown."""
    lines = ["| | ours | 95 % | torch | ours / torch | upstream | ours / upstream | compile |"]
    lines.append("| --- " * 8 + "|")
    for name, r in results.items():
        up = theirs.get(name, {})
        if name == "launch":
            mine, other = f"{r['ours']:.1f} us", f"{up['ours']:.1f} us" if up else ""
            ratio = f"{r['ours'] / up['ours']:.2f}" if up else ""
            least = f"least {r['bare']:.1f} us"
            lines.append(
                f"| launch, host | {mine} | {least} | {r['torch']:.1f} us | | {other} | {ratio} | |"
            )
        elif "why" in r:
            lines.append(f"| {name} | {r['why']} | | | | | | |")
        else:
            bounds = f"{r['low']:.0f}-{r['high']:.0f}"
            ours, torchs = r["ours"], r["torch"]
            rate = f"{up['ours']:.0f}" if "ours" in up else up.get("why", "")
            ratio = f"{ours / up['ours']:.2f}" if "ours" in up else ""
            lines.append(
                f"| {name} | {ours:.0f} {r['unit']} | {bounds} | {torchs:.0f} | {ours / torchs:.2f}"
                f" | {rate} | {ratio} | {_seconds(r)} |"
            )
    return "\n".join(lines)


def _seconds(r):
    """How long a cold compilation took, and our part before the device compiler."""
    before = r["compile"] - r["device compiler"]
    return f"{r['compile']:.2f} s, {before:.2f} s of it before NVRTC"


def main():
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--upstream", type=Path)
    parser.add_argument(
        "--seconds", type=float, help="for the whole run: upstream's rows take what ours left"
    )
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    start = time.monotonic()
    if args.json:
        run(args.names, against_torch=False, tell=tell_row)
        return
    results = run(args.names, against_torch=True)
    text = table(results, {})
    if args.write:  # before upstream's rows: what stops those leaves ours
        write(text)
    if args.upstream:
        left = args.seconds and max(1, args.seconds - (time.monotonic() - start))
        text = table(results, upstream(args.upstream, args.names, left))
        if args.write:
            write(text)
    print(text)


def write(text):
    """The table into the page, with the date and the device."""
    head, start, rest = PAGE.read_text().partition("<!-- cuda -->\n")
    _, end, tail = rest.partition("<!-- end cuda -->")
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    said = f"{datetime.date.today().isoformat()}, {device}.\n\n{text}\n"
    PAGE.write_text(head + start + said + end + tail)


if __name__ == "__main__":
    main()
