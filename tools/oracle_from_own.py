"""A program in this package's IR, in normal form.

What enters: the neutral form of `oracle_own.py`. What leaves: a `Program` of `oracle_form.py`. The
rules are those of `oracle_rules.py`.
"""

from __future__ import annotations

from typing import Any

from oracle_form import INT32, ONE, Form, Program, Stmt
from oracle_rules import ZERO, Body, hints, parameters, row_major, symbols


class Own:
    """Reads this package's neutral form."""

    def __init__(self, form: Form) -> None:
        _, name, params, body, views = form
        self.values: dict[str, Any] = {}
        self.shapes: dict[str, Form] = {}
        self.thread: Form = ["var", ""]
        for view in views.values():
            if view[2] and row_major(view[1], view[2]):
                view[2] = None
        top = Body()
        statements = self.body(body, top)
        for statement in statements:
            _replace(statement, self.values)
        sizes = Stmt("sizes", binds=symbols(params))
        declared = [*top.buffers, *statements]
        self.program = Program(name, [sizes, *parameters(params)], declared, views)

    def body(self, forms: list[Form], top: Body) -> list[Stmt]:
        """A sequence of statements."""
        out: list[Stmt] = []
        for k, s in enumerate(forms):
            before = forms[k - 1] if k else []
            if before[:2] == ["op", "ClcQuery"] and s[:2] == ["op", "Fence"]:
                continue  # a query is fenced
            handler = getattr(self, "_" + s[0].replace(" ", "_"), None)
            out.extend(handler(s, top) if handler is not None else [Stmt(f"own {s[0]}")])
        return out

    def element(self, region: Form) -> Form:
        """The first element of a region, by its place in the buffer."""
        _, name, mins, _ = region
        at = ZERO
        for size, low in zip(self.shapes[name], mins, strict=True):
            at = ["bin", "+", ["bin", "*", at, size], low]
        return ["region", name, [at], [ONE]]

    def _alloc(self, s: Form, top: Body) -> list[Stmt]:
        self.shapes[s[1]] = s[3]
        top.declare(s[1:])
        return []

    def _block_attr(self, s: Form, top: Body) -> list[Stmt]:
        top.facts += [[s[1], ["whole", name], value] for name, value in s[2]]
        return []

    def _launch(self, s: Form, _: Body) -> list[Stmt]:
        grid, names, threads, tids, cluster, body = s[1:]
        self.thread = ["var", tids[0]] if tids else ["var", ""]
        top = Body()
        if cluster:
            top.facts.append(["cluster", [*cluster, *[1] * (3 - len(cluster))]])
        inside = self.body(body, top)
        count = list(threads or [])
        fields = {
            "grid": grid,
            "threads": count + [1] * (3 - len(count)) if count else [],
        }
        bodies = {"buffers": top.buffers, "facts": [top.fact()], "body": inside}
        binds = [(n, INT32) for n in [*names, *tids]]
        return [Stmt("launch", fields, binds, bodies=bodies)]

    def _range(self, s: Form, top: Body) -> list[Stmt]:
        _, kind, var, dtype, start, stop, step, notes, body = s
        fields = {"start": start, "extent": ["bin", "-", stop, start], "step": step}
        fields |= {"kind": kind, "hints": hints(notes)}
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

    def _make_tensor(self, s: Form, _: Body) -> list[Stmt]:
        return [Stmt("MakeTensor", {"address": s[6]}, buffer=s[1:6])]

    def _assert(self, s: Form, _: Body) -> list[Stmt]:
        return [Stmt("assert", {"cond": s[1]})]

    def _specialized(self, groups: Form, body: Form, top: Body) -> Stmt:
        """`T.ws(groups)`, as upstream writes it: a condition on runs of warp groups."""
        cond: Any = None
        for n in sorted(groups):
            if n - 1 in groups:
                continue
            high = next(h for h in range(n, len(groups) + n + 1) if h not in groups)
            part = _group(self.thread, n, high)
            cond = part if cond is None else ["bin", "or", cond, part]
        bodies = {"then": self.body(body, top), "else": []}
        return Stmt("if", {"cond": cond}, bodies=bodies)

    def _op(self, s: Form, top: Body) -> list[Stmt]:
        kind, fields = s[1], dict(s[2])
        if kind == "Annotate":
            return self._annotate(fields, top)
        value = self._value(kind, fields)
        if value is not None:
            self.values[fields["result" if "result" in fields else "previous"][1]] = value
            return []
        if kind == "ClcTryCancel":
            fields["response"] = self.element(fields["response"])
        if kind == "WarpSpecialize":
            return [self._specialized(fields["groups"], fields["body"], top)]
        if "hints" in fields:
            fields["hints"] = hints(dict(fields["hints"]))
        if kind == "Gemm":
            fields.setdefault("hints", {})
        return [Stmt(kind, {k: int(v) if isinstance(v, bool) else v for k, v in fields.items()})]

    def _value(self, kind: str, fields: dict[str, Any]) -> Form | None:
        """The expression that upstream has for what binds a name here."""
        if kind == "Collective":
            dtype = fields["result"][2]
            return ["fn", fields["fn"], dtype, fields["args"], *fields["params"]]
        if kind == "ClcQuery":
            word = "get_" * (fields["part"] != "is_canceled") + fields["part"]
            at = self.element(fields["response"])
            return ["fn", f"clc_{word}", fields["result"][2], [at]]
        if kind == "Atomic" and fields["previous"] is not None:
            update = [fields["dst"], fields["value"]]
            return ["fn", f"atomic_{fields['op']}_ret", fields["previous"][2], update]
        if kind == "RngNext":
            bits = fields["distribution"] == "bits"
            return ["fn", "rng_rand" if bits else "rng_rand_float", fields["result"][2], []]
        return None

    def _annotate(self, fields: dict[str, Any], top: Body) -> list[Stmt]:
        """Wishes about registers are statements; schedules count by being there; the rest are
        facts.
        """
        kind, values = fields["kind"], [*fields["values"], *fields["exprs"]]
        if kind == "registers":
            return [Stmt("registers", {"values": values})]
        if kind.startswith("ws_"):
            top.facts += [[kind]] if kind == "ws_schedule" else []
        elif not fields["buffers"]:
            top.facts.append([kind, *values])
        for n, buffer in enumerate(fields["buffers"]):
            top.facts.append([kind, buffer, *([] if kind == "layout" else values[n : n + 1])])
        return []


def _replace(s: Stmt, values: dict[str, Any]) -> None:
    """Put values in the place of the names that they were bound to, in a statement and below."""

    def replaced(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: replaced(v) for k, v in x.items()}
        if not isinstance(x, list):
            return x
        if x[:1] == ["var"] and x[1] in values:
            return replaced(values[x[1]])
        return [replaced(v) for v in x]

    s.fields = replaced(s.fields)
    for body in s.bodies.values():
        for inner in body:
            _replace(inner, values)


WARP_GROUP = 128


def _group(tx: Form, low: int, high: int) -> Form:
    """Whether a thread is in the warp groups `low` to `high`, the last not included."""
    least, most = (["const", INT32, n * WARP_GROUP] for n in (low, high))
    return ["bin", "and", ["bin", ">=", tx, least], ["bin", "<", tx, most]]


def own(form: Form) -> Program:
    """A program in this package's IR, in normal form."""
    return Own(form).program
