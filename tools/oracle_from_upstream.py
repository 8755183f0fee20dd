"""A program in upstream's IR, in normal form.

What enters: the neutral form of `oracle_upstream.py`. What leaves: a `Program` of `oracle_form.py`.
The rules are those of `oracle_rules.py`.
"""

from __future__ import annotations

from typing import Any

from oracle_form import INT32, Form, Program, Side, Stmt
from oracle_rules import ONE, ZERO, Body, hints, number, parameters, row_major, symbols

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
        self.views = made
        self.reducers: dict[str, str] = {}
        self.threads: list[str] = []
        self.rank: Form = ["fn", "block_rank_in_cluster", INT32, []]
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
            if out and out[-1].kind == "let" and _asserts(made, out[-1]):
                made[0].fields["cond"] = out.pop().fields["value"]
            out.extend(made)
        return self._folded(out, top)

    def _folded(self, body: list[Stmt], top: Body) -> list[Stmt]:
        """Reductions and scans without the copies to and from the buffers that upstream makes for
        them, and without those buffers.
        """
        out = list(body)
        for s in [s for s in body if s.kind in ("Reduce", "Scan")]:
            source, result = s.fields["src"], s.fields["dst"]
            self._absorb(out, s, "src", source, top)
            self._absorb(out, s, "dst", result, top)
        return out

    def _absorb(self, out: list[Stmt], s: Stmt, side: str, region: Form, top: Body) -> None:
        """Let an operation work on what its temporary buffer is copied from or to."""
        here = next(n for n, x in enumerate(out) if x is s)
        copies = [(n, x) for n, x in enumerate(out) if x.kind == "Copy" and abs(n - here) <= 2]
        for n, x in reversed(copies):
            other = x.fields["src"] if n < here else x.fields["dst"]
            copied = x.fields["dst"] if n < here else x.fields["src"]
            if copied == region and _temporary(region, other):
                s.fields[side] = other
                del out[n]
                top.drop(region[1])

    def _alloc(self, s: Form, top: Body) -> list[Stmt]:
        self.side.dtypes[s[1]] = s[2]
        top.declare([s[1], s[2], self.expr(s[3]), s[4], self.expr(s[5])])
        return []

    def _for(self, s: Form, top: Body) -> list[Stmt]:
        _, kind, _, var, dtype, start, extent, step, notes, body = s
        if kind == "thread" and s[2].startswith("threadIdx"):  # a name for the thread index
            thread = ["var", self.threads["xyz".index(s[2][-1])]]
            return [Stmt("let", {"value": thread}, [(var, dtype)]), *self.body(body, top)]
        if kind == "thread":
            return self._launch(s)
        self.side.dtypes[var] = dtype
        fields = {"start": self.expr(start), "extent": self.expr(extent), "step": self.expr(step)}
        fields |= {"kind": kind, "hints": hints(self.expr(notes))}
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
        self.threads = []
        self.rank = _rank([["var", n] for n, _ in names], body)
        rest: list[Form] = []
        for x in body:
            if x[0] == "let" and x[3][:2] == ["call", "tl.launch_thread_idx"]:
                names.append((x[1], x[2]))
                self.threads.append(x[1])
            elif x[:2] == ["block attr", "tl.launch_threads"]:
                threads = x[2]
            else:
                rest.append(x)
        top = Body()
        inside = self.body(rest, top)
        fields = {"grid": grid, "threads": threads}
        bodies = {"buffers": top.buffers, "facts": [top.fact()], "body": inside}
        return [Stmt("launch", fields, names, bodies=bodies)]

    def _block_attr(self, s: Form, top: Body) -> list[Stmt]:
        kind = _FACTS.get(str(s[1]), str(s[1]))
        pairs = s[2] if isinstance(s[2], list) else [["", s[2]]]
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            top.facts.append([kind] if kind in _PRESENT else [kind, s[2]])
            return []
        if kind.startswith("reducer_info"):
            for name, value in pairs:
                self.reducers[self.declared.get(name, name)] = value["op"]
            return []
        for name, value in pairs:
            top.facts.append(
                [
                    kind,
                    ["whole", self.declared.get(name, name)],
                    *([] if kind in _PRESENT else [value]),
                ]
            )
        return []

    def _if(self, s: Form, top: Body) -> list[Stmt]:
        then, other = self.body(s[2], top), self.body(s[3], top)
        return [Stmt("if", {"cond": self.expr(s[1])}, bodies={"then": then, "else": other})]

    def _while(self, s: Form, top: Body) -> list[Stmt]:
        return [Stmt("while", {"cond": self.expr(s[1])}, bodies={"body": self.body(s[2], top)})]

    def _let(self, s: Form, _: Body) -> list[Stmt]:
        tensors = [name for name, view in self.views.items() if view[3] == s[1]]
        if s[2] == "handle" and tensors:  # the tensor of `T.make_tensor`
            dtype, shape, strides, _, _ = self.views.pop(tensors[0])
            buffer = [tensors[0], dtype, shape, "global", strides]
            return [Stmt("MakeTensor", {"address": self.expr(s[3])[2]}, buffer=buffer)]
        self.side.dtypes[s[1]] = s[2]
        return [Stmt("let", {"value": self.expr(s[3])}, [(s[1], s[2])])]

    def _store(self, s: Form, _: Body) -> list[Stmt]:
        fields = {"buffer": ["load", s[1], self.expr(s[2])], "value": self.expr(s[3])}
        if s[1] in self.reducers and fields["value"][:3:2] == ["bin", fields["buffer"]]:
            update = {"indices": fields["buffer"][2], "value": fields["value"][3]}
            op = self.reducers[s[1]]
            return [Stmt("ReducerUpdate", {"reducer": ["whole", s[1]], "op": op, **update})]
        return [Stmt("store", fields)]

    def _attr(self, s: Form, top: Body) -> list[Stmt]:
        if s[1] == "threadblock_swizzle_pattern":
            name, panel = s[3][3]
            top.facts.append(
                ["swizzle", number(panel), name.removeprefix("rasterization2D").lower()]
            )
            return self.body(s[4], top)
        if s[1] in ("warp_specialize", "tl.ws_op_id"):
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
        if name == "tl.block_rank_in_cluster":
            return self.rank
        if name == "tirx.tvm_access_ptr":  # one element of a barrier
            return ["region", self.declared[args[1][1]], [values[2]], [ONE]]
        if name == "tl.access_ptr":  # neighbours along the last axis
            [_, buffer, mins] = values[0]
            return ["region", buffer, mins, [*[ONE] * (len(mins) - 1), values[1]]]
        if name == "tl.atomic_load_elem_op":
            return ["fn", "atomic_load", dtype, [values[0], _ORDERS[number(values[1])]]]
        if name.endswith("_ret_elem_op"):
            return ["fn", name.removeprefix("tl.").removesuffix("_elem_op"), dtype, values[:2]]
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


def _temporary(region: Form, other: Form) -> bool:
    """Whether a region is of a buffer that upstream makes for a reduction or scan of another."""
    name, base = (x[1].split("@")[0] for x in (region, other))
    return name == base + "_frag" or name.startswith("scan_smem")


# Facts on buffers, by upstream's name.
_FACTS = {
    "layout_map": "layout",
    "safe_value_map": "safe_value",
    "l2_hit_ratio_map": "l2_hit_ratio",
    "barrier_init": "barrier_init",
    "tl.ws_schedule": "ws_schedule",
    "cluster_dims": "cluster",
}
_PRESENT = ("layout", "ws_schedule")


def _asserts(made: list[Stmt], let: Stmt) -> bool:
    """Whether a statement asserts what the let before it names, as `device_assert` makes them."""
    name = ["var", let.binds[0][0]]
    return [s.kind for s in made] == ["assert"] and made[0].fields["cond"] == name


def _rank(names: list[Form], body: list[Form]) -> Form:
    """The rank of a block in its cluster, from its indices and the cluster's extents."""
    found = [s[2] for s in body if s[:2] == ["block attr", "cluster_dims"]]
    rank: Form = ZERO
    for var, size in reversed(list(zip(names, found[0] if found else [], strict=False))):
        extent = ["const", INT32, number(size)]
        rank = ["bin", "+", ["bin", "*", rank, extent], ["bin", "%", var, extent]]
    return rank


def _region(e: Form) -> Form:
    """One element as a region."""
    return ["region", e[1], e[2], [ONE for _ in e[2]]] if e[0] == "load" else e


def _up_copy(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    return [Stmt("Copy", {"src": a[0], "dst": a[1], "hints": hints(notes)})]


def _up_fill(up: Upstream, a: Form, _: Any) -> list[Stmt]:
    want, value = up.side.dtypes[a[0][1]], a[1]
    if up.side.dtype(value) != want:
        value = ["cast", want, value]
    return [Stmt("Fill", {"dst": a[0], "value": value})]


def _up_gemm(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    fields = {
        "a": a[0], "b": a[1], "c": a[2], "transpose_a": number(a[3]), "transpose_b": number(a[4]),
        "policy": number(a[8]), "clear_accum": a[9], "hints": hints(notes),
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
        fields = {"op": op, "dst": a[1], "value": value, "previous": None, "hints": hints(notes)}
        return [Stmt("Atomic", {**fields, "memory_order": order})]

    return handler


def _element_update(op: str) -> Any:
    """An atomic update of one element."""

    def handler(up: Upstream, a: Form, _notes: Any) -> list[Stmt]:
        order = _ORDERS[number(a[2])] if len(a) > 2 else "relaxed"
        want = up.side.dtype(["load", a[0][1]])
        value = a[1] if up.side.dtype(a[1]) == want else ["cast", want, a[1]]
        fields = {"op": op, "dst": a[0], "value": value, "previous": None, "hints": {}}
        return [Stmt("Atomic", {**fields, "memory_order": order})]

    return handler


def _up_cp_async(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    fields = {"src": a[1], "dst": a[0], "commit": 0, "pred": (*a[3:], None)[0], "hints": {}}
    return [Stmt("AsyncCopy", fields)]


def _up_async_copy(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    fields = {"src": a[0], "dst": a[1], "commit": 1, "pred": None, "hints": hints(notes)}
    return [Stmt("AsyncCopy", fields)]


def _up_assert(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    return [Stmt("assert", {"cond": a[0]})]


def _up_sparse(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    flags = ("transpose_a", "transpose_e", "transpose_b")
    fields = dict(zip(("a", "e", "b", "c"), a, strict=False))
    fields |= dict(zip(flags, map(number, a[4:7]), strict=True))
    return [Stmt("GemmSparse", {**fields, "policy": number(a[10]), "clear_accum": a[11]})]


def _up_mma_arrive(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    return [Stmt("MmaArrive", {"barrier": a[0], "two_cta": int(notes.get("use_2cta", 0))})]


def _up_finalize(up: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    reducer = a[0][1]
    fields = {"reducer": ["whole", reducer], "dst": a[-1], "op": up.reducers.get(reducer)}
    return [Stmt("ReducerFinalize", fields)]


def _up_reducer_init(up: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    init = a[1] if len(a) > 1 else None
    fields = {"reducer": ["whole", a[0][1]], "init": init, "op": up.reducers.get(a[0][1])}
    return [Stmt("ReducerInit", fields)]


def _up_reducer_update(up: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    target = a[0]
    fields = {"reducer": ["whole", target[1]], "indices": target[2], "value": a[1]}
    return [Stmt("ReducerUpdate", {**fields, "op": up.reducers.get(target[1])})]


def _up_atomic_store(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    fields = {"dst": a[0], "value": a[1], "memory_order": _ORDERS[number(a[2])]}
    return [Stmt("AtomicStore", fields)]


def _up_rng(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    names = ("seed", "sequence", "offset")
    return [Stmt("RngInit", {n: ["cast", "uint64", x] for n, x in zip(names, a, strict=False)})]


def _up_im2col(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    names = ("kernel", "stride", "dilation", "pad")
    sizes = dict(zip(names, map(number, a[4:8]), strict=True))
    steps = {"nhw_step": a[2], "c_step": a[3]}
    return [Stmt("Im2col", {"image": a[0], "col": a[1], **steps, **sizes})]


def _barrier(kind: str, *names: str) -> Any:
    """An operation whose first operand is one element of a barrier."""

    def handler(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
        fields = dict(zip(names, [_region(a[0]), *a[1:]], strict=False))
        return [Stmt(kind, {**dict.fromkeys(names), **fields})]

    return handler


def _up_try_cancel(multicast: int) -> Any:
    def handler(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
        fields = {"response": _region(a[0]), "barrier": _region(a[1]), "multicast": multicast}
        return [Stmt("ClcTryCancel", fields)]

    return handler


def _named(op: str, *names: str, **fixed: Any) -> Any:
    """An operation whose operands are plain values."""

    def handler(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
        return [Stmt(op, {**dict.fromkeys(names), **dict(zip(names, a, strict=False)), **fixed})]

    return handler


def _up_numbers(kind: str, *names: str) -> Any:
    """An operation whose operands are numbers."""

    def handler(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
        return [Stmt(kind, dict(zip(names, map(number, a), strict=True)))]

    return handler


def _up_tma(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
    barrier = notes.pop("barrier", None)
    mask = notes.pop("cluster_mask", 0)
    fields = {"src": a[0], "dst": a[1], "barrier": barrier and _region(barrier)}
    return [Stmt("TmaCopy", {**fields, "cluster_mask": mask, "hints": hints(notes)})]


def _up_async(unit: str) -> Any:
    def handler(_: Upstream, a: Form, notes: Any) -> list[Stmt]:
        fields = {
            "a": a[0], "b": a[1], "c": a[2], "unit": unit, "transpose_a": number(a[3]),
            "transpose_b": number(a[4]), "policy": number(a[8]), "clear_accum": a[9],
            "barrier": None if a[10][0] == "const" else _region(a[10]),
            "two_cta": int(notes.get("use_2cta", 0)),
        }  # fmt: skip
        return [Stmt("AsyncGemm", fields)]

    return handler


def _up_scan(op: str) -> Any:
    def handler(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
        fields = {"op": op, "src": a[0], "dst": a[1], "dim": number(a[2]), "reverse": number(a[3])}
        return [Stmt("Scan", fields)]

    return handler


def _up_sync(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    given = [*a[1:], None, None]
    return [Stmt("SyncThreads", {"barrier_id": given[0], "arrive_count": given[1]})]


def _up_registers(_: Upstream, a: Form, _notes: Any) -> list[Stmt]:
    return [Stmt("registers", {"values": ["inc" if number(a[1]) else "dec", number(a[0])]})]


_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_UPSTREAM_OPS: dict[str, Any] = {
    "tl.tileop.atomicadd": _up_atomic("add"),
    "tl.tileop.atomicmax": _up_atomic("max"),
    "tl.tileop.atomicmin": _up_atomic("min"),
    "tl.tileop.im2col": _up_im2col,
    "tl.tileop.async_copy": _up_async_copy,
    "tl.atomic_store_elem_op": _up_atomic_store,
    "tl.rng_init": _up_rng,
    "tirx.ptx_arrive_barrier_expect_tx": _barrier("MbarArrive", "barrier", "tx_bytes", "cta"),
    "tl.tileop.gemm_sp": _up_sparse,
    "tl.tileop.finalize_reducer": _up_finalize,
    "tl.tileop.finalize_reducer_v2": _up_finalize,
    "tl.tileop.reducer_init": _up_reducer_init,
    "tl.reducer_update": _up_reducer_update,
    "tl.tcgen05_mma_arrive": _up_mma_arrive,
    "tl.device_assert": _up_assert,
    "tl.device_assert_with_msg": _up_assert,
    "tl.ptx_cp_async": _up_cp_async,
    "tl.atomic_add_elem_op": _element_update("add"),
    "tl.atomic_max_elem_op": _element_update("max"),
    "tl.atomic_min_elem_op": _element_update("min"),
    "tl.atomic_or_elem_op": _element_update("or"),
    "tl.tileop.tma_copy": _up_tma,
    "tl.tileop.wgmma_gemm": _up_async("wgmma"),
    "tl.tileop.tcgen05_gemm": _up_async("tcgen05"),
    "tl.tileop.cumsum": _up_scan("cumsum"),
    "tl.tileop.cummax": _up_scan("cummax"),
    "tl.tileop.transpose": _named("Transpose", "src", "dst"),
    "tl.mbarrier_wait_parity": _barrier("MbarWait", "barrier", "parity"),
    "tl.mbarrier_expect_tx": _barrier("MbarExpectTx", "barrier", "tx_bytes"),
    "tirx.ptx_arrive_barrier": _barrier("MbarArrive", "barrier", "cta", "tx_bytes"),
    "tl.ptx_arrive_cluster_barrier": _barrier("MbarArrive", "barrier", "cta", "tx_bytes"),
    "tl.ptx_cp_async_barrier_noinc": _barrier("CpAsyncArrive", "barrier"),
    "tirx.tvm_storage_sync": _up_sync,
    "tl.sync_grid": _named("SyncGrid"),
    "tl.sync_warp": _named("SyncWarp", "mask"),
    "tl.set_max_nreg": _up_registers,
    "tl.no_set_max_nreg": _named("registers", values=["keep"]),
    "tl.wait_wgmma": _up_numbers("WaitWgmma", "count"),
    "tl.fence_proxy_async": _named("Fence", kind="proxy.async"),
    "tl.loop_break": _named("Break"),
    "tirx.break_loop": _named("Break"),
    "tirx.continue_loop": _named("Continue"),
    "tirx.assume": _named("Assume", "cond"),
    "tl.tma_store_arrive": _named("TmaStoreArrive"),
    "tl.tma_store_wait": _up_numbers("TmaStoreWait", "count", "read"),
    "tirx.ptx_commit_group": _named("CommitGroup"),
    "tirx.ptx_wait_group": _named("WaitGroup", "count"),
    "tl.cluster_sync": _named("ClusterBarrier", step="sync"),
    "tl.cluster_arrive": _named("ClusterBarrier", step="arrive"),
    "tl.cluster_wait": _named("ClusterBarrier", step="wait"),
    "tl.clc_try_cancel": _up_try_cancel(0),
    "tl.clc_try_cancel_multicast": _up_try_cancel(1),
    "tl.named_barrier_arrive": _named("NamedArrive", "barrier_id", "thread_count"),
    "tl.tileop.copy": _up_copy,
    "tl.tileop.fill": _up_fill,
    "tl.tileop.gemm": _up_gemm,
    "tl.tileop.reduce": _up_reduce,
}


def upstream(form: Form) -> Program:
    """A program in upstream's IR, in normal form."""
    return Upstream(form).program
