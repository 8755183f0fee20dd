"""The rules by which the two packages say one thing differently, and both in normal form.

What enters: a program in the neutral form of `oracle_upstream.py` or `oracle_own.py`. What leaves:
a `Program` of `oracle_form.py`. Where the packages differ by design, the rule stands here, once:

1. Storage is allocated at the top of a kernel, in the order in which the program asks for it; so
   are facts (`layout`, barrier counts), as a set. Upstream keeps both apart from the statements.
2. A parallel nest of n loops is n loops, the outermost with the hints.
3. A value that is stored, filled or reduced into a buffer of another dtype is converted: upstream
   leaves that to the lowering of `fill`, here a cast is written.
4. A reduction of shared memory is one operation here; upstream copies to a fragment and back.
5. A layout counts by the buffer that it is for: the two packages' layout objects have no common
   form.
6. Hints of a loop or copy whose default is written out are as good as absent.
"""

from __future__ import annotations

from typing import Any

from oracle_form import INT32, Form, Program, Side, Stmt

ZERO = ["const", INT32, 0]
ONE = ["const", INT32, 1]


def number(e: Any) -> int:
    """The value of an integer literal."""
    return int(e) if isinstance(e, (int, bool)) else int(e[2])


class Body:
    """Collects what is moved to the top of a kernel while its body is read."""

    def __init__(self) -> None:
        self.buffers: list[Stmt] = []
        self.facts: list[Form] = []

    def declare(self, form: Form) -> None:
        """An allocation."""
        strides = form[4] or None
        buffer = [*form[:4], strides]
        self.buffers.append(Stmt("alloc", buffer=buffer))


def parameters(params: list[Form]) -> list[Stmt]:
    """Parameters, with row-major strides left out, and the symbolic sizes that they bind."""
    made: list[Stmt] = []
    for p in params:
        if p[0] == "scalar":
            made.append(Stmt("parameter", binds=[(p[1], p[2])]))
            continue
        name, dtype, shape, scope, strides = p[1:]
        if strides and row_major(shape, strides):
            strides = None
        made.append(Stmt("tensor", buffer=[name, dtype, shape, scope, strides]))
    return made


def row_major(shape: Form, strides: Form) -> bool:
    """Whether strides are those of a row-major array without gaps."""
    side = Side()
    want: Any = ONE
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if side.canonical(stride) != side.canonical(want):
            return False
        want = ["bin", "*", want, size]
    return True


def symbols(params: list[Form]) -> list[tuple[str, str]]:
    """The symbolic sizes of parameters, in order of first appearance."""
    found: dict[str, str] = {}

    def walk(e: Any) -> None:
        if isinstance(e, list):
            if e[:1] == ["var"]:
                found.setdefault(e[1], INT32)
            for x in e[1:] if e and isinstance(e[0], str) else e:
                walk(x)

    for p in params:
        if p[0] == "buffer":
            walk(p[3])
            walk(p[5])
    return list(found.items())


# -- upstream
# -----------------------------------------------------------------------------------------

_UNARY_FN = {
    "tirx.fabs": "abs",
    "tirx.nearbyint": "round",
    "tirx.round": "round_away",
    "tl.round_ties_away_from_zero": "round_away",
}
_BINARY_FN = {
    "tirx.shift_left": "<<",
    "tirx.shift_right": ">>",
    "tirx.bitwise_and": "&",
    "tirx.bitwise_or": "|",
    "tirx.bitwise_xor": "^",
}


class Upstream:
    """Reads upstream's neutral form."""

    def __init__(self, form: Form) -> None:
        _, name, params, body, views, self.declared = form
        made = {key: self.view(view) for key, view in views.items()}
        self.side = Side(made)
        for p in params:
            if p[0] == "buffer":
                self.side.dtypes[p[1]] = p[2]
        top = Body()
        sizes = Stmt("sizes", binds=symbols(params))
        statements = self.body(body, top)
        declared = [*top.buffers, *statements]
        self.program = Program(name, [sizes, *parameters(params)], declared, made)

    def view(self, view: Form) -> Form:
        """A view, with row-major strides and no offset left out."""
        dtype, shape, strides, data, offset = self.expr(view)
        if strides and row_major(shape, strides):
            strides = None
        nothing = offset == ZERO
        return [
            dtype,
            shape,
            strides or None,
            self.declared.get(data, data),
            None if nothing else offset,
        ]

    def body(self, forms: list[Form], top: Body) -> list[Stmt]:
        """A sequence of statements."""
        out: list[Stmt] = []
        for s in forms:
            handler = getattr(self, "_" + s[0].replace(" ", "_"), None)
            made = handler(s, top) if handler is not None else [Stmt(f"upstream's {s[0]}")]
            out.extend(made)
        return out

    def _alloc(self, s: Form, top: Body) -> list[Stmt]:
        self.side.dtypes[s[1]] = s[2]
        top.declare([s[1], s[2], self.expr(s[3]), s[4], self.expr(s[5])])
        return []

    def _for(self, s: Form, top: Body) -> list[Stmt]:
        _, kind, _, var, dtype, start, extent, step, notes, body = s
        if kind == "thread":
            return self._launch(s)
        self.side.dtypes[var] = dtype
        fields = {"start": self.expr(start), "extent": self.expr(extent), "step": self.expr(step)}
        fields |= {"kind": kind, "hints": self.expr(notes)}
        inside = self.body(body, top)
        return [Stmt("for", fields, [(var, dtype)], bodies={"body": inside})]

    def _launch(self, s: Form) -> list[Stmt]:
        grid: list[Any] = []
        names: list[tuple[str, str]] = []
        body = [s]
        while body and body[0][0] == "for" and body[0][1] == "thread":
            _, _, _, var, dtype, _, extent, _, _, body = body[0]
            grid.append(self.expr(extent))
            names.append((var, dtype))
            self.side.dtypes[var] = dtype
        threads: list[Any] = []
        rest: list[Form] = []
        for x in body:
            if x[0] == "let" and x[3][:2] == ["call", "tl.launch_thread_idx"]:
                names.append((x[1], x[2]))
            elif x[:2] == ["block attr", "tl.launch_threads"]:
                threads = x[2]
            else:
                rest.append(x)
        top = Body()
        inside = self.body(rest, top)
        fields = {"grid": grid, "threads": threads, "facts": ["set", top.facts]}
        return [Stmt("launch", fields, names, bodies={"buffers": top.buffers, "body": inside})]

    def _block_attr(self, s: Form, top: Body) -> list[Stmt]:
        kind = _FACTS.get(s[1], s[1])
        pairs = s[2] if isinstance(s[2], list) else [["", s[2]]]
        for name, value in pairs:
            top.facts.append(
                [
                    kind,
                    ["whole", self.declared.get(name, name)],
                    *([] if kind == "layout" else [value]),
                ]
            )
        return []

    def _if(self, s: Form, top: Body) -> list[Stmt]:
        then, other = self.body(s[2], top), self.body(s[3], top)
        return [Stmt("if", {"cond": self.expr(s[1])}, bodies={"then": then, "else": other})]

    def _while(self, s: Form, top: Body) -> list[Stmt]:
        return [Stmt("while", {"cond": self.expr(s[1])}, bodies={"body": self.body(s[2], top)})]

    def _let(self, s: Form, _: Body) -> list[Stmt]:
        self.side.dtypes[s[1]] = s[2]
        return [Stmt("let", {"value": self.expr(s[3])}, [(s[1], s[2])])]

    def _store(self, s: Form, _: Body) -> list[Stmt]:
        fields = {"buffer": ["load", s[1], self.expr(s[2])], "value": self.expr(s[3])}
        return [Stmt("store", fields)]

    def _attr(self, s: Form, top: Body) -> list[Stmt]:
        if s[1] == "threadblock_swizzle_pattern":
            name, panel = s[3][3]
            top.facts.append(
                ["swizzle", number(panel), name.removeprefix("rasterization2D").lower()]
            )
            return self.body(s[4], top)
        fields = {"key": s[1], "node": self.expr(s[2]), "value": self.expr(s[3])}
        return [Stmt("attr", fields, bodies={"body": self.body(s[4], top)})]

    def _assert(self, s: Form, _: Body) -> list[Stmt]:
        return [Stmt("assert", {"cond": self.expr(s[1])})]

    def _eval(self, s: Form, _: Body) -> list[Stmt]:
        call = s[1]
        if call[0] != "call":
            return [Stmt("value", {"value": self.expr(call)})]
        name, args, notes = call[1], call[3], call[4]
        handler = _UPSTREAM_OPS.get(name)
        if handler is not None:
            return handler(self, [self.expr(a) for a in args], self.expr(notes))
        fields = {"name": name, "args": [self.expr(a) for a in args], "notes": self.expr(notes)}
        return [Stmt("call", fields)]

    # -- values
    # ------------------------------------------------------------------------------------

    def expr(self, e: Any) -> Any:
        """A value in normal form."""
        if isinstance(e, dict):
            return {k: self.expr(v) for k, v in e.items()}
        if not isinstance(e, list):
            return e
        if e[:1] == ["call"]:
            return self._called(e)
        return [self.expr(x) for x in e]

    def _called(self, e: Form) -> Any:  # noqa: PLR0911 - one for each kind
        _, name, dtype, args, _ = e
        values = [self.expr(a) for a in args]
        if name == "tl.region":
            [_, buffer, mins] = values[0]
            return ["region", buffer, mins, values[2:]]
        if name in ("tirx.if_then_else", "tirx.Select"):
            return ["select", *values]
        if name in _BINARY_FN:
            return ["bin", _BINARY_FN[name], *values]
        if name == "tirx.bitwise_not":
            return ["un", "~", *values]
        if name == "tl.infinity":
            return ["const", dtype, "inf"]
        if name == "tirx.reinterpret":
            return ["bitcast", dtype, values[0]]
        short = _UNARY_FN.get(name) or name.split(".")[-1]
        return ["fn", short, dtype, values]


# Facts on buffers, by upstream's name.
_FACTS = {
    "layout_map": "layout",
    "safe_value_map": "safe_value",
    "l2_hit_ratio_map": "l2_hit_ratio",
    "barrier_init": "barrier_init",
}


def _region(e: Form) -> Form:
    """One element as a region."""
    return ["region", e[1], e[2], [ONE for _ in e[2]]] if e[0] == "load" else e


def _up_copy(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    return [Stmt("Copy", {"src": a[0], "dst": a[1], "hints": notes})]


def _up_fill(up: Upstream, a: Form, _: Any) -> list[Stmt]:
    want, value = up.side.dtypes[a[0][1]], a[1]
    if up.side.dtype(value) != want:
        value = ["cast", want, value]
    return [Stmt("Fill", {"dst": a[0], "value": value})]


def _up_gemm(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    fields = {
        "a": a[0], "b": a[1], "c": a[2], "transpose_a": number(a[3]), "transpose_b": number(a[4]),
        "policy": number(a[8]), "clear_accum": a[9], "hints": notes,
    }  # fmt: skip
    return [Stmt("Gemm", fields)]


def _up_reduce(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    fields = {
        "op": a[2], "src": a[0], "dst": a[1], "dim": number(a[3]), "clear": number(a[4]),
        "nan_propagate": int(bool(notes.get("nan_propagate", 0))), "batch": notes.get("batch", 1),
    }  # fmt: skip
    return [Stmt("Reduce", fields)]


def _up_atomic(op: str) -> Any:
    def handler(up: Upstream, a: Form, notes: Any) -> list[Stmt]:
        order = _ORDERS[number(notes.pop("memory_order", 0))]
        value, want = a[0], up.side.dtype(["load", a[1][1]])
        if value[0] != "region" and up.side.dtype(value) != want:
            value = ["cast", want, value]
        fields = {"op": op, "dst": a[1], "value": value, "previous": None, "hints": notes}
        return [Stmt("Atomic", {**fields, "memory_order": order})]

    return handler


def _up_im2col(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    names = ("kernel", "stride", "dilation", "pad")
    sizes = dict(zip(names, map(number, a[4:8]), strict=True))
    steps = {"nhw_step": a[2], "c_step": a[3]}
    return [Stmt("Im2col", {"image": a[0], "col": a[1], **steps, **sizes})]


_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_UPSTREAM_OPS: dict[str, Any] = {
    "tl.tileop.atomicadd": _up_atomic("add"),
    "tl.tileop.atomicmax": _up_atomic("max"),
    "tl.tileop.atomicmin": _up_atomic("min"),
    "tl.tileop.im2col": _up_im2col,
    "tl.tileop.copy": _up_copy,
    "tl.tileop.fill": _up_fill,
    "tl.tileop.gemm": _up_gemm,
    "tl.tileop.reduce": _up_reduce,
}

# -- this package
# -------------------------------------------------------------------------------------


class Own:
    """Reads this package's neutral form."""

    def __init__(self, form: Form) -> None:
        _, name, params, body, views = form
        for view in views.values():
            if view[2] and row_major(view[1], view[2]):
                view[2] = None
        top = Body()
        statements = self.body(body, top)
        sizes = Stmt("sizes", binds=symbols(params))
        declared = [*top.buffers, *statements]
        self.program = Program(name, [sizes, *parameters(params)], declared, views)

    def body(self, forms: list[Form], top: Body) -> list[Stmt]:
        """A sequence of statements."""
        out: list[Stmt] = []
        for s in forms:
            handler = getattr(self, "_" + s[0].replace(" ", "_"), None)
            out.extend(handler(s, top) if handler is not None else [Stmt(f"own {s[0]}")])
        return out

    def _alloc(self, s: Form, top: Body) -> list[Stmt]:
        top.declare(s[1:])
        return []

    def _block_attr(self, s: Form, top: Body) -> list[Stmt]:
        top.facts += [[s[1], ["whole", name], value] for name, value in s[2]]
        return []

    def _launch(self, s: Form, _: Body) -> list[Stmt]:
        grid, names, threads, tids, _cluster, body = s[1:]
        top = Body()
        inside = self.body(body, top)
        count = list(threads or [])
        fields = {
            "grid": grid,
            "threads": count + [1] * (3 - len(count)) if count else [],
            "facts": ["set", top.facts],
        }
        binds = [(n, INT32) for n in [*names, *tids]]
        return [Stmt("launch", fields, binds, bodies={"buffers": top.buffers, "body": inside})]

    def _range(self, s: Form, top: Body) -> list[Stmt]:
        _, kind, var, dtype, start, stop, step, notes, body = s
        fields = {"start": start, "extent": ["bin", "-", stop, start], "step": step}
        fields |= {"kind": kind, "hints": notes}
        return [Stmt("for", fields, [(var, dtype)], bodies={"body": self.body(body, top)})]

    def _if(self, s: Form, top: Body) -> list[Stmt]:
        then, other = self.body(s[2], top), self.body(s[3], top)
        return [Stmt("if", {"cond": s[1]}, bodies={"then": then, "else": other})]

    def _while(self, s: Form, top: Body) -> list[Stmt]:
        return [Stmt("while", {"cond": s[1]}, bodies={"body": self.body(s[2], top)})]

    def _let(self, s: Form, _: Body) -> list[Stmt]:
        return [Stmt("let", {"value": s[3]}, [(s[1], s[2])])]

    def _store(self, s: Form, _: Body) -> list[Stmt]:
        return [Stmt("store", {"buffer": ["load", s[1], s[2]], "value": s[3]})]

    def _assert(self, s: Form, _: Body) -> list[Stmt]:
        return [Stmt("assert", {"cond": s[1]})]

    def _op(self, s: Form, top: Body) -> list[Stmt]:
        kind, fields = s[1], dict(s[2])
        if kind == "Annotate" and not fields["buffers"]:
            top.facts.append([fields["kind"], *fields["values"], *fields["exprs"]])
            return []
        if kind == "Annotate":
            values = [*fields["values"], *fields["exprs"]]
            for n, buffer in enumerate(fields["buffers"]):
                rest = [] if fields["kind"] == "layout" else values[n : n + 1]
                top.facts.append([fields["kind"], buffer, *rest])
            return []
        if "hints" in fields:
            fields["hints"] = dict(fields["hints"])
        if kind == "Gemm":
            fields.setdefault("hints", {})
        for key, value in fields.items():
            if isinstance(value, bool):
                fields[key] = int(value)
        return [Stmt(kind, fields)]


def upstream(form: Form) -> Program:
    """A program in upstream's IR, in normal form."""
    return Upstream(form).program


def own(form: Form) -> Program:
    """A program in this package's IR, in normal form."""
    return Own(form).program
