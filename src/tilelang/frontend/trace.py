"""The tracer: what the rewritten function calls for each construct of the author's function.

It decides whether a construct is Python, carried out now, or becomes code of the kernel, and keeps
Python's meaning of names: a value is computed where it is written, and a name bound inside code of
the kernel ends with it. Writes only to the `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from tilelang.errors import (
    InternalError,
    Loc,
    TileError,
    TileNotImplementedError,
    TileRuntimeError,
    TileTypeError,
    error,
    warning,
)
from tilelang.frontend.calls import (
    argument_error,
    check_callable,
    check_foreign,
    check_iterable,
    range_loop,
    range_of,
    unknown_attribute,
)
from tilelang.frontend.containers import changed_container, check_change, settled
from tilelang.frontend.control import CHANGING, IfHandle, LoopHandle, pick, same_constant
from tilelang.frontend.operators import (
    BINARY,
    IN_PLACE,
    UNARY,
    compare,
    is_static,
    join,
    known,
    reads_memory,
)
from tilelang.frontend.unusable import Unusable, check_usable
from tilelang.ir.build import Builder
from tilelang.ir.expr import BinaryOp, Const, Var
from tilelang.ir.tile import Alloc, Assert, Break, Continue, Stmt
from tilelang.language.buffers import BufferRef, RegionRef, VarRef
from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.pointers import make_tensor
from tilelang.language.values import Value, condition, describe, is_scalar, logical_not, select


@dataclass
class Tracer:
    """Drives one trace of one function; `caller` is where a macro was called.

    `statement` is how many statements the current block had when the author's statement began.
    """

    builder: Builder
    locs: Sequence[Loc]
    is_macro: bool = False
    caller: Loc | None = None
    declare_parameter: Callable[[Builder, str, Any, Loc], Any] | None = None
    statement: int = 0

    # -- places ------------------------------------------------------------------------------------

    def _go(self, k: int) -> Loc:
        loc = self.locs[k]
        if self.caller is not None:
            loc = replace(loc, caller=self.caller)
        self.builder.loc = loc
        return loc

    def at(self, k: int, names: Sequence[str]) -> None:
        """A statement begins; `names` are what it is about to bind."""
        self._go(k)
        self.builder.hints[:] = names
        self.statement = self.builder.position

    # -- expressions -------------------------------------------------------------------------------

    def use(self, k: int, value: Any) -> Any:
        """A name is read that may have no value here."""
        if isinstance(value, Unusable):
            self._go(k)
            value.refuse()
        return value

    def item(self, k: int, obj: Any, index: Any) -> Any:
        """`obj[index]`."""
        self._go(k)
        check_usable(obj, index)
        computed = isinstance(index, Value) and not is_static(index)
        if computed and isinstance(obj, (list, tuple, str)):
            kind = type(cast("Any", obj)).__name__
            raise error(
                "syntax",
                f"a value that the kernel computes is used as an index into a {kind}",
                self.builder.loc,
                cls=TileTypeError,
                expected="an index that is known while the kernel is traced",
                help="expand the loop, `for k in (0, 1, 2)`, or keep the numbers in a buffer",
            )
        return obj[index]

    def slice_(self, k: int, start: Any, stop: Any, step: Any) -> slice:
        """`start:stop:step` inside an index."""
        return slice(start, stop, step)

    def attribute(self, k: int, obj: Any, name: str) -> Any:
        """`obj.name`."""
        self._go(k)
        try:
            return getattr(obj, name)
        except AttributeError as exc:
            raise unknown_attribute(obj, name) or exc from None

    def operate(self, k: int, op: str, a: Any, b: Any) -> Any:
        """`a op b`."""
        self._go(k)
        check_usable(a, b)
        return BINARY[op](a, b)

    def unary(self, k: int, op: str, value: Any) -> Any:
        """`-value`, `+value`, `~value`."""
        self._go(k)
        check_usable(value)
        return UNARY[op](value)

    def call(self, k: int, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`fn(*args, **kwargs)`, with the place of the call known to whatever it emits."""
        outer = self.builder.loc
        loc = self._go(k)
        check_usable(fn, *args, *kwargs.values())
        if fn is range:
            return range_of(args)
        check_callable(fn)
        check_foreign(fn, args)
        container = changed_container(fn)
        if container is not None:
            check_change(self.builder, container)
            args = settled(self.builder, args)
        try:
            return fn(*args, **kwargs)
        except TileError as exc:
            raise (
                exc.with_loc(loc) if any(d.loc is None for d in exc.diagnostics) else exc
            ) from None
        except (TypeError, ValueError, AttributeError, LookupError) as exc:
            raise argument_error(fn, args, kwargs, exc, loc) or exc from None
        finally:
            self.builder.loc = outer

    def manager(self, k: int, value: Any, parts: int | None) -> Any:
        """`with value as (a, b):` - `parts` is how many values the names take it apart into."""
        loc = self._go(k)
        check_usable(value)
        if isinstance(value, KernelLaunchFrame):
            value.check_names(parts, loc)
        return value

    def bool_op(self, k: int, word: str, *operands: Callable[[], Any]) -> Any:
        """`a and b` / `a or b`: Python's while the left side is known, then the kernel's."""
        op = BinaryOp.AND if word == "and" else BinaryOp.OR
        left = operands[0]()
        check_usable(left)
        for operand in operands[1:]:
            if is_static(left):
                if bool(left) is (op is BinaryOp.OR):
                    return left
                left = operand()
            else:
                right = self._pure(k, operand, f"the right side of `{word}`")
                left = known(join(op, left, right))
            check_usable(left)
        return left

    def _pure(self, k: int, operand: Callable[[], Any], what: str) -> Any:
        """The value of an operand that is computed only under a condition: it may emit nothing."""
        before = self.builder.position
        value = operand()
        self._go(k)
        check_usable(value)
        if self.builder.position != before:
            raise error(
                "syntax",
                f"{what} does more than compute a value",
                self.builder.loc,
                cls=TileRuntimeError,
                help="compute it in a statement of its own, under `if` where it must be guarded",
            )
        return value

    def not_(self, k: int, value: Any) -> Any:
        """`not value`."""
        self._go(k)
        check_usable(value)
        return (not value) if is_static(value) else known(logical_not(value))

    def if_expression(
        self, k: int, test: Any, then: Callable[[], Any], orelse: Callable[[], Any]
    ) -> Any:
        """`then if test else orelse`; in the kernel, loads of the arm not taken do not happen."""
        self._go(k)
        check_usable(test)
        if is_static(test):
            return then() if test else orelse()
        arms = [
            self._pure(k, arm, "an arm of the conditional expression") for arm in (then, orelse)
        ]
        return select(test, *arms, lazy=True)

    def compare(self, k: int, ops: Sequence[str], *operands: Any) -> Any:
        """`a < b < c`: each neighbouring pair, joined by `and`."""
        self._go(k)
        return compare(ops, operands)

    def iterable(self, k: int, value: Any) -> Any:
        """What a comprehension runs over: something known."""
        self._go(k)
        check_usable(value)
        return check_iterable(value)

    def filter(self, k: int, value: Any) -> Any:
        """The `if` of a comprehension."""
        self._go(k)
        check_usable(value)
        if not is_static(value):
            raise error(
                "syntax",
                "the filter of a comprehension is not known while the kernel is traced",
                self.builder.loc,
                cls=TileTypeError,
                help="loop with a `for` statement and test with `if`",
            )
        return value

    # -- names -------------------------------------------------------------------------------------

    def assign(self, k: int, name: str, value: Any, names: Mapping[str, Any], alias: bool) -> Any:
        """`name = value`: a store where it is a variable of the kernel, else a new meaning.

        A variable on the right gives its value, as in Python, unless it is allocated here, or is
        an element or attribute (`alias`), which then has a second name.
        """
        self._go(k)
        check_usable(value)
        current = names.get(name)
        shared = isinstance(value, VarRef) and (alias or self._is_new(value))
        if isinstance(current, VarRef) and is_scalar(value) and not shared:
            current.set(value)
            return current
        return value if shared else self._bind(name, value)

    def _bind(self, name: str, value: Any) -> Any:
        """A computed value gets a name in the kernel, so that later stores do not change it."""
        if not isinstance(value, Value):
            return settled(self.builder, value)
        if isinstance(value.expr, (Const, Var)):
            return known(value)
        if self.builder.launch is None and not reads_memory(value.expr):
            return value
        return Value(self.builder.let(value.expr, name))

    def augment(self, k: int, name: str, op: str, current: Any, value: Any) -> Any:
        """`name op= value`."""
        self._go(k)
        check_usable(current, value)
        if isinstance(current, VarRef):
            current.set(BINARY[op](Value(current.expr), value))
            return current
        if isinstance(current, (list, dict, set)):
            check_change(self.builder, current)
        return self._bind(name, IN_PLACE[op](current, value))

    def augment_item(self, k: int, obj: Any, index: Any, op: str, value: Any) -> None:
        """`obj[index] op= value`: a read and a write, not an atomic."""
        self._go(k)
        check_usable(obj, index, value)
        self.set_item(k, obj, index, IN_PLACE[op](obj[index], value))

    def set_item(self, k: int, obj: Any, index: Any, value: Any) -> None:
        """`obj[index] = value`; stores where the element of a container is a variable."""
        self._go(k)
        check_usable(obj, index, value)
        if isinstance(obj, (list, dict)):
            table = cast("dict[Any, Any]", obj)
            is_slot = index in table if isinstance(obj, dict) else not isinstance(index, slice)
            current = table[index] if is_slot else None
            if isinstance(current, VarRef) and is_scalar(value) and not isinstance(value, VarRef):
                current.set(value)
                return
            value = settled(self.builder, value)
            # A new key with a value of the kernel ends with the block, as a name does.
            new = isinstance(obj, dict) and not is_slot and not is_static(value)
            if not new and not (is_slot and same_constant(current, value)):
                check_change(self.builder, obj)
        obj[index] = value

    def frozen(self, k: int, value: Any) -> Any:
        """The right side of an assignment to several targets: read before anything is stored."""
        self._go(k)
        check_usable(value)
        return self._frozen(value)

    def _frozen(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            parts = [self._frozen(v) for v in value]
            same = all(a is b for a, b in zip(value, parts, strict=True))
            return value if same else type(value)(parts)
        if isinstance(value, VarRef) and self._is_new(value):
            return value
        if isinstance(value, Value) and reads_memory(value.expr):
            return Value(self.builder.let(value.expr, "t"))
        return value

    def _is_new(self, var: VarRef) -> bool:
        """Whether the variable was allocated by the very statement that is being traced."""
        return any(
            isinstance(s, Alloc) and s.buffer.name == var.name
            for s in self.builder.statements[self.statement :]
        )

    def unpack(self, k: int, value: Any, count: int) -> list[Any]:
        """The right side of `a, b, ... = value`."""
        self._go(k)
        if isinstance(value, (BufferRef, RegionRef)) or (isinstance(value, Value) and count != 1):
            raise error(
                "syntax",
                f"{describe(value)} cannot be unpacked",
                self.builder.loc,
                cls=TileTypeError,
                expected=f"{count} values",
            )
        found: Iterable[Any] = check_iterable(value)
        items = list(islice(found, count + 1))
        if len(items) != count:
            raise error(
                "value",
                "wrong number of values to unpack",
                self.builder.loc,
                expected=str(count),
                got=str(len(items)) if len(items) < count else f"more than {count}",
            )
        return items

    def declare(self, k: int, name: str, annotation: Any, names: Mapping[str, Any]) -> Any:
        """`name: annotation` without a value: a parameter, or the tensor of a pointer."""
        loc = self._go(k)
        current = names.get(name)
        if isinstance(current, Unusable) and current.is_parameter and self.declare_parameter:
            return self.declare_parameter(self.builder, name, annotation, loc)
        if isinstance(current, Value) and current.expr.dtype.is_handle:
            return make_tensor(current, annotation.shape, annotation.dtype, annotation.strides)
        raise error(
            "syntax",
            f"a declaration of {name} without a value",
            loc,
            expected="a value, or a parameter of the function",
            help=f"declare tensors as parameters: `def kernel({name}: T.Tensor(...))`",
        )

    # -- statements --------------------------------------------------------------------------------

    def expression(self, k: int, value: Any) -> None:
        """An expression as a statement; its value is not used."""
        self._go(k)
        check_usable(value)

    def asserted(self, k: int, test: Any, message: Any) -> None:
        """`assert test, message`."""
        loc = self._go(k)
        check_usable(test)
        if not is_static(test):
            self.builder.emit(Assert(condition(test), message=str(message), loc=loc))
        elif not test:
            raise AssertionError(message)

    def raising(self, k: int) -> None:
        """`raise`: an error of the trace, which has no meaning where the kernel decides."""
        loc = self._go(k)
        if any(kind != "python" for kind in self.builder.loops):
            raise error(
                "syntax",
                "`raise` under a condition or in a loop of the kernel",
                loc,
                help="use T.device_assert(condition, message) to stop a launch",
            )

    def dead(self, k: int, word: str) -> None:
        """Statements that follow a `break`, `continue`, `return` or `raise` are not traced."""
        self.builder.warnings.append(
            warning("syntax", f"code after `{word}` never runs", self._go(k))
        )

    def returned(self, k: int, value: Any) -> Any:
        """`return value`: anything from a macro, the outputs of T.empty from a kernel function."""
        loc = self._go(k)
        check_usable(value)
        if any(kind != "python" for kind in self.builder.loops):
            raise error(
                "syntax",
                "`return` inside code of the kernel",
                loc,
                help="use T.thread_return() to end a thread, or set a T.alloc_var",
            )
        if not self.is_macro and value is not None:
            several = isinstance(value, (tuple, list))
            items = list(cast("Iterable[Any]", value)) if several else [value]
            self.builder.eager.returned = [self._output(x, loc) for x in items]
        return cast("Any", value)

    def _output(self, x: Any, loc: Loc) -> str:
        if isinstance(x, BufferRef) and x.name in self.builder.eager.empties:
            return x.name
        raise error(
            "syntax",
            f"a kernel function returns {describe(x)}",
            loc,
            cls=TileRuntimeError,
            expected="outputs made by T.empty",
            got=describe(x),
            help="make it with T.empty, or pass it in and name its position in `out_idx=`",
        )

    def set_attribute(self, k: int, obj: Any, name: str, value: Any) -> None:
        """`obj.name = value` in a method of a `T.meta_class`; stores where it is a variable."""
        self._go(k)
        current = getattr(obj, "__dict__", {}).get(name)
        if isinstance(current, VarRef) and is_scalar(value) and not isinstance(value, VarRef):
            current.set(value)
        else:
            setattr(obj, name, value if isinstance(value, VarRef) else self._bind(name, value))

    def augment_attribute(self, k: int, obj: Any, name: str, op: str, value: Any) -> None:
        """`obj.name op= value` in a method of a `T.meta_class`."""
        self._go(k)
        current = getattr(obj, name)
        if isinstance(current, VarRef):
            current = Value(current.expr)
        self.set_attribute(k, obj, name, IN_PLACE[op](current, value))

    def break_(self, k: int) -> bool:
        """`break`: True where the loop is Python's."""
        return self._leave(k, Break, "break")

    def continue_(self, k: int) -> bool:
        """`continue`: True where the loop is Python's."""
        return self._leave(k, Continue, "continue")

    def _leave(self, k: int, node: type[Stmt], word: str) -> bool:
        loc = self._go(k)
        inner = self.builder.loops[-1] if self.builder.loops else "none"
        if inner == "python":
            return True
        enclosing = next((kind for kind in reversed(self.builder.loops) if kind != "if"), "none")
        if enclosing == "sequential" or (enclosing == "nest" and node is Continue):
            self.builder.emit(node(loc=loc))
            return False
        what = {
            "python": f"`{word}` of a loop that is expanded while tracing, under a condition",
            "parallel": f"`{word}` in T.Parallel, whose iterations have no order",
            "nest": f"`{word}` in T.grid, which is several loops of the kernel",
        }.get(enclosing, f"`{word}` outside a loop")
        raise error(
            "syntax",
            what,
            loc,
            cls=TileNotImplementedError,
            help="loop with T.serial, or guard the statements with `if`",
        )

    # -- control flow ------------------------------------------------------------------------------

    def if_begin(
        self, k: int, test: Any, names: Sequence[str], current: Mapping[str, Any]
    ) -> IfHandle:
        """`if test:` begins."""
        loc = self._go(k)
        check_usable(test)
        static = bool(test) if isinstance(test, RegionRef) or is_static(test) else None
        cond = None if static is not None else condition(test)
        return IfHandle(self.builder, loc, static, cond, names, pick(names, current))

    def for_begin(
        self,
        k: int,
        iterable: Any,
        targets: int,
        names: Sequence[str],
        carried: Sequence[str],
        current: Mapping[str, Any],
    ) -> LoopHandle:
        """`for ... in iterable:` begins: a loop of the kernel, or Python's over something known."""
        loc = self._go(k)
        check_usable(iterable)
        if isinstance(iterable, range) and self.builder.launch is not None:
            iterable = range_loop(iterable.start, iterable.stop, iterable.step)
        if isinstance(iterable, (Value, BufferRef, RegionRef)):
            raise error(
                "syntax",
                f"{describe(iterable)} cannot be iterated over",
                loc,
                cls=TileTypeError,
                help="loop over indices: `for i in T.serial(n)`",
            )
        before = pick(names, current)
        hints = list(self.builder.hints)
        return LoopHandle(
            self.builder, loc, iterable, names, carried, before, targets=targets, hints=hints
        )

    def while_begin(
        self,
        k: int,
        test: Callable[[], Any],
        names: Sequence[str],
        carried: Sequence[str],
        current: Mapping[str, Any],
    ) -> LoopHandle:
        """`while test:` begins."""
        value = self._pure(k, test, "the condition of `while`")
        loc, before = self._go(k), pick(names, current)
        if not is_static(value):
            cond = condition(value)
            return LoopHandle(self.builder, loc, None, names, carried, before, cond=cond)
        if value:
            raise error(
                "syntax",
                "the condition of `while` is always true while the kernel is traced",
                loc,
                cls=TileRuntimeError,
                help=CHANGING,
            )
        self.builder.warnings.append(
            warning("syntax", "the condition of `while` is false: its body never runs", loc)
        )
        return LoopHandle(self.builder, loc, (), names, carried, before)


def check_complete(builder: Builder) -> None:
    """Every frame that was opened is closed; anything else is a fault of the tracer."""
    if builder.loops or builder.launch is not None:
        raise InternalError(
            f"the trace of {builder.name} ended inside {builder.loops or 'a launch'}"
        )
