"""Random programs of both kinds of core of a group, which hand tiles to each other through global
memory, and what they compute.

A program is a list of statements over tiles of the cube core (`l`: L1, `c`: L0C) and of the vector
core (`u`: UB), and over slots of a workspace. Values are small whole numbers, so that sums in
float32 and float16 are exact.
"""

import numpy as np

import tilelang.language as T

N, SLOTS, TILES = 16, 3, 2
KINDS = ("load", "multiply", "drain", "take", "add", "scale", "give", "bring", "store")


def drawn(rng, count=10):
    """Statements: (kind, tile, slot)."""
    found = []
    for _ in range(count):
        kind = str(rng.choice(KINDS))
        found.append((kind, int(rng.integers(TILES)), int(rng.integers(SLOTS))))
    return found


@T.macro
def step(each, A, half, full, out, l, c, u, h):
    kind, tile, slot = each
    if kind == "load":
        T.copy(A[slot, :, :], l[tile])
    elif kind == "multiply":
        T.gemm_v0(l[tile], l[1 - tile], c, init=True)
    elif kind == "drain":
        T.copy(c, full[slot, :, :])
    elif kind == "take":
        T.copy(full[slot, :, :], u[tile])
    elif kind == "add":
        T.tile.add(u[tile], u[tile], u[1 - tile])
    elif kind == "scale":
        T.tile.min(u[tile], u[tile], 3.0)
        T.tile.max(u[tile], u[tile], -3.0)
    elif kind == "give":
        T.tile.min(u[tile], u[tile], 3.0)
        T.tile.max(u[tile], u[tile], -3.0)
        T.copy(u[tile], h)
        T.copy(h, half[slot, :, :])
    elif kind == "bring":
        T.copy(half[slot, :, :], l[tile])
    else:
        T.copy(u[tile], out[slot, :, :])


def kernel_of(program, loops, stages=0):
    """The kernel; with loops, `program` is the body of one (pipelined with `stages` or more)."""

    @T.prim_func
    def kernel(
        A: T.Tensor((SLOTS, N, N), "float16"),
        half: T.Tensor((SLOTS, N, N), "float16"),
        full: T.Tensor((SLOTS, N, N), "float32"),
        out: T.Tensor((SLOTS, N, N), "float32"),
    ):
        with T.Kernel(1, threads=1, is_npu=True):
            l = [T.alloc_L1((N, N), "float16") for _ in range(TILES)]
            c = T.alloc_L0C((N, N), "float32")
            u = [T.alloc_ub((N, N), "float32") for _ in range(TILES)]
            h = T.alloc_ub((N, N), "float16")
            for k in (0, 1):
                T.copy(A[k, :, :], l[k])
                T.tile.fill(u[k], 1.0)
            T.gemm_v0(l[0], l[1], c, init=True)
            if stages:
                for _k in T.Pipelined(loops, num_stages=stages):
                    for each in program:
                        step(each, A, half, full, out, l, c, u, h)
            elif loops:
                for _k in T.serial(loops):
                    for each in program:
                        step(each, A, half, full, out, l, c, u, h)
            else:
                for each in program:
                    step(each, A, half, full, out, l, c, u, h)
            T.copy(u[0], out[0, :, :])

    return kernel


def meaning(program, loops, a, half, full, out):
    """The same on arrays, in the order of the program."""
    l = [a[k].astype(np.float32) for k in range(TILES)]
    u = [np.ones((N, N), np.float32) for _ in range(TILES)]
    c = l[0] @ l[1]
    for _ in range(max(loops, 1)):
        for kind, tile, slot in program:
            if kind == "load":
                l[tile] = a[slot].astype(np.float32)
            elif kind == "multiply":
                c = l[tile] @ l[1 - tile]
            elif kind == "drain":
                full[slot] = c
            elif kind == "take":
                u[tile] = full[slot].copy()
            elif kind == "add":
                u[tile] = u[tile] + u[1 - tile]
            elif kind == "scale":
                u[tile] = u[tile].clip(-3, 3)
            elif kind == "give":
                u[tile] = u[tile].clip(-3, 3)
                half[slot] = u[tile]
            elif kind == "bring":
                l[tile] = half[slot].astype(np.float32)
            else:
                out[slot] = u[tile]
    out[0] = u[0]
