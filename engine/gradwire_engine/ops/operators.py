"""Python's operators on engine tensors, so that one formula serves Tensors and arrays.

`==` keeps comparing identity, because tensors are keys of dicts; formulas call `eq`.
"""

from typing import Any

from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.ops.base import basic, compare
from gradwire_engine.ops.index import index
from gradwire_engine.ops.linalg import matrix


def _reflected(apply: Any) -> Any:
    return lambda tensor, other: apply(other, tensor)


def attach() -> None:
    """Set the operators on Tensor. They are ops, and ops depend on Tensor, so the class cannot define them itself."""
    cls: Any = Tensor
    cls.__add__, cls.__radd__ = _plain(basic.add), _reflected(basic.add)
    cls.__sub__, cls.__rsub__ = _plain(basic.sub), _reflected(basic.sub)
    cls.__mul__, cls.__rmul__ = _plain(basic.mul), _reflected(basic.mul)
    cls.__truediv__, cls.__rtruediv__ = _plain(basic.div), _reflected(basic.div)
    cls.__neg__ = lambda tensor: basic.neg(tensor)
    cls.__matmul__ = lambda a, b: matrix.matmul(a, b)
    cls.__gt__, cls.__ge__ = _plain(compare.gt), _plain(compare.ge)
    cls.__lt__, cls.__le__ = _plain(compare.lt), _plain(compare.le)
    cls.__and__, cls.__or__ = _plain(compare.logical_and), _plain(compare.logical_or)
    cls.__invert__ = lambda tensor: compare.logical_not(tensor)
    cls.__pow__ = lambda base, exponent: basic.mul(base, base) if exponent == 2 else _pow(base, exponent)
    cls.__getitem__ = lambda tensor, key: index.getitem(tensor, key)


def _plain(apply: Any) -> Any:
    return lambda left, right: apply(left, right)


def _pow(base: Any, exponent: Any) -> Any:
    from gradwire_engine.ops.elementwise import binary

    return binary.pow(base, exponent)
