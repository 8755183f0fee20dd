"""Running translated programs: blocks of a launch, faults, prints, device assertions.

What enters: the functions that a translation defined, and the grid. What leaves: changed arrays,
what the program printed, and errors that name the block and the lane. Blocks of a program without
waits run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.emulator import shadow
from tilelang.emulator.agents import Agent, Steps, agents_of
from tilelang.emulator.blocks import LANE, BlockState, Crew, blocks_of
from tilelang.emulator.check import Checker
from tilelang.emulator.observe import Observer
from tilelang.emulator.order import Order
from tilelang.emulator.schedule import Live, Schedule
from tilelang.emulator.shadow import Shadow
from tilelang.emulator.storage import Array, Fault, Mask
from tilelang.errors import InternalError, Loc, TileError, TileIndexError, TileRuntimeError, error
from tilelang.ir.expr import Buffer
from tilelang.ir.tile import Stmt

Block = tuple[int, ...]


def rounds(start: Any, stop: Any, step: int) -> Array:
    """How many rounds of `range(start, stop, step)` each lane makes."""
    distance = np.asarray(stop, np.int64) - np.asarray(start, np.int64)
    return np.maximum(-(-distance // step), 0)


def most(trips: Array, mask: Mask | None) -> int:
    """The most rounds that any active lane makes."""
    active = trips if mask is None else np.where(mask, trips, 0)
    return int(active.max())


def everyone(shape: tuple[int, ...], mask: Mask | None) -> Mask:
    """The active lanes as an array of the full shape."""
    return np.ones(shape, np.bool_) if mask is None else np.broadcast_to(mask, shape).copy()


def whole_clusters(grid: tuple[int, ...], cluster: tuple[int, ...], loc: Loc | None) -> None:
    """Refuse a grid that is not made of whole clusters."""
    for axis, size in enumerate(cluster):
        blocks = grid[axis] if axis < len(grid) else 1
        if blocks % size:
            raise error(
                "value",
                f"axis {axis} of the grid is not made of whole clusters",
                loc,
                expected=f"a multiple of {size}",
                got=f"{blocks} blocks",
            )


@dataclass
class Machine:
    """The state of one run. `block` is the block that is running, x first."""

    block: Block = ()
    show: Callable[[str], None] = print
    observer: Observer | None = None
    check: Checker | None = None
    agent: Agent | None = None

    @property
    def checker(self) -> Checker:
        """The dynamic check of this run."""
        if self.check is None:
            raise InternalError("a checked program runs without its check")
        return self.check

    def arguments(
        self, arrays: dict[str, Array | None], units: dict[str, int], outputs: list[str]
    ) -> dict[str, Shadow]:
        """Shadows of the arguments that are not None; nobody has written the outputs."""
        given = {n: a for n, a in arrays.items() if a is not None}
        shadows = shadow.arguments(given, units, set(outputs))
        self.checker.adopt(shadows)
        return shadows

    def launch(self, kernel: Callable[..., None], grid: tuple[int, ...]) -> None:
        """Run every block of a grid, x fastest. A grid with an axis of length 0 runs none."""
        sizes = (*grid, 1, 1)[:3]
        rank = len(grid)
        if self.check is not None:
            self.check.start()
        for z in range(sizes[2]):
            for y in range(sizes[1]):
                for x in range(sizes[0]):
                    self.block = (x, y, z)[:rank]
                    if self.check is not None:
                        self.check.enter_block((z * sizes[1] + y) * sizes[0] + x, self.block)
                    try:
                        kernel(*self.block)
                    except Fault as fault:
                        raise self.placed(fault) from None
        self.block = ()

    def launch_agents(
        self,
        kernel: Callable[..., Steps],
        grid: tuple[int, ...],
        crew: Crew,
    ) -> None:
        """Run the blocks of a grid whose threads wait for each other.

        Blocks of a cluster run at the same time; others too where they may wait for each other.
        """
        if self.check is not None:
            self.check.start()
            self.check.order = Order(self.check, flags=crew.all_at_once)

        def wave(blocks: list[BlockState]) -> list[Live]:
            for block in blocks:
                block.order = None if self.check is None else self.check.order
            return [(a, kernel(*b.index, a)) for b in blocks for a in agents_of(b)]

        waves = (wave(blocks) for blocks in blocks_of(grid, crew))
        try:
            if crew.all_at_once:
                Schedule(waves, self._enter, self._ended).run()
            else:
                for each in waves:
                    Schedule(iter([each]), self._enter, self._ended).run()
        except Fault as fault:
            raise self.placed(fault) from None
        finally:
            self.agent = None
            if self.check is not None:
                self.check.order = None
        self.block = ()

    def _enter(self, agent: Agent) -> None:
        self.block, self.agent = agent.block.index, agent
        if agent.block.order is not None:
            agent.block.order.enter(agent)

    def _ended(self, block: BlockState) -> None:
        self.block = block.index
        left = block.finish()
        if block.order is not None:
            block.order.ended(block, left)

    def placed(self, fault: Fault) -> TileError:
        """A fault as an error for the author."""
        a = fault.access
        name = a.buffer.name
        where = self.where(fault.lane, a.axes)
        return error(
            "bounds",
            f"index {fault.index} of axis {fault.axis} is outside of {name}",
            a.loc,
            cls=TileIndexError,
            label=f"{name} has scope {a.buffer.scope}",
            expected=f"0 <= index < {fault.size}",
            got=f"{fault.index}" + (f" in {where}" if where else ""),
            help=f"guard the access, or make {name} larger",
        )

    def where(self, lane: tuple[int, ...] = (), axes: tuple[str, ...] = ()) -> str:
        """The running block, and the lane, in words."""
        parts = [f"block ({', '.join(map(str, self.block))})"] if self.block else []
        places = list(zip(axes, lane, strict=False))
        if self.agent is not None and axes == (LANE,) and lane:
            places = self.agent.place(lane[0])
        parts += [f"{a} = {k}" for a, k in places]
        return ", ".join(parts)

    def seen(self, stmt: Stmt, buffers: dict[str, Array]) -> None:
        """Tell the observer that `stmt` has run."""
        if self.observer is not None:
            self.observer.after(stmt, self.block, buffers)

    # -- statements that talk to the outside -------------------------------------------------------

    def require(
        self, holds: Any, mask: Mask | None, message: str, loc: Loc | None, axes: tuple[str, ...]
    ) -> None:
        """A device assertion, for the active lanes."""
        wrong = (
            ~np.asarray(holds, np.bool_) if mask is None else mask & ~np.asarray(holds, np.bool_)
        )
        if not wrong.any():
            return
        lane = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise error(
            "value",
            f"device assertion failed{': ' if message else ''}{message}",
            loc,
            cls=TileRuntimeError,
            got=self.where(lane, axes),
        )

    def print_value(
        self, value: Any, mask: Mask | None, message: str, shape: tuple[int, ...], dtype: str
    ) -> None:
        """Print a scalar once for each active lane."""
        values = np.broadcast_to(value, shape) if shape else np.asarray(value)
        active = (
            np.ones(values.shape, np.bool_) if mask is None else np.broadcast_to(mask, values.shape)
        )
        for lane in np.argwhere(active):
            place = tuple(int(k) for k in lane)
            self.show(f"{self._head(message, place)}: dtype={dtype} value={values[place]}")

    def print_buffer(self, array: Array, buffer: Buffer, message: str) -> None:
        """Print every element of a buffer."""
        for flat, place in enumerate(np.ndindex(array.shape)):
            head = f"{self._head(message, ())}: buffer={buffer.name}, index={flat}"
            self.show(f"{head}, dtype={buffer.dtype} value={array[place]}")

    def print_message(self, message: str) -> None:
        """Print a message alone."""
        self.show(self._head(message, ()))

    def _head(self, message: str, lane: tuple[int, ...]) -> str:
        block = (*self.block, 0, 0, 0)[:3]
        thread = (*lane[::-1], 0, 0, 0)[:3]
        if self.agent is not None:
            thread = tuple(int(a[lane[0]]) if lane else 0 for a in self.agent.lanes)
        return f"msg='{message}' BlockIdx={block}, ThreadIdx={thread}"

    def sync(
        self,
        mask: Mask,
        shape: tuple[int, ...],
        loc: Loc | None,
        count: int | None,
        ended: Mask | None = None,
    ) -> None:
        """A barrier where not all threads may have arrived; those that have ended need not."""
        here = int(np.broadcast_to(mask, shape).sum())
        total = int(np.prod(shape)) if count is None else count
        if count is None and ended is not None:
            total -= int(ended.sum())
        if here == total:
            return
        raise error(
            "divergence",
            "a barrier that only some threads of the block reach",
            loc,
            expected=f"{total} threads",
            got=f"{here} threads in {self.where()}",
            help="move the barrier out of the condition",
        )
