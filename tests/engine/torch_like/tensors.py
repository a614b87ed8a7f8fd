"""Tensor: an engine tensor with PyTorch's operators, methods and attributes. `call` applies an op by name."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import gradwire_engine as engine
from gradwire_engine.core import dtypes
from gradwire_engine.graph.tensor import leave_graph, node_without_refresh, retain_grad
from tests.refusals import as_python

Around = Callable[[Callable[[], Any]], Any]
#: What is done around each op and each recorded gradient: saved_tensors_hooks pack what it saves.
AROUND: ContextVar[Around | None] = ContextVar("around", default=None)

_SIZES = {"view", "reshape", "expand", "permute"}  # their sizes may be given one by one


class Size(tuple[int, ...]):
    """A shape that reads as PyTorch's."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"


class DType:
    """An element type that reads as PyTorch's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numpy = dtypes.BY_NAME[name]

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """A tensor of the engine. There is one such object for an engine tensor, so `is` says what it says in PyTorch."""

    def __init__(self, inner: engine.Tensor) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every op of the engine, and its in-place form, as a method."""
        try:
            engine.lookup(name)
        except engine.EngineError:
            raise AttributeError(f"the engine has no op {name!r}") from None
        return lambda *args, **kwargs: call(name, self, *args, **kwargs)

    @property
    def shape(self) -> Size:
        return Size(self.inner.shape)

    @property
    def dtype(self) -> DType:
        return DType(dtypes.name_of(self.inner.dtype))

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def requires_grad(self) -> bool:
        with as_python():
            node_without_refresh(self.inner)  # updates a view's flags
        return self.inner.requires_grad

    @property
    def grad_fn(self) -> Any:
        from tests.engine.torch_like.nodes import node_of

        with as_python():
            return node_of(self.inner.grad_fn)

    @property
    def output_nr(self) -> int:
        return self.inner.index

    @property
    def grad(self) -> Any:
        return wrap(self.inner.grad)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        with as_python():
            engine.set_grad(self.inner, unwrap(value))

    @property
    def data(self) -> Any:
        return wrap(engine.data(self.inner))

    @property
    def retains_grad(self) -> bool:
        return self.inner.retains_grad

    @property
    def real(self) -> Any:
        return call("real", self)

    @property
    def imag(self) -> Any:
        return call("imag", self)

    @property
    def _version(self) -> int:
        if self.inner.storage.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self.inner.storage.version

    @property
    def _base(self) -> Any:
        return None if self.inner.view is None else wrap(self.inner.view.base)

    def _is_view(self) -> bool:
        return self.inner.view is not None

    def is_inference(self) -> bool:
        return self.inner.storage.inference

    def tolist(self) -> Any:
        return self.inner.array.tolist()

    def item(self) -> Any:
        return self.inner.array.item()

    def numel(self) -> int:
        return self.inner.size

    def double(self) -> Any:
        return call("to", self, DType("float64"))

    def index_put_(self, indices: Any, values: Any, accumulate: bool = False) -> Any:
        return call("index_put_", self, list(indices), values, accumulate)

    def detach_(self) -> Tensor:
        with as_python():
            leave_graph(self.inner)
        return self

    def requires_grad_(self, flag: bool = True) -> Tensor:
        with as_python():
            engine.set_requires_grad(self.inner, flag)
        return self

    def retain_grad(self) -> None:
        with as_python():
            retain_grad(self.inner)

    def backward(self, gradient: Tensor | None = None, **options: Any) -> None:
        from tests.engine.torch_like.autograd import backward

        backward(self, gradient, **options)

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        from tests.engine.torch_like.hooks import on_tensor

        return on_tensor(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> Any:
        from tests.engine.torch_like.hooks import on_leaf

        return on_leaf(self, hook)

    def __getitem__(self, index: Any) -> Any:
        return call("getitem", self, index if isinstance(index, tuple) else (index,))

    def __setitem__(self, index: Any, value: Any) -> None:
        call("setitem_", self, index if isinstance(index, tuple) else (index,), value)

    def __iter__(self) -> Iterator[Any]:
        return iter(call("unbind", self))

    def __len__(self) -> int:
        return self.inner.shape[0]

    def __bool__(self) -> bool:
        return bool(self.inner.array)

    def __float__(self) -> float:
        return float(self.inner.array)

    def __neg__(self) -> Any:
        return call("neg", self)


def _attach_operators() -> None:
    """Give Tensor Python's operators: each is one op, `+=` its in-place form."""
    for name, op in {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "truediv": "div",
        "pow": "pow",
        "matmul": "matmul",
    }.items():
        setattr(Tensor, f"__{name}__", lambda self, other, op=op: call(op, self, other))
        setattr(Tensor, f"__i{name}__", lambda self, other, op=op: call(op + "_", self, other))
    for name in ("gt", "ge", "lt", "le"):
        setattr(Tensor, f"__{name}__", lambda self, other, op=name: call(op, self, other))
    for name, op in {"radd": "add", "rmul": "mul", "rsub": "rsub"}.items():
        setattr(Tensor, f"__{name}__", lambda self, other, op=op: call(op, self, other))


_attach_operators()
_KNOWN: weakref.WeakValueDictionary[engine.Tensor, Tensor] = weakref.WeakValueDictionary()


def wrap(value: Any) -> Any:
    """The value with engine tensors as Tensors, within tuples and lists too."""
    if isinstance(value, engine.Tensor):
        found = _KNOWN.get(value)
        if found is None:
            found = _KNOWN[value] = Tensor(value)
        return found
    return type(value)(map(wrap, value)) if type(value) in (tuple, list) else value


def unwrap(value: Any) -> Any:
    """The value as the engine takes it."""
    if isinstance(value, Tensor):
        return value.inner
    if isinstance(value, DType):
        return value.numpy
    if isinstance(value, tuple):
        return tuple(map(unwrap, value))
    return list(map(unwrap, value)) if isinstance(value, list) else value


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Apply an op; saved_tensors_hooks that are in force pack what it saves."""
    if name in _SIZES and len(args) > 1 and not isinstance(args[1], (tuple, list)):
        args = (args[0], args[1:])
    given = unwrap(args), {key: unwrap(value) for key, value in kwargs.items()}
    with as_python():
        return wrap(recorded(lambda: engine.call(name, *given)))


def recorded(apply: Callable[[], Any]) -> Any:
    """Call what may record nodes, with what is to be done around it."""
    around = AROUND.get()
    return apply() if around is None else around(apply)
