"""Order between what threads do in Tensor Memory and where they meet.

What enters: a program with all its barriers. What leaves: one in which, in threads that use Tensor
Memory, `tcgen05.fence.before_thread_sync` stands before each step that other threads wait for, and
`tcgen05.fence.after_thread_sync` after each wait for others (PTX ISA, tcgen05: Memory Consistency
Model, Inter-thread Synchronization). The fences that an author writes are covered by these.
"""

from __future__ import annotations

from tilelang.ir.thread import Instr, Kernel, Program
from tilelang.ir.tile import Block, If, Stmt
from tilelang.isa.target import Target
from tilelang.passes.build import map_bodies, map_kernels
from tilelang.passes.lower_parallel import statements

BEFORE, AFTER = "tcgen05.fence.before_thread_sync", "tcgen05.fence.after_thread_sync"
_RELEASES = ("barrier.", "mbarrier.arrive", "bar.warp.sync")
_ACQUIRES = ("barrier.sync", "barrier.red", "barrier.cluster.wait", "mbarrier.try_wait")


def fence_tensor_memory(program: Program, target: Target) -> Program:
    """Uses of Tensor Memory are ordered by the barriers around them."""
    del target

    def kernel(node: Kernel) -> Kernel:
        return node.with_(body=_fenced(node.body)) if _uses(node.body) else node

    return map_kernels(program, kernel)


def _uses(body: Block) -> bool:
    """Whether threads do something in Tensor Memory here."""
    return any(isinstance(s, Instr) and s.row.startswith("tcgen05") for s in statements(body))


def _fenced(body: Block) -> Block:
    out: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, Instr):
            # Of the two sides of a condition, each is for threads of its own.
            apart = isinstance(stmt, If) and bool(stmt.orelse)
            inside = map_bodies(stmt, lambda b, apart=apart: _inner(b, apart=apart))
            out.append(inside)
            continue
        released = stmt.row.startswith(_RELEASES) and "wait" not in stmt.row
        if released:
            out.append(Instr(BEFORE, (), (), loc=stmt.loc))
        out.append(stmt)
        if stmt.row.startswith(_ACQUIRES):
            out.append(Instr(AFTER, (), (), loc=stmt.loc))
    return tuple(out)


def _inner(body: Block, *, apart: bool) -> Block:
    return body if apart and not _uses(body) else _fenced(body)
