"""The native CPU target against NumPy on the same arrays, with as many threads.

`python benchmarks/cpu.py [NAME ...]` prints a table: the best time of each, the ratio, and the goal
that it is held against. With `--write`, the table goes into docs/performance.md with the date and
the machine. NumPy's BLAS gets the threads that the kernels get; its other functions have one thread
whatever they are given, as NumPy has.
"""

import argparse
import datetime
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, str(THREADS))

import numpy as np  # noqa: E402 - after the number of BLAS threads

import tilelang  # noqa: E402
import tilelang.language as T  # noqa: E402

F32 = "float32"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
RANDOM = np.random.default_rng(0)


def random(*shape):
    """float32 numbers of a normal distribution."""
    return RANDOM.standard_normal(shape, dtype=np.float32)


def gemm_kernel(M, N, K, BM=256, BN=256, BK=256):
    """C = A B in float32."""

    @T.prim_func
    def kernel(A: T.Tensor((M, K), F32), B: T.Tensor((K, N), F32), C: T.Tensor((M, N), F32)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), F32)
            B_s = T.alloc_shared((BK, BN), F32)
            C_f = T.alloc_fragment((BM, BN), F32)
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(B[k * BK, bx * BN], B_s)
                T.gemm(A_s, B_s, C_f)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def gemm(n):
    """A product of square matrices."""
    a, b = random(n, n), random(n, n)
    return gemm_kernel(n, n, n), (a, b, np.empty((n, n), F32)), lambda out: np.matmul(a, b, out=out)


def softmax(M=4096, N=4096):
    """Softmax of the rows."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), F32), B: T.Tensor((M, N), F32)):
        with T.Kernel(M, threads=128) as bx:
            row = T.alloc_fragment((1, N), F32)
            top = T.alloc_fragment((1,), F32)
            total = T.alloc_fragment((1,), F32)
            T.copy(A[bx, 0], row)
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(1, N):
                row[i, j] = T.exp(row[i, j] - top[i])
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(1, N):
                B[bx, j] = row[i, j] / total[i]

    a = random(M, N)

    def numpy(out):
        np.subtract(a, a.max(1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(1, keepdims=True), out=out)

    return kernel, (a, np.empty((M, N), F32)), numpy


def rms_norm(M=4096, N=4096):
    """Root mean square norm of the rows."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), F32), B: T.Tensor((M, N), F32)):
        with T.Kernel(M, threads=128) as bx:
            row = T.alloc_fragment((1, N), F32)
            square = T.alloc_fragment((1, N), F32)
            total = T.alloc_fragment((1,), F32)
            T.copy(A[bx, 0], row)
            for i, j in T.Parallel(1, N):
                square[i, j] = row[i, j] * row[i, j]
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(1, N):
                B[bx, j] = row[i, j] * T.rsqrt(total[i] / N + 1e-6)

    a = random(M, N)

    def numpy(out):
        np.square(a, out=out)
        scale = 1 / np.sqrt(out.mean(1, keepdims=True) + np.float32(1e-6))
        np.multiply(a, scale, out=out)

    return kernel, (a, np.empty((M, N), F32)), numpy


def add(M=4096, N=4096):
    """The sum of two matrices."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), F32), B: T.Tensor((M, N), F32), C: T.Tensor((M, N), F32)):
        with T.Kernel(M, threads=128) as bx:
            for j in T.Parallel(N):
                C[bx, j] = A[bx, j] + B[bx, j]

    a, b = random(M, N), random(M, N)
    return kernel, (a, b, np.empty((M, N), F32)), lambda out: np.add(a, b, out=out)


def attention(H=4, S=1024, D=64, BM=64, BN=128):
    """Attention forward with a running softmax, against softmax(Q K^T) V as a formula."""
    scale = D**-0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((H, S, D), F32),
        K: T.Tensor((H, S, D), F32),
        V: T.Tensor((H, S, D), F32),
        O: T.Tensor((H, S, D), F32),  # noqa: E741 - its usual name
    ):
        with T.Kernel(T.ceildiv(S, BM), H, threads=128) as (bx, by):
            Q_s = T.alloc_shared((BM, D), F32)
            K_s = T.alloc_shared((BN, D), F32)
            V_s = T.alloc_shared((BN, D), F32)
            P = T.alloc_fragment((BM, BN), F32)
            acc = T.alloc_fragment((BM, D), F32)
            top = T.alloc_fragment((BM,), F32)
            shrink = T.alloc_fragment((BM,), F32)
            part = T.alloc_fragment((BM,), F32)
            total = T.alloc_fragment((BM,), F32)
            T.copy(Q[by, bx * BM : (bx + 1) * BM, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -T.infinity(F32))
            for k in T.Pipelined(T.ceildiv(S, BN), num_stages=2):
                T.copy(K[by, k * BN : (k + 1) * BN, :], K_s)
                T.gemm(Q_s, K_s, P, transpose_B=True, clear_accum=True)
                T.copy(top, shrink)
                T.reduce_max(P, top, dim=1, clear=False)
                for i in T.Parallel(BM):
                    shrink[i] = T.exp((shrink[i] - top[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    P[i, j] = T.exp((P[i, j] - top[i]) * scale)
                T.reduce_sum(P, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * shrink[i] + part[i]
                for i, j in T.Parallel(BM, D):
                    acc[i, j] *= shrink[i]
                T.copy(V[by, k * BN : (k + 1) * BN, :], V_s)
                T.gemm(P, V_s, acc)
            for i, j in T.Parallel(BM, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[by, bx * BM : (bx + 1) * BM, :])

    q, k, v = (random(H, S, D) for _ in range(3))

    def numpy(out):
        s = (q @ k.swapaxes(1, 2)) * np.float32(scale)
        e = np.exp(s - s.max(-1, keepdims=True))
        np.matmul(e / e.sum(-1, keepdims=True), v, out=out)

    return kernel, (q, k, v, np.empty((H, S, D), F32)), numpy


# The name of a row, what makes it, and the least ratio NumPy / native that it should have.
AGAINST_NUMPY = {
    "gemm fp32 1024^3": (lambda: gemm(1024), 0.7),
    "gemm fp32 2048^3": (lambda: gemm(2048), 0.7),
    "softmax 4096x4096": (softmax, 3.0),
    "rms_norm 4096x4096": (rms_norm, 2.0),
    "add 4096x4096": (add, 0.95),
    "attention 4x1024x64": (attention, 2.5),
}


def best(fn, seconds=1.5, least=5):
    """The best time of one call, in seconds."""
    times = []
    end = time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return min(times)


def against_numpy(name):
    """A row: our time, NumPy's, and the ratio."""
    make, goal = AGAINST_NUMPY[name]
    source, arrays, numpy = make()
    kernel = tilelang.compile(source, target="cpu")
    *inputs, out = arrays
    expected = np.empty_like(out)
    numpy(expected)
    kernel(*inputs, out)
    np.testing.assert_allclose(out, expected, rtol=2e-3, atol=2e-3)
    ours, theirs = best(lambda: kernel(*inputs, out)), best(lambda: numpy(expected))
    ours = min(ours, best(lambda: kernel(*inputs, out)))
    ratio = theirs / ours
    met = "" if ratio >= goal else " (missed)"
    return [
        name,
        f"{ours * 1e3:.2f} ms",
        f"{theirs * 1e3:.2f} ms",
        f"{ratio:.2f}x",
        f"{goal}x{met}",
    ]


def compiling():
    """Rows: a cold compile, and a load from the cache on disk."""
    folder = tempfile.mkdtemp()
    os.environ["TILELANG_CACHE_DIR"] = folder
    try:
        tilelang.compile(gemm_kernel(64, 64, 64), target="cpu")  # what the first compile loads
        source = gemm_kernel(1024, 1024, 1024)
        start = time.perf_counter()
        tilelang.compile(source, target="cpu")
        cold = time.perf_counter() - start
        warm = best(lambda: tilelang.compile(source, target="cpu"), 0.5)
    finally:
        shutil.rmtree(folder)
        del os.environ["TILELANG_CACHE_DIR"]
    return [
        ["compile gemm, cold", f"{cold * 1e3:.0f} ms", "", "", "500 ms" + late(cold, 0.5)],
        [
            "compile gemm, from the cache",
            f"{warm * 1e3:.1f} ms",
            "",
            "",
            "20 ms" + late(warm, 0.02),
        ],
    ]


def late(seconds, goal):
    """What is said of a time that misses its goal."""
    return "" if seconds <= goal else " (missed)"


def empty_kernel(blocks):
    """A kernel that does nothing."""

    @T.prim_func
    def empty(A: T.Tensor((4,), F32)):
        with T.Kernel(blocks, threads=1) as bx:
            if bx > blocks:
                A[0] = 1.0

    return tilelang.compile(empty, target="cpu")


def launching(blocks, goal):
    """A row: a call of a kernel that does nothing."""
    kernel, a = empty_kernel(blocks), np.zeros(4, F32)
    took = best(lambda: [kernel(a) for _ in range(1000)], 1.0) / 1000
    name = f"launch of {blocks} empty block{'s' if blocks > 1 else ''}"
    return [name, f"{took * 1e6:.1f} us", "", "", f"{goal * 1e6:.0f} us" + late(took, goal)]


def peak():
    """The most memory that this process has had, in MB; getrusage counts its parent's too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes


def peak_of(code):
    """What a process of its own prints that runs `code`, as numbers."""
    env = {**os.environ, "TILELANG_DISABLE_CACHE": "1", "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", "import cpu, tilelang\n" + code]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return [float(line) for line in done.stdout.split()]


def memory():
    """A row: the peak of a process that does nothing but compile the attention kernel."""
    (peak,) = peak_of("tilelang.compile(cpu.attention()[0], target='cpu')\nprint(cpu.peak())")
    return [
        "peak memory of compiling attention",
        f"{peak:.0f} MB",
        "",
        "",
        "300 MB" + late(peak, 300),
    ]


def adding(n):
    """One of many kernels that differ in a number."""

    @T.prim_func
    def kernel(A: T.Tensor((4,), F32)):
        with T.Kernel(1, threads=1):
            A[0] = A[0] + float(n)

    return tilelang.compile(kernel, target="cpu")


def growth():
    """A row: how far the peak of a process moves from its 200th kernel to its 1,000th."""
    turns = "for n in range({}): cpu.adding(n)\nprint(cpu.peak())\n"
    before, after = peak_of(turns.format("200") + turns.format("200, 1000"))
    grown = after - before
    return ["growth over 800 more kernels", f"{grown:.1f} MB", "", "", "10 MB" + late(grown, 10)]


HEAD = ["", "native", "NumPy", "NumPy / native", "goal"]


def table(rows):
    """The rows as a Markdown table."""
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine():
    """The processor, and how many threads take part."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
        if Path("/proc/cpuinfo").exists()
        else (),
        platform.processor() or platform.machine(),
    )
    return f"{model}, {THREADS} threads, Python {platform.python_version()}, NumPy {np.__version__}"


def main(args):
    """Run the rows of these names, or all, and print the table."""
    rows = [against_numpy(name) for name in AGAINST_NUMPY if not args.names or name in args.names]
    if not args.names:
        rows += [*compiling(), launching(1, 5e-6), launching(2, 25e-6), memory(), growth()]
    print(table(rows))
    if args.write:
        head, start, rest = PAGE.read_text().partition("<!-- cpu -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        said = f"{datetime.date.today().isoformat()}, {machine()}.\n\n{table(rows)}\n"
        PAGE.write_text(head + start + said + end + tail)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", choices=[*AGAINST_NUMPY, []])
    parser.add_argument("--write", action="store_true")
    main(parser.parse_args(sys.argv[1:]))
