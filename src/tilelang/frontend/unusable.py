"""A name that has no value at a place of the trace, and the check that refuses its use there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, cast

from tilelang.errors import Loc, TileRuntimeError, error
from tilelang.ir.build import Builder


class Unusable:
    """Stands for a name that has no value here; every use of it is an error that says why.

    `parameter` marks a tensor parameter of an eager kernel before its declaration.
    """

    def __init__(
        self, name: str, why: str, loc: Loc | None, builder: Builder, *, parameter: bool = False
    ) -> None:
        self.__dict__.update(
            _name=name, _why=why, _loc=loc, _builder=builder, is_parameter=parameter
        )

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
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
        self.refuse()

    def __setattr__(self, attribute: str, value: object) -> None:
        self.refuse()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __pow__ = __rpow__ = refuse
    __matmul__ = __rmatmul__ = __neg__ = __pos__ = __invert__ = __abs__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = refuse
    __getitem__ = __setitem__ = __call__ = __iter__ = __bool__ = refuse
    __index__ = __int__ = __float__ = __len__ = __enter__ = refuse


def check_usable(*values: Any) -> None:
    """Refuse a name without a value among `values`, also inside tuples, lists and slices."""
    _check(values, ())


def _check(values: Iterable[Any], around: tuple[int, ...]) -> None:
    """Look at values that lie in the containers `around`, by identity: one may hold itself."""
    for value in values:
        if isinstance(value, Unusable):
            value.refuse()
        if isinstance(value, (tuple, list)) and id(cast("Any", value)) not in around:
            _check(cast("Iterable[Any]", value), (*around, id(cast("Any", value))))
        elif isinstance(value, slice):
            part = cast("slice[Any, Any, Any]", value)
            _check((part.start, part.stop, part.step), around)
