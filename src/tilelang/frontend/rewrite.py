"""The rewriter: an author's function in, the same function with every construct sent to the tracer.

What enters and leaves is Python syntax. The rewritten function runs as ordinary Python, so
closures, helpers and comprehensions work while it is traced; the tracer (`trace.py`) decides for
each construct whether it is Python or becomes code of the kernel. Every syntax node is either
listed here or refused at its place.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass, field
from typing import NoReturn

from tilelang.errors import Loc, error
from tilelang.frontend.names import assigned, exposed, read_names, target_names

TRACER = "__tracer"
LOCALS = "__locals"

_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("`try`", "check the condition instead"),
    ast.Delete: ("`del`", "let the name go out of use"),
    ast.Global: ("`global`", "pass the value in, or return it"),
    ast.Nonlocal: ("`nonlocal`", "pass the value in, or return it"),
    ast.ClassDef: ("a class definition", "define the class outside the kernel"),
    ast.AsyncFunctionDef: ("`async def`", "use a plain function"),
    ast.AsyncFor: ("`async for`", "use a plain loop"),
    ast.AsyncWith: ("`async with`", "use a plain `with`"),
    ast.Match: ("`match`", "use `if` and `elif`"),
    ast.Await: ("`await`", "use plain calls"),
    ast.Yield: ("`yield`", "return the values"),
    ast.YieldFrom: ("`yield from`", "return the values"),
}
_PLAIN_STATEMENTS = (ast.Pass, ast.Import, ast.ImportFrom)
_PLAIN_EXPRESSIONS = (
    ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.JoinedStr,
    ast.FormattedValue, ast.Starred, ast.keyword, ast.expr_context,
)  # fmt: skip
_LAST: dict[type[ast.stmt], str] = {
    ast.Break: "break", ast.Continue: "continue", ast.Return: "return", ast.Raise: "raise",
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_SIGNS: dict[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_COMPARES: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


TOO_DEEP = (
    "an expression that is nested too deeply",
    "give parts of it to variables, or write a loop",
)
"""What `Rewriter.refuse` is told where Python's stack does not suffice."""


def _place(new: ast.expr, node: ast.AST) -> None:
    """Give what stands for `node` its place.

    A part that has a place has it in all its parts, so a deep expression takes linear time.
    """
    ast.copy_location(new, node)
    parts = list(ast.iter_child_nodes(new))
    while parts:
        part = parts.pop()
        if not hasattr(part, "lineno"):
            if "lineno" in part._attributes:
                ast.copy_location(part, node)
            parts += ast.iter_child_nodes(part)


@dataclass
class Rewriter(ast.NodeTransformer):
    """Rewrites the body of one function.

    `locs[k]` is the place that the k-th tracer call refers to.
    """

    file: str
    function: str
    attributes: bool = False
    fragile: frozenset[str] = frozenset()  # names that may have no value where they are read
    locs: list[Loc] = field(default_factory=list[Loc])
    _temps: int = 0
    _deferred: int = 0  # how many lambdas and comprehensions the expression at hand is inside

    # -- helpers -----------------------------------------------------------------------------------

    def loc(self, node: ast.AST) -> Loc:
        """The place of a node in the author's file."""
        line = getattr(node, "lineno", 1)
        start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None) or 0
        if getattr(node, "end_lineno", line) != line:
            end = 10_000  # the whole of its first line
        # Python counts bytes; a caret stands under characters.
        text = linecache.getline(self.file, line).encode()
        if text:
            start, end = (len(text[:n].decode(errors="ignore")) for n in (start, end))
        return Loc(self.file, line, start + 1, end + 1, self.function)

    def _place(self, node: ast.AST) -> ast.Constant:
        self.locs.append(self.loc(node))
        return ast.Constant(len(self.locs) - 1)

    def _tracer(self, method: str, node: ast.AST, *args: ast.expr) -> ast.Call:
        fn = ast.Attribute(ast.Name(TRACER, ast.Load()), method, ast.Load())
        return ast.Call(fn, [self._place(node), *args], [])

    def _temp(self) -> str:
        self._temps += 1
        return f"__t{self._temps}"

    def refuse(self, node: ast.AST, what: str, way_out: str) -> NoReturn:
        """Raise the error for a construct that is not part of the language."""
        raise error("syntax", f"{what} is not part of the language", self.loc(node), help=way_out)

    # -- statements --------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the statements of a block; never empty."""
        out: list[ast.stmt] = []
        for n, stmt in enumerate(body):
            word = _LAST.get(type(stmt))
            if word is not None and body[n + 1 :]:
                dead = self._tracer("dead", body[n + 1], ast.Constant(word))
                out.append(ast.fix_missing_locations(ast.copy_location(ast.Expr(dead), stmt)))
            out += self.statement(stmt)
            if word is not None:
                break
        return out or [ast.Pass()]

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """Rewrite one statement, led by a call that tells the tracer where it is."""
        refused = _REFUSED.get(type(node))
        if refused is not None:
            self.refuse(node, *refused)
        if isinstance(node, _PLAIN_STATEMENTS):
            return [node]
        method = getattr(self, f"_stmt_{type(node).__name__.lower()}", None)
        if method is None:
            self.refuse(
                node, f"`{type(node).__name__}`", "write it with the constructs of docs/language.md"
            )
        try:
            new: list[ast.stmt] = method(node)
        except RecursionError:
            self.refuse(node, *TOO_DEEP)
        names = ast.Tuple([ast.Constant(n) for n in self._hints(node)], ast.Load())
        lead = ast.Expr(self._tracer("at", node, names))
        out = [lead, *new]
        for stmt in out:
            _locate(stmt, node)
        return out

    @staticmethod
    def _hints(node: ast.stmt) -> list[str]:
        match node:
            case ast.Assign(targets=[target]):
                return target_names(target)
            case ast.AnnAssign(target=ast.Name(id=name)):
                return [name]
            case ast.For(target=target):
                return target_names(target)
            case ast.With(items=items):
                return [n for entry in items for n in target_names(entry.optional_vars)]
            case _:
                return []

    def _stmt_expr(self, node: ast.Expr) -> list[ast.stmt]:
        if isinstance(node.value, ast.Constant):
            return [ast.Pass()]  # a docstring or `...`
        return [ast.Expr(self._tracer("expression", node, self.visit(node.value)))]

    def _stmt_functiondef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        self._defaults(node.args)
        return [node]  # the body runs later, as plain Python

    def _stmt_return(self, node: ast.Return) -> list[ast.stmt]:
        value = ast.Constant(None) if node.value is None else self.visit(node.value)
        return [ast.Return(self._tracer("returned", node, value))]

    def _stmt_raise(self, node: ast.Raise) -> list[ast.stmt]:
        parts = [None if x is None else self.visit(x) for x in (node.exc, node.cause)]
        return [ast.Expr(self._tracer("raising", node)), ast.Raise(*parts)]

    def _stmt_assert(self, node: ast.Assert) -> list[ast.stmt]:
        message = ast.Constant("") if node.msg is None else self.visit(node.msg)
        return [ast.Expr(self._tracer("asserted", node, self.visit(node.test), message))]

    def _stmt_assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if len(node.targets) == 1 and not isinstance(node.targets[0], (ast.Tuple, ast.List)):
            return self._assign(node.targets[0], value, node, alias=_is_place(node.value))
        temp = self._temp()
        out: list[ast.stmt] = [_set(temp, self._tracer("frozen", node, value))]
        for target in node.targets:
            out += self._assign(target, _get(temp), node, alias=False)
        return out

    def _assign(
        self, target: ast.expr, value: ast.expr, node: ast.stmt, *, alias: bool
    ) -> list[ast.stmt]:
        match target:
            case ast.Name(id=name):
                call = self._tracer(
                    "assign",
                    node,
                    ast.Constant(name),
                    value,
                    _call(LOCALS),
                    ast.Constant(alias),
                )
                return [_set(name, call)]
            case ast.Subscript():
                base, index = self.visit(target.value), self._index(target.slice)
                return [ast.Expr(self._tracer("set_item", target, base, index, value))]
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                if any(isinstance(e, ast.Starred) for e in elts):
                    self.refuse(target, "a starred target", "name each value")
                temp = self._temp()
                out: list[ast.stmt] = [
                    _set(temp, self._tracer("unpack", target, value, ast.Constant(len(elts))))
                ]
                for n, element in enumerate(elts):
                    part = ast.Subscript(_get(temp), ast.Constant(n), ast.Load())
                    out += self._assign(element, part, node, alias=False)
                return out
            case ast.Attribute() if self.attributes:
                obj, name = self.visit(target.value), ast.Constant(target.attr)
                return [ast.Expr(self._tracer("set_attribute", target, obj, name, value))]
            case _:
                return self.refuse(
                    target,
                    "assignment to an attribute",
                    "keep the value in a local name or a buffer",
                )

    def _stmt_annassign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is not None:
            value, alias = self.visit(node.value), _is_place(node.value)
            return self._assign(node.target, value, node, alias=alias)
        if not isinstance(node.target, ast.Name):
            self.refuse(node, "a declaration of something other than a name", "declare a name")
        name = node.target.id
        call = self._tracer(
            "declare", node, ast.Constant(name), self.visit(node.annotation), _call(LOCALS)
        )
        return [_set(name, call)]

    def _stmt_augassign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if type(node.op) not in _OPERATORS:
            self.refuse(node, "this operator", "write it as a call")
        op, value = ast.Constant(_OPERATORS[type(node.op)]), self.visit(node.value)
        match node.target:
            case ast.Name(id=name):
                return [
                    _set(
                        name,
                        self._tracer("augment", node, ast.Constant(name), op, _get(name), value),
                    )
                ]
            case ast.Subscript():
                base, index = self.visit(node.target.value), self._index(node.target.slice)
                return [ast.Expr(self._tracer("augment_item", node, base, index, op, value))]
            case ast.Attribute() if self.attributes:
                obj, name = self.visit(node.target.value), ast.Constant(node.target.attr)
                call = self._tracer("augment_attribute", node, obj, name, op, value)
                return [ast.Expr(call)]
            case _:
                return self.refuse(
                    node.target,
                    "assignment to an attribute",
                    "keep the value in a local name or a buffer",
                )

    def _stmt_if(self, node: ast.If) -> list[ast.stmt]:
        handle = self._temp()
        names = assigned([*node.body, *node.orelse])
        begin = self._tracer(
            "if_begin", node.test, self.visit(node.test), _strings(names), _call(LOCALS)
        )
        out: list[ast.stmt] = [_set(handle, begin)]
        for taken, arm in ((True, node.body), (False, node.orelse)):
            enter = ast.Call(_method(handle, "arm"), [ast.Constant(taken), _call(LOCALS)], [])
            body = self.block(arm) if arm else [ast.Pass()]
            out.append(ast.If(enter, [*(_restore(handle, names)), *body], []))
        out.append(ast.Expr(ast.Call(_method(handle, "end"), [_call(LOCALS)], [])))
        return [*out, *_restore(handle, names)]

    def _stmt_for(self, node: ast.For) -> list[ast.stmt]:
        self._no_else(node)
        target = node.target
        targets = ast.Constant(len(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else 0)
        begin = self._tracer("for_begin", node.iter, self.visit(node.iter), targets)
        return self._loop(node, begin, node.target)

    def _stmt_while(self, node: ast.While) -> list[ast.stmt]:
        self._no_else(node)
        begin = self._tracer("while_begin", node.test, self._later(node.test))
        return self._loop(node, begin, ast.Name(self._temp(), ast.Store()))

    def _no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            self.refuse(
                node.orelse[0],
                "`else` of a loop",
                "set a T.alloc_var before `break` and test it after the loop",
            )

    def _loop(self, node: ast.For | ast.While, begin: ast.Call, target: ast.expr) -> list[ast.stmt]:
        handle = self._temp()
        names = [
            n
            for n in dict.fromkeys([*target_names(target), *assigned(node.body)])
            if not n.startswith("__t")
        ]
        carried = exposed(node.body) - set(target_names(target))
        if isinstance(node, ast.While):
            carried |= read_names(node.test) & set(names)
        begin.args += [_strings(names), _strings(sorted(carried)), _call(LOCALS)]
        last = ast.Expr(ast.Call(_method(handle, "round"), [_call(LOCALS)], []))
        loop = ast.For(
            target, ast.Call(_method(handle, "rounds"), [], []), [*self.block(node.body), last], []
        )
        end = ast.Expr(ast.Call(_method(handle, "end"), [_call(LOCALS)], []))
        return [_set(handle, begin), loop, end, *_restore(handle, names)]

    def _stmt_break(self, node: ast.Break) -> list[ast.stmt]:
        return [ast.If(self._tracer("break_", node), [ast.Break()], [])]

    def _stmt_continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [ast.If(self._tracer("continue_", node), [ast.Continue()], [])]

    def _stmt_with(self, node: ast.With) -> list[ast.stmt]:
        items = [
            ast.withitem(
                self._tracer(
                    "manager",
                    entry.context_expr,
                    self.visit(entry.context_expr),
                    ast.Constant(_parts(entry.optional_vars)),
                ),
                entry.optional_vars,
            )
            for entry in node.items
        ]
        return [ast.With(items, self.block(node.body))]

    # -- expressions -------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> ast.expr:
        """Rewrite an expression; refuse a node that is not listed."""
        refused = _REFUSED.get(type(node))
        if refused is not None:
            self.refuse(node, *refused)
        method = getattr(self, f"_expr_{type(node).__name__}", None)
        if method is None and not isinstance(node, _PLAIN_EXPRESSIONS):
            self.refuse(
                node, f"`{type(node).__name__}`", "write it with the constructs of docs/language.md"
            )
        new = self.generic_visit(node) if method is None else method(node)
        if isinstance(new, ast.expr):
            _place(new, node)
        return new  # pyright: ignore[reportReturnType]

    def _later(self, node: ast.expr) -> ast.Lambda:
        """A function that computes `node` when the tracer asks for it."""
        self._deferred += 1
        try:
            return _lambda(self.visit(node))
        finally:
            self._deferred -= 1

    def _expr_Lambda(self, node: ast.Lambda) -> ast.expr:
        return ast.Lambda(self._defaults(node.args), self._later(node.body).body)

    def _defaults(self, args: ast.arguments) -> ast.arguments:
        """Default values are computed where the function is written."""

        def computed(node: ast.expr) -> ast.expr:
            return self._tracer("frozen", node, self.visit(node))

        args.defaults = [computed(d) for d in args.defaults]
        args.kw_defaults = [None if d is None else computed(d) for d in args.kw_defaults]
        return args

    def _comprehension(self, node: ast.expr) -> ast.expr:
        self._deferred += 1
        try:
            return self.generic_visit(node)  # pyright: ignore[reportReturnType]
        finally:
            self._deferred -= 1

    _expr_ListComp = _expr_SetComp = _expr_DictComp = _expr_GeneratorExp = _comprehension

    def _expr_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """What it runs over and its filters must be known while tracing."""
        if node.is_async:
            self.refuse(node.iter, "an asynchronous comprehension", "use a plain comprehension")
        iterable = self._tracer("iterable", node.iter, self.visit(node.iter))
        filters: list[ast.expr] = [
            self._tracer("filter", test, self.visit(test)) for test in node.ifs
        ]
        return ast.comprehension(node.target, iterable, filters, 0)

    def _expr_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        if self._deferred:
            self.refuse(
                node,
                "`:=` in a condition, comprehension or lambda",
                "assign in a statement of its own",
            )
        name = ast.Constant(node.target.id)
        alias = ast.Constant(_is_place(node.value))
        value = self._tracer("assign", node, name, self.visit(node.value), _call(LOCALS), alias)
        return ast.NamedExpr(node.target, value)

    def _expr_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._tracer("attribute", node, self.visit(node.value), ast.Constant(node.attr))

    def _expr_BinOp(self, node: ast.BinOp) -> ast.expr:
        op = ast.Constant(_OPERATORS[type(node.op)])
        return self._tracer("operate", node, op, self.visit(node.left), self.visit(node.right))

    def _expr_Name(self, node: ast.Name) -> ast.expr:
        fragile = node.id in self.fragile and isinstance(node.ctx, ast.Load)
        return self._tracer("use", node, _get(node.id)) if fragile else node

    def _expr_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._tracer("item", node, self.visit(node.value), self._index(node.slice))

    def _index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Slice):
            bounds = [
                ast.Constant(None) if x is None else self.visit(x)
                for x in (node.lower, node.upper, node.step)
            ]
            return self._tracer("slice_", node, *bounds)
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self._index(e) for e in node.elts], ast.Load())
        return self.visit(node)

    def _expr_Call(self, node: ast.Call) -> ast.expr:
        call = self._tracer(
            "call", node, self.visit(node.func), *[self.visit(a) for a in node.args]
        )
        call.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return call

    def _expr_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        word = "and" if isinstance(node.op, ast.And) else "or"
        return self._tracer(
            "bool_op", node, ast.Constant(word), *[self._later(v) for v in node.values]
        )

    def _expr_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return self._tracer("not_", node, self.visit(node.operand))
        return self._tracer(
            "unary", node, ast.Constant(_SIGNS[type(node.op)]), self.visit(node.operand)
        )

    def _expr_IfExp(self, node: ast.IfExp) -> ast.expr:
        arms = [self._later(node.body), self._later(node.orelse)]
        return self._tracer("if_expression", node, self.visit(node.test), *arms)

    def _expr_Compare(self, node: ast.Compare) -> ast.expr:
        ops = [_COMPARES[type(op)] for op in node.ops]
        operands = [self.visit(x) for x in (node.left, *node.comparators)]
        return self._tracer("compare", node, _strings(ops), *operands)


def _locate(stmt: ast.stmt, node: ast.AST) -> None:
    """Give what is new in `stmt` the place of `node`. Statements inside that have a place were
    rewritten before, with all that is in them.
    """
    left: list[ast.AST] = [stmt]
    while left:
        part = left.pop()
        if not hasattr(part, "lineno") and isinstance(part, (ast.expr, ast.stmt)):
            ast.copy_location(part, node)
        left += [
            child
            for child in ast.iter_child_nodes(part)
            if not (isinstance(child, ast.stmt) and hasattr(child, "lineno"))
        ]


def _is_place(node: ast.expr) -> bool:
    """Whether `node` names an element or attribute, which may be a variable to be shared."""
    return isinstance(node, (ast.Subscript, ast.Attribute))


def _get(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _call(name: str) -> ast.Call:
    return ast.Call(_get(name), [], [])


def _method(handle: str, name: str) -> ast.Attribute:
    return ast.Attribute(_get(handle), name, ast.Load())


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _strings(names: list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


def _restore(handle: str, names: list[str]) -> list[ast.stmt]:
    """`name = handle.value("name")` for each name: what the name means from here on."""
    return [_set(n, ast.Call(_method(handle, "value"), [ast.Constant(n)], [])) for n in names]


def _parts(target: ast.expr | None) -> int | None:
    """How many values a target takes apart; None where it takes one, or any number."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return None
    return None if any(isinstance(e, ast.Starred) for e in target.elts) else len(target.elts)
