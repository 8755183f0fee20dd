"""The tracer: what the rewritten function calls for each construct of the author's function.

It decides whether a construct is Python, carried out now, or becomes code of the kernel, and keeps Python's meaning
of names across branches and loops: a name bound inside code of the kernel ends with it, and reading it afterwards is
an error at that place. Writes only to the `Builder`.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilelang.errors import (
    InternalError,
    Loc,
    TileError,
    TileNotImplementedError,
    TileRuntimeError,
    TileTypeError,
    error,
)
from tilelang.ir.build import Builder
from tilelang.ir.expr import BinaryOp, Const, Expr, Load
from tilelang.ir.tile import Alloc, Assert, Break, Continue, If, Stmt, While
from tilelang.language.buffers import BufferRef, RegionRef, VarRef
from tilelang.language.loops import LoopFrame, serial
from tilelang.language.pointers import make_tensor
from tilelang.language.values import (
    Value,
    binary,
    condition,
    describe,
    divide,
    is_scalar,
    logical,
    logical_not,
    select,
)

_PYTHON_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge, "is": operator.is_, "is not": operator.is_not,
    "in": lambda a, b: a in b, "not in": lambda a, b: a not in b,
}  # fmt: skip
_COMPARES = {op.value for op in BinaryOp if op.is_compare}


class Unusable:
    """Stands for a name that has no value here; every use of it is an error that says why."""

    def __init__(
        self, name: str, why: str, loc: Loc | None, builder: Builder, *, parameter: bool = False
    ) -> None:
        self.__dict__.update(
            _name=name, _why=why, _loc=loc, _builder=builder, is_parameter=parameter
        )

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Raise the error."""
        raise error(
            "name",
            f"{self._name} {self._why}",
            self._builder.loc,
            cls=TileRuntimeError,
            help=self._help(),
            related=((self._loc, "here"),) if self._loc is not None else (),
        )

    def _help(self) -> str:
        if self.is_parameter:
            return f"declare it before the launch: `{self._name}: T.Tensor[[M, N], T.float16]`"
        return (
            f"keep it in a variable: `{self._name} = T.alloc_var(dtype, init=...)` before, "
            "then assign to it"
        )

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self.refuse()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        refuse
    )
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = (
        refuse
    )
    __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __neg__ = (
        __invert__
    ) = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = __setitem__ = __call__ = __iter__ = (
        __bool__
    ) = refuse
    __index__ = __int__ = __float__ = __len__ = refuse


@dataclass
class Tracer:
    """Drives one trace of one function; `caller` is where a macro was called, `parent` the tracer of that call."""

    builder: Builder
    locs: Sequence[Loc]
    is_macro: bool = False
    caller: Loc | None = None
    declare_parameter: Callable[[Builder, str, Any, Loc], Any] | None = None

    # -- places ---------------------------------------------------------------------------------------------------

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

    # -- expressions ----------------------------------------------------------------------------------------------

    def item(self, k: int, obj: Any, index: Any) -> Any:
        """`obj[index]`."""
        self._go(k)
        return obj[index]

    def slice_(self, k: int, start: Any, stop: Any, step: Any) -> slice:
        """`start:stop:step` inside an index."""
        return slice(start, stop, step)

    def call(self, k: int, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`fn(*args, **kwargs)`, with the place of the call known to whatever it emits."""
        outer = self.builder.loc
        loc = self._go(k)
        for value in (*args, *kwargs.values()):
            if isinstance(value, Unusable):
                value.refuse()
        if fn is range:
            return _range(args)
        try:
            return fn(*args, **kwargs)
        except TileError as exc:
            raise (
                exc.with_loc(loc) if any(d.loc is None for d in exc.diagnostics) else exc
            ) from None
        except TypeError as exc:
            raise _signature_error(fn, args, kwargs, loc) or exc from None
        finally:
            self.builder.loc = outer

    def bool_op(self, k: int, word: str, *operands: Callable[[], Any]) -> Any:
        """`a and b` / `a or b`: Python's while the left side is known, a logical operator of the kernel after that."""
        self._go(k)
        op = BinaryOp.AND if word == "and" else BinaryOp.OR
        left = operands[0]()
        for operand in operands[1:]:
            if _is_static(left):
                decided = not left if op is BinaryOp.AND else bool(left)
                if decided:
                    return left
                left = operand()
                continue
            before = len(self.builder.statements)
            right = operand()
            if len(self.builder.statements) != before:
                raise error(
                    "syntax",
                    f"the right side of `{word}` does more than compute a value",
                    self.builder.loc,
                    cls=TileRuntimeError,
                    help="compute it in a statement of its own before the condition",
                )
            left = logical(op, left, right)
        return left

    def not_(self, k: int, value: Any) -> Any:
        """`not value`."""
        self._go(k)
        return (not value) if _is_static(value) else logical_not(value)

    def if_expression(
        self, k: int, test: Any, then: Callable[[], Any], orelse: Callable[[], Any]
    ) -> Any:
        """`then if test else orelse`; in the kernel, loads of the arm not taken do not happen."""
        self._go(k)
        if _is_static(test):
            return then() if test else orelse()
        before = len(self.builder.statements)
        arms = then(), orelse()
        if len(self.builder.statements) != before:
            raise error(
                "syntax",
                "an arm of the conditional expression does more than compute a value",
                self.builder.loc,
                help="use an `if` statement and a T.alloc_var",
            )
        return select(test, *arms, lazy=True)

    def compare(self, k: int, ops: Sequence[str], *operands: Any) -> Any:
        """`a < b < c`: each neighbouring pair, joined by `and`."""
        self._go(k)
        result: Any = True
        for op, a, b in zip(ops, operands[:-1], operands[1:], strict=True):
            pair = self._compare_pair(op, a, b)
            if result is True:
                result = pair
            elif _is_static(result):
                result = result and pair
            else:
                result = logical(BinaryOp.AND, result, pair)
        return result

    def _compare_pair(self, op: str, a: Any, b: Any) -> Any:
        for side in (a, b):
            if isinstance(side, Unusable):
                side.refuse()
        symbolic = any(isinstance(x, Value) for x in (a, b)) and is_scalar(a) and is_scalar(b)
        return (
            _value(binary(BinaryOp(op), a, b))
            if symbolic and op in _COMPARES
            else _PYTHON_OPERATORS[op](a, b)
        )

    # -- names ----------------------------------------------------------------------------------------------------

    def assign(
        self, k: int, name: str, value: Any, names: Mapping[str, Any], snapshot: bool
    ) -> Any:
        """`name = value`: a store where the name is a variable of the kernel, else a new meaning of the name."""
        self._go(k)
        current = names.get(name)
        if (
            isinstance(current, VarRef)
            and is_scalar(value)
            and (snapshot or not isinstance(value, VarRef))
        ):
            current.set(value)
            return current
        if isinstance(value, Unusable):
            value.refuse()
        return self._bind(name, value, snapshot=snapshot)

    def _bind(self, name: str, value: Any, *, snapshot: bool) -> Any:
        """A computed value gets a name in the kernel here, so that later stores do not change it."""
        if isinstance(value, VarRef):
            return Value(self.builder.let(value.expr, name)) if snapshot else value
        if (
            isinstance(value, Value)
            and not isinstance(value.expr, Const)
            and self.builder.launch is not None
        ):
            if not any(True for n in value.expr.children()) and not isinstance(value.expr, Load):
                return value  # a variable: it has a name already
            return Value(self.builder.let(value.expr, name))
        return _value(value) if isinstance(value, Value) else value

    def augment(self, k: int, name: str, op: str, current: Any, value: Any) -> Any:
        """`name op= value`."""
        self._go(k)
        if isinstance(current, BufferRef):
            raise error(
                "syntax",
                f"`{op}=` on the whole buffer {current.name}",
                self.builder.loc,
                cls=TileRuntimeError,
                help="write the loop: `for i in T.Parallel(n): buffer[i] += ...`",
            )
        if isinstance(current, VarRef):
            current.set(self._operate(op, Value(current.expr), value))
            return current
        return self._bind(name, self._operate(op, current, value), snapshot=True)

    def augment_item(self, k: int, obj: Any, index: Any, op: str, value: Any) -> None:
        """`obj[index] op= value`: a read and a write, not an atomic."""
        self._go(k)
        self.set_item(k, obj, index, self._operate(op, obj[index], value))

    def _operate(self, op: str, a: Any, b: Any) -> Any:
        if op == "/" and (isinstance(a, Value) or isinstance(b, Value)):
            return divide(a, b)
        return _PYTHON_OPERATORS[op](a, b)

    def set_item(self, k: int, obj: Any, index: Any, value: Any) -> None:
        """`obj[index] = value`."""
        self._go(k)
        if isinstance(value, Unusable):
            value.refuse()
        obj[index] = value

    def frozen(self, k: int, value: Any) -> Any:
        """The right side of an assignment to several targets: everything is read before anything is stored."""
        self._go(k)
        return self._freeze(value)

    def _freeze(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(self._freeze(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, Value) and not (isinstance(value, VarRef) and self._is_new(value)):
            reads = any(isinstance(n, Load) for n in value.expr.walk())
            return Value(self.builder.let(value.expr, "t")) if reads else value
        return value

    def _is_new(self, var: VarRef) -> bool:
        """Whether the variable was allocated by the very statement that is being traced."""
        allocs = (s for s in reversed(self.builder.statements) if isinstance(s, Alloc))
        last = next((s for s in allocs if s.buffer.name == var.buffer.name), None)
        loc = self.builder.loc
        return (
            last is not None
            and last.loc is not None
            and loc is not None
            and last.loc.line == loc.line
        )

    def unpack(self, k: int, value: Any, count: int) -> list[Any]:
        """The right side of `a, b, ... = value`."""
        self._go(k)
        if isinstance(value, (Value, BufferRef, RegionRef)):
            raise error(
                "syntax",
                f"{describe(value)} cannot be unpacked",
                self.builder.loc,
                cls=TileTypeError,
                expected=f"{count} values",
            )
        items = list(value)
        if len(items) != count:
            raise error(
                "value",
                "wrong number of values to unpack",
                self.builder.loc,
                expected=str(count),
                got=str(len(items)),
            )
        return items

    def declare(self, k: int, name: str, annotation: Any, names: Mapping[str, Any]) -> Any:
        """`name: annotation` without a value: a parameter of an eager kernel, or a pointer's tensor."""
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

    # -- statements -----------------------------------------------------------------------------------------------

    def expression(self, k: int, value: Any) -> None:
        """An expression as a statement; its value is not used."""
        self._go(k)
        if isinstance(value, Unusable):
            value.refuse()

    def asserted(self, k: int, test: Any, message: Any) -> None:
        """`assert test, message`."""
        loc = self._go(k)
        if not _is_static(test):
            self.builder.emit(Assert(condition(test), message=str(message), loc=loc))
        elif not test:
            raise AssertionError(message)

    def returned(self, k: int, value: Any) -> Any:
        """`return value`: anything from a macro, the outputs of T.empty from a kernel function."""
        loc = self._go(k)
        if any(kind != "python" for kind in self.builder.loops):
            raise error(
                "syntax",
                "`return` inside code of the kernel",
                loc,
                help="use T.thread_return() to end a thread, or set a T.alloc_var",
            )
        if not self.is_macro and value is not None:
            items = list(value) if isinstance(value, (tuple, list)) else [value]
            self.builder.eager.returned = [self._output(x, loc) for x in items]
        return value

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
            help="make it with T.empty, or add it as a parameter and name its position in `out_idx=`",
        )

    def set_attribute(self, k: int, obj: Any, name: str, value: Any) -> None:
        """`obj.name = value` in a method of a `T.meta_class`: a store where the attribute is a variable."""
        self._go(k)
        current = getattr(obj, "__dict__", {}).get(name)
        if isinstance(current, VarRef) and is_scalar(value) and not isinstance(value, VarRef):
            current.set(value)
        else:
            setattr(obj, name, self._bind(name, value, snapshot=False))

    def augment_attribute(self, k: int, obj: Any, name: str, op: str, value: Any) -> None:
        """`obj.name op= value` in a method of a `T.meta_class`."""
        self._go(k)
        current = getattr(obj, name)
        if isinstance(current, VarRef):
            current = Value(current.expr)
        self.set_attribute(k, obj, name, self._operate(op, current, value))

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
        if enclosing == "sequential":
            self.builder.emit(node(loc=loc))
            return False
        what = {
            "python": f"`{word}` of a loop that is expanded while tracing, under a condition of the kernel",
            "parallel": f"`{word}` in T.Parallel, whose iterations have no order",
        }.get(enclosing, f"`{word}` outside a loop")
        raise error(
            "syntax",
            what,
            loc,
            cls=TileNotImplementedError,
            help="loop with T.serial, or guard the statements with `if`",
        )

    # -- control flow ---------------------------------------------------------------------------------------------

    def if_begin(
        self, k: int, test: Any, names: Sequence[str], known: Mapping[str, Any]
    ) -> IfHandle:
        """`if test:` begins."""
        loc = self._go(k)
        if isinstance(test, (BufferRef, RegionRef, Unusable)):
            bool(test)  # raises the error of its class
        static = bool(test) if _is_static(test) else None
        cond = None if static is not None else condition(test)
        return IfHandle(self, loc, static, cond, names, _pick(names, known))

    def for_begin(
        self,
        k: int,
        iterable: Any,
        names: Sequence[str],
        carried: Sequence[str],
        known: Mapping[str, Any],
    ) -> LoopHandle:
        """`for ... in iterable:` begins: a loop of the kernel, or Python's over something known."""
        loc = self._go(k)
        if isinstance(iterable, Unusable):
            iterable.refuse()
        if isinstance(iterable, range):
            iterable = (
                serial(iterable.start, iterable.stop, iterable.step)
                if self.builder.launch
                else iterable
            )
        if isinstance(iterable, (Value, BufferRef, RegionRef)):
            raise error(
                "syntax",
                f"{describe(iterable)} cannot be iterated over",
                loc,
                cls=TileTypeError,
                help="loop over indices: `for i in T.serial(n)`",
            )
        return LoopHandle(
            self, loc, iterable, names, carried, _pick(names, known), hints=list(self.builder.hints)
        )

    def while_begin(
        self,
        k: int,
        test: Callable[[], Any],
        names: Sequence[str],
        carried: Sequence[str],
        known: Mapping[str, Any],
    ) -> LoopHandle:
        """`while test:` begins."""
        loc = self._go(k)
        before = len(self.builder.statements)
        value = test()
        if _is_static(value) and value:
            raise error(
                "syntax",
                "the condition of `while` is always true while the kernel is traced",
                loc,
                cls=TileRuntimeError,
                help="a name that the loop changes must be a variable: `i = T.alloc_var('int32', init=...)`",
            )
        if len(self.builder.statements) != before:
            raise error("syntax", "the condition of `while` does more than compute a value", loc)
        cond = condition(value)
        return LoopHandle(self, loc, None, names, carried, _pick(names, known), cond=cond)


@dataclass
class IfHandle:
    """One `if` while it is traced; `static` is the known truth, else `cond` is the condition in the kernel."""

    tracer: Tracer
    loc: Loc
    static: bool | None
    cond: Expr | None
    names: Sequence[str]
    before: dict[str, Any]
    now: dict[str, Any] = field(default_factory=dict[str, Any])
    arms: list[tuple[Stmt, ...]] = field(default_factory=list["tuple[Stmt, ...]"])
    after: list[dict[str, Any]] = field(default_factory=list["dict[str, Any]"])

    def arm(self, taken: bool, known: Mapping[str, Any]) -> bool:
        """Whether to trace this arm. In the kernel both are traced, each from the names before the `if`."""
        if self.static is not None:
            self.now = self.before if taken else _pick(self.names, known)
            return self.static is taken
        builder = self.tracer.builder
        if taken:
            builder.loops.append("if")
        else:
            self._finish(known)
        builder.open()
        self.now = self.before
        return True

    def _finish(self, known: Mapping[str, Any]) -> None:
        self.arms.append(self.tracer.builder.close())
        self.after.append(_pick(self.names, known))

    def end(self, known: Mapping[str, Any]) -> None:
        """Both arms are traced: emit the statement and join the names."""
        if self.static is not None or self.cond is None:
            self.now = _pick(self.names, known)
            return
        self._finish(known)
        builder = self.tracer.builder
        builder.loops.pop()
        builder.loc = self.loc
        builder.emit(If(self.cond, self.arms[0], orelse=self.arms[1], loc=self.loc))
        self.now = {n: self._joined(n) for n in self.names}

    def _joined(self, name: str) -> Any:
        a, b = self.after[0].get(name, _MISSING), self.after[1].get(name, _MISSING)
        if a is b or _same_constant(a, b):
            return a
        why = "is bound under a condition of the kernel, so it has no one value after the `if`"
        return Unusable(name, why, self.loc, self.tracer.builder)

    def value(self, name: str) -> Any:
        """What `name` means from here on."""
        return _present(name, self.now, self.loc, self.tracer.builder)


@dataclass
class LoopHandle:
    """One loop while it is traced: a `LoopFrame` or a condition of the kernel, or any Python iterable."""

    tracer: Tracer
    loc: Loc
    iterable: Any
    names: Sequence[str]
    carried: Sequence[str]
    before: dict[str, Any]
    cond: Expr | None = None
    hints: list[str] = field(default_factory=list[str])
    last: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def _of_kernel(self) -> bool:
        return self.cond is not None or isinstance(self.iterable, LoopFrame)

    def rounds(self) -> Iterator[Any]:
        """What the `for` of the rewritten function runs over: one round for a loop of the kernel."""
        builder = self.tracer.builder
        if isinstance(self.iterable, LoopFrame):
            yield self.iterable.enter(builder, self.hints)
            builder.loc = self.loc
            self.iterable.leave(builder)
        elif self.cond is not None:
            builder.loops.append("sequential")
            builder.open()
            yield None
            builder.loops.pop()
            body = builder.close()
            builder.loc = self.loc
            _check_progress(self.cond, body, self.loc)
            builder.emit(While(self.cond, body, loc=self.loc))
        else:
            builder.loops.append("python")
            try:
                yield from self.iterable
            finally:
                builder.loops.pop()

    def round(self, known: Mapping[str, Any]) -> None:
        """A round ends: a name carried from round to round must be a variable of the kernel."""
        self.last = _pick(self.names, known)
        if not self._of_kernel:
            return
        for name in self.carried:
            old, new = self.before.get(name, _MISSING), self.last.get(name, _MISSING)
            if old is new or old is _MISSING or _same_constant(old, new):
                continue
            raise error(
                "syntax",
                f"{name} is rebound in a loop of the kernel, and read in the next round",
                self.loc,
                cls=TileRuntimeError,
                expected="an immutable name, or a variable",
                got=f"{name} = {describe(old)} before the loop, another value after one round",
                help=f"make it a variable: `{name} = T.alloc_var(dtype, init=...)`; assigning to it then stores",
            )

    def value(self, name: str) -> Any:
        """What `name` means after the loop."""
        builder = self.tracer.builder
        if not self._of_kernel:
            return _present(name, self.last or self.before, self.loc, builder)
        old, new = self.before.get(name, _MISSING), self.last.get(name, _MISSING)
        if old is new or (old is not _MISSING and _same_constant(old, new)):
            return _present(name, self.before, self.loc, builder)
        why = "is bound inside a loop of the kernel, so it has no value after the loop"
        return Unusable(name, why, self.loc, builder)


_MISSING = object()


def _pick(names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    return {n: known[n] for n in names if n in known}


def _present(name: str, known: Mapping[str, Any], loc: Loc, builder: Builder) -> Any:
    found = known.get(name, _MISSING)
    return Unusable(name, "is not bound on this path", loc, builder) if found is _MISSING else found


def _same_constant(a: Any, b: Any) -> bool:
    plain = (int, float, str, bool, type(None))
    return type(a) is type(b) and isinstance(a, plain) and a == b


def _is_static(value: Any) -> bool:
    """Whether the truth of `value` is known while the kernel is traced."""
    if isinstance(value, Value):
        return not isinstance(value, VarRef) and isinstance(value.expr, Const)
    return not isinstance(value, (Expr, Unusable))


def _value(value: Value) -> Any:
    """A Python number for a known value of a literal's type, else the value itself."""
    e = value.expr
    return e.value if isinstance(e, Const) and str(e.dtype) in ("int32", "bool") else value


def _range(args: tuple[Any, ...]) -> Any:
    known = [a for a in args if isinstance(a, int)]
    if len(known) == len(args):
        return range(*known)
    if not args:
        raise error("value", "range() without arguments", expected="1 to 3 arguments")
    if len(args) == 1:
        return serial(args[0])
    return serial(*args)


def _check_progress(cond: Expr, body: tuple[Stmt, ...], loc: Loc) -> None:
    """A loop whose condition reads nothing, and that is never left, would not end."""
    reads = any(isinstance(n, Load) for n in cond.walk())
    leaves = any(isinstance(n, Break) for s in body for n in s.walk())
    if not reads and not leaves:
        raise error(
            "syntax",
            "the condition of `while` never changes",
            loc,
            cls=TileRuntimeError,
            help="a name that the loop changes must be a variable: `i = T.alloc_var('int32', init=...)`",
        )


def _signature_error(
    fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], loc: Loc
) -> TileError | None:
    """The located form of Python's complaint about arguments that do not fit a function of the language."""
    module = getattr(fn, "__module__", "") or ""
    if not module.startswith("tilelang."):
        return None
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        name = getattr(fn, "__name__", str(fn))
        accepted = ", ".join(n for n in signature.parameters)
        return error(
            "option",
            f"T.{name}: {exc}",
            loc,
            cls=TileTypeError,
            expected=accepted,
            help="see `help(T." + name + ")`",
        )
    return None


def check_complete(builder: Builder) -> None:
    """Every frame that was opened is closed; anything else is a fault of the tracer."""
    if builder.loops or builder.launch is not None:
        raise InternalError(
            f"the trace of {builder.name} ended inside {builder.loops or 'a launch'}"
        )
