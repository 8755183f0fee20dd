"""The text of conditions, loops and exits, for lanes that agree and for lanes that do not.

What enters: statements with bodies. What leaves: Python's own control flow where all lanes agree,
and masks where they do not. Wherever there is a mask, at least one lane of it is active.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.emulator.lanes import bodies, statements
from tilelang.emulator.unit import Frame, Unit
from tilelang.emulator.values import Val, value
from tilelang.errors import error
from tilelang.ir.expr import BOOL
from tilelang.ir.tile import Block, Break, Continue, For, If, Pipelined, Stmt, ThreadReturn, While

Counted = For | Pipelined


def block(u: Unit, body: Block, one: Callable[[Unit, Stmt], None]) -> None:
    """Statements in order; `one` translates one. After some lanes have left, the rest is for the
    others.
    """
    for k, stmt in enumerate(body):
        one(u, stmt)
        if isinstance(stmt, (Break, Continue, ThreadReturn)):
            return
        frame = u.frames[-1] if u.frames else None
        if frame is not None and frame.masked and body[k + 1 :] and leaves(stmt):
            rest = u.bind(_and_not(u, u.mask, frame.gone), "m")
            with u.w.block(f"if {rest.code}.any():"), u.under(rest, rest=not frame.loop):
                block(u, body[k + 1 :], one)
            return


def leaves(stmt: Stmt) -> bool:
    """Whether a statement may end the round of the innermost loop around it for some lane."""
    if isinstance(stmt, (Break, Continue, ThreadReturn)):
        return True
    inner = statements(tuple(s for b in bodies(stmt) for s in b))
    if isinstance(stmt, If):
        return any(leaves(s) for b in bodies(stmt) for s in b)
    return any(isinstance(s, ThreadReturn) for s in inner)


def _and_not(u: Unit, mask: Val | None, lanes: str) -> Val:
    others = Val(f"~{lanes}", BOOL, u.domain.all)
    return u.both(mask, others) or others


def if_(u: Unit, stmt: If) -> None:
    """A condition: Python's `if`, or two masks."""
    u.begin(stmt.cond)
    cond = u.expr(stmt.cond)
    if cond.uniform:
        with u.w.block(f"if {cond.code}:"):
            u.statements(stmt.then)
        if stmt.orelse:
            with u.w.block("else:"):
                u.statements(stmt.orelse)
        return
    held = u.keep(cond, "m")
    branches = [(held, stmt.then)]
    if stmt.orelse:
        branches.append((Val(f"~{held.text}", BOOL, held.axes), stmt.orelse))
    outer = u.mask
    for taken, body in branches:
        mask = u.bind(u.both(outer, taken) or taken, "m")
        with u.w.block(f"if {mask.code}.any():"), u.under(mask):
            u.statements(body)


def _frame(u: Unit, body: Block) -> Frame:
    """The frame of a loop, and the arrays for lanes that leave it one by one."""
    returns = (
        u.frames
        and u.frames[0].masked
        and any(isinstance(s, ThreadReturn) for s in statements(body))
    )
    if not (returns or u.lanes.leaves_early(body)[0]):
        return Frame()
    frame = Frame(u.w.fresh("gone"), u.w.fresh("broke"))
    u.w.line(f"{frame.broke} = zeros({u.domain.shape}, bool)")
    return frame


def _round(u: Unit, frame: Frame, mask: Val | None, body: Block) -> None:
    """One round of a loop for the lanes of `mask` that have not left it."""
    if frame.masked:
        u.w.line(f"{frame.gone} = {frame.broke}.copy()")
        mask = u.bind(_and_not(u, mask, frame.broke), "m")
    if mask is not u.mask and mask is not None:
        mask = u.bind(mask, "m")
        with u.w.block(f"if not {mask.code}.any():"):
            u.w.line("break")
    u.frames.append(frame)
    with u.under(mask):
        u.statements(body)
    u.frames.pop()


def for_(u: Unit, stmt: Counted) -> None:
    """A counted loop."""
    step = stmt.step if isinstance(stmt, For) else None
    u.begin(stmt.start, stmt.stop, step)
    start, stop = u.keep(u.expr(stmt.start)), u.keep(u.expr(stmt.stop))
    by = u.expr(step) if step is not None else None
    if by is not None and (by.constant is None or by.constant == 0):
        raise error(
            "value", "the step of a loop", stmt.loc, expected="a constant other than 0", got=by.code
        )
    stride = 1 if by is None or by.constant is None else by.constant
    frame = _frame(u, stmt.body)
    if start.uniform and stop.uniform:
        name = u.w.name(stmt.var.name)
        args = [start.code, stop.code] if start.constant != 0 or stride != 1 else [stop.code]
        args += [str(stride)] if stride != 1 else []
        low, high = (start.low, stop.high - 1) if stride > 0 else (stop.low + 1, start.high)
        u.define(stmt.var, Val(name, stmt.var.dtype, low=low, high=max(low, high)))
        with u.w.block(f"for {name} in range({', '.join(args)}):"):
            _round(u, frame, u.mask, stmt.body)
        return
    _uneven(u, stmt, (start, stop, stride), frame)


def _uneven(u: Unit, stmt: Counted, bounds: tuple[Val, Val, int], frame: Frame) -> None:
    """A counted loop whose bounds differ between lanes: rounds are counted, and each lane takes
    part in its own.
    """
    start, stop, stride = bounds
    trips, turn = u.w.fresh("trips"), u.w.fresh("turn")
    u.w.line(f"{trips} = rounds({start.code}, {stop.code}, {stride})")
    axes = start.axes | stop.axes
    with u.w.block(f"for {turn} in range(most({trips}, {u.mask_text})):"):
        name = u.w.name(stmt.var.name)
        offset = turn if stride == 1 else f"{turn} * {stride}"
        u.w.line(f"{name} = {start.text} + {offset}")
        u.define(stmt.var, value(name, stmt.var.dtype, start.axes))
        mine = Val(f"({turn} < {trips})", BOOL, axes, atom=True)
        _round(u, frame, u.both(u.mask, mine), stmt.body)


def while_(u: Unit, stmt: While) -> None:
    """A loop on a condition that is evaluated anew before each round."""
    frame = _frame(u, stmt.body)
    if not u.lanes.varies(stmt.cond):
        with u.w.block("while True:"):
            _turn(u, stmt)
            u.begin(stmt.cond)
            cond = u.expr(stmt.cond)
            with u.w.block(f"if not {cond.text}:"):
                u.w.line("break")
            _round(u, frame, u.mask, stmt.body)
        return
    live = u.w.fresh("m")
    u.w.line(f"{live} = everyone({u.domain.shape}, {u.mask_text})")
    mask = Val(live, BOOL, u.domain.all, atom=True)
    with u.w.block("while True:"):
        _turn(u, stmt)
        u.begin(stmt.cond)
        with u.under(mask):
            cond = u.expr(stmt.cond)
        u.w.line(f"{live} = {live} & {cond.text}" + (f" & ~{frame.broke}" if frame.masked else ""))
        with u.w.block(f"if not {live}.any():"):
            u.w.line("break")
        _round(u, frame, mask, stmt.body)


def _turn(u: Unit, stmt: While) -> None:
    """Before a round of a loop that may wait for memory, others have their turn."""
    if u.before_round is not None:
        u.before_round(stmt)
    if u.checks is not None:
        u.checks.step(u)


def exit_(u: Unit, stmt: Break | Continue | ThreadReturn) -> None:
    """Break, continue, or the end of a thread."""
    if isinstance(stmt, ThreadReturn):
        _return(u, stmt)
        return
    frame = u.frames[-1] if u.frames else Frame(loop=False)
    if isinstance(stmt, Break) and not frame.loop:
        raise error(
            "syntax",
            "break leaves T.Parallel, whose iterations have no order",
            stmt.loc,
            expected="break in a sequential loop",
            help="use T.serial, or a condition around the rest of the body",
        )
    if not frame.masked:
        u.w.line("break" if isinstance(stmt, Break) else "continue")
        return
    _leave(u, [frame.gone, *([frame.broke] if isinstance(stmt, Break) else [])])


def _leave(u: Unit, arrays: list[str]) -> None:
    for name in arrays:
        u.w.line(f"{name}[...] = True" if u.mask is None else f"{name} |= {u.mask.code}")


def _return(u: Unit, stmt: ThreadReturn) -> None:
    if u.mask is None:
        if u.at_end is not None:
            u.at_end()
        u.w.line("return")
        return
    if not u.domain.threads:
        raise error(
            "divergence",
            "return in some iterations of T.Parallel: no thread is defined to run them",
            stmt.loc,
            help="use a condition around the rest, or write for threads (T.get_thread_binding)",
        )
    _leave(u, [name for f in u.frames for name in (f.gone, f.broke) if name])
    if u.agents:
        u.w.line(f"agent.leave({u.mask.code})")
