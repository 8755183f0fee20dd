"""Atomic accesses, and printing.

An update with its previous value is made by one thread after the other, in the order of lanes. Its
order is that of `acq_rel`, whatever the program asks for: what a thread did before is known to
those whose atomic access to the same element comes later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.isa.rows import GENERIC
from tilelang.simulator.gpu.arrays import Local, Place, Registers, Values, Window
from tilelang.simulator.gpu.rows.registry import Use, row


@row("atomic.*", "update.*")
def atomic(use: Use) -> tuple[Values, ...]:
    """An update, a load or a store in one piece."""
    place: Place = (use.outs or use.ins)[0]
    given = None if use.facts.row == "atomic.load" else use.value(0)
    if isinstance(place.array, Window):
        olds = _in_memory(use, place, place.array, given)
    else:
        olds = _in_registers(use, place.array, place.index, given)
    return (olds,) if use.facts.results else ()


def _apply(use: Use, target: Values, given: Any, dtype: Any) -> Any:
    meaning = GENERIC[use.facts.row].meaning
    assert meaning is not None
    order = use.imm.get("order", "relaxed")
    if given is None:
        found = meaning(target, dtype=dtype, order=order)
    else:
        found = meaning(target, given, dtype=dtype, order=order)
    return found[0] if found else 0


def _in_registers(use: Use, array: Registers | Local, index: Any, given: Values | None) -> Values:
    olds = np.zeros(use.group.count, array.dtype.numpy)
    at = use.group.each(index, np.int64)
    if isinstance(array, Local):
        array.places(at, 1, use.mask, use.facts.sites[0])
    for lane in use.lanes:
        cell = array.data[int(at[lane]) : int(at[lane]) + 1, lane]
        olds[lane] = _apply(use, cell, None if given is None else given[lane], array.dtype)
    return olds


def _in_memory(use: Use, place: Place, array: Window, given: Values | None) -> Values:
    group, dtype = use.group, array.dtype
    olds = np.zeros(group.count, dtype.numpy)
    offsets = use.offsets(place, use.facts.sites[0])
    use.group.order_atomics(array.memory, use.mask)
    who = group.who(use.mask, use.facts.sites[0], atomic=True)
    if use.facts.row == "atomic.load":
        olds[use.lanes] = array.memory.load(offsets, dtype.numpy, 1, who)[0]
        return olds
    new = np.zeros(offsets.size, dtype.numpy)
    for k, lane in enumerate(use.lanes):
        cell = array.memory.peek(offsets[k : k + 1], dtype.numpy, 1)[0]
        olds[lane] = _apply(use, cell, None if given is None else given[lane], dtype)
        array.memory.poke(offsets[k : k + 1], cell[None])
        new[k] = cell[0]
    array.memory.touch(offsets, new[None], who)
    group.block.machine.scheduler.happened()
    return olds


@row("print.element")
def print_element(use: Use) -> None:
    """One element of a buffer."""
    found, index = use.read(0)[0], use.value(1)
    group, name, dtype = use.group, use.imm["buffer"], use.ins[0].dtype
    for lane in use.lanes:
        thread = group.place_of(int(lane))
        group.block.machine.say(
            f"msg='{use.imm['message']}' BlockIdx={(*group.block.place, 0, 0)[:3]},"
            f" ThreadIdx={thread}: buffer={name}, index={index[lane]},"
            f" dtype={dtype} value={found[lane]}"
        )
