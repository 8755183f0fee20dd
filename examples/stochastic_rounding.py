"""Stochastic rounding: a number becomes one of its two neighbours, the nearer the likelier.

On average nothing is lost, as it is when small steps are added to a large fp16 or bf16 number and
each sum is rounded to nearest. Each thread has a random stream of its own (Philox).
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def round_stochastically(N, dtype="bfloat16", threads=128, each=4):
    """A kernel for Y (N,) = X (N,) fp32 rounded to `dtype`, with random bits from `seed`."""

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), seed: T.int32, Y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, threads * each), threads=threads) as bx:
            tx = T.get_thread_binding()
            T.rng_init(seed, bx * threads + tx)  # the stream of this thread
            for n in T.serial(each):
                i = (bx * each + n) * threads + tx
                bits = T.rng_rand()  # 32 random bits, the next of the stream
                if i < N:
                    Y[i] = T.cast(X[i], dtype, round="rs", rbits=bits)

    return kernel


def neighbours(x, dtype):
    """The numbers of `dtype` just below and just above each fp32 number."""
    nearest = x.astype(dtype)
    wide = nearest.astype(np.float32)
    most = ml_dtypes.finfo(dtype).max  # not every type has an infinity to go towards
    down, up = (np.nextafter(nearest, end).astype(np.float32) for end in (-most, most))
    return np.where(wide > x, down, wide), np.where(wide < x, up, wide)


def main():
    """Many copies of a few numbers: only neighbours come out, and their mean is the number."""
    values = np.array([1 / 3, -1 / 3, 1.001, 100.7, 2.0, 1e-3], np.float32)
    copies = 1000
    X = np.repeat(values, copies)
    for dtype in (ml_dtypes.bfloat16, np.float16):
        y = round_stochastically(X.size, np.dtype(dtype).name)(X, 42).astype(np.float32)
        low, high = neighbours(X, dtype)
        assert ((y == low) | (y == high)).all()
        # The mean of n draws is off by more than 5 deviations once in a million times.
        bound = 5 * (high - low).reshape(-1, copies)[:, 0] / 2 / copies**0.5
        assert (abs(y.reshape(-1, copies).mean(1) - values) <= bound).all()
    print(f"stochastic_rounding: {values.size} x {copies} numbers to bf16 and fp16, unbiased")


if __name__ == "__main__":
    main()
