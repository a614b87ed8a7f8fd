"""Custom ops written in Python (torch.library): functions that run in the client. Compiled ones are refused.

`torch.ops.<namespace>.<name>` calls the registered function. Its derivative is that of the ops it calls, or of
`register_autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from gradwire._base.errors import GradwireValueError
from gradwire._base.refused import refusal, refused
from gradwire._base.wiring import wired
from gradwire._dispatch.calls import call_overload, call_packet
from gradwire._tensor.batching import BATCHING, CUSTOM_OPS
from gradwire.autograd.function import Function
from gradwire.nn._functional import aten

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "get_ctx",
    "impl",
    "impl_abstract",
    "infer_schema",
    "ops",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]

_COMPILED = "an extension's compiled op runs in no server; write it as an autograd.Function, or with torch.library"
# Functions of ops by "namespace::name".
_implementations: dict[str, Callable[..., Any]] = {
    "torchvision::_cuda_version": lambda: -1,
    "profiler::_record_function_enter": lambda name, args=None: wired("record_function")(name, args).__enter__(),
    "profiler::_record_function_enter_new": lambda name, args=None: wired("record_function")(name, args).__enter__(),
    "profiler::_record_function_exit": lambda handle: handle.__exit__(None, None, None),
}
_derivatives: dict[str, type[Function]] = {}
# Dtypes of ops under autocast by kind of device.
_casts: dict[str, dict[str, Any]] = {}

infer_schema = refused("library.infer_schema", "schemas are not checked here")
get_ctx = refused("library.get_ctx", "shapes are not inferred apart from values")
triton_op = refused("library.triton_op", "a client sends no code to the server")
wrap_triton = refused("library.wrap_triton", "a client sends no code to the server")


def _name(op: Any) -> str:
    """ "namespace::name" of an op, given as a text, with a schema or overload, or as the op."""
    text = op if isinstance(op, str) else op._qualname
    return str(text).partition("(")[0].partition(".")[0].strip()


def _computes(key: str) -> bool:
    """Whether functions of a dispatch key compute values: not their shapes, derivatives, casts or batches."""
    return not key.startswith(("Meta", "Auto", "Functorch", "Batched", "Fake", "ADInplace"))


class Library:
    """Ops of a namespace: `define` names them, `impl` gives their functions."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._given: list[str] = []

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Return the op's name; the schema is not used."""
        return _name(schema)

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        """Let a function compute an op, unless it only computes shapes."""
        name = _name(op_name)
        if _computes(dispatch_key or self.dispatch_key):
            full = name if "::" in name else f"{self.ns}::{name}"
            _implementations[full] = fn
            self._given.append(full)

    def _destroy(self) -> None:
        """Take the functions back that `impl` gave."""
        for name in self._given:
            _implementations.pop(name, None)
        self._given.clear()


@contextmanager
def _scoped_library(ns: str, kind: str, dispatch_key: str = "") -> Iterator[Library]:
    """A library whose functions are taken back at the end of the block."""
    made = Library(ns, kind, dispatch_key)
    try:
        yield made
    finally:
        made._destroy()


class CustomOpDef:
    """An op whose function is Python."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self._qualname = name
        self._init_fn = fn
        self.__name__ = name.rpartition("::")[2]
        _implementations[name] = fn
        _derivatives.pop(name, None)  # of an earlier op of that name
        _casts.pop(name, None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self._qualname, args, kwargs)

    def register_fake(self, fn: Any = None, /) -> Any:
        """Return the function: shapes are not inferred apart from values."""
        return fn if fn is not None else lambda given: given

    register_vmap = register_fake

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """Return the function unused: the op's own function computes on all devices."""
        return fn if fn is not None else lambda given: given

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Set the op's derivative."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Set the dtype that the op computes in where autocast is on."""
        register_autocast(self, device_type, cast_inputs)


def custom_op(name: str, fn: Any = None, /, *, mutates_args: Any = (), **options: Any) -> Any:
    """Make an op of a Python function (torch.library.custom_op); without a function, a decorator that does."""
    return CustomOpDef(name, fn) if fn is not None else lambda given: CustomOpDef(name, given)


def define(qualname: str, schema: Any = None, *, lib: Any = None, tags: Any = ()) -> Any:
    """Name an op; its function comes by `impl`."""
    return lambda given: given


def impl(qualname: Any, types: str | Iterable[str], func: Any = None, *, lib: Any = None) -> Any:
    """Let a function compute an op; without a function, a decorator."""

    keys = (types,) if isinstance(types, str) else tuple(types)

    def register(given: Callable[..., Any]) -> Callable[..., Any]:
        if any(map(_computes, keys)):
            _implementations[_name(qualname)] = given
        return given

    return register(func) if func is not None else register


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """The same as `impl`."""
    return impl(op, device_types, func)


def register_fake(op: Any, func: Any = None, /, *, lib: Any = None, **options: Any) -> Any:
    """Return the function unused: shapes are not inferred apart from values."""
    return func if func is not None else lambda given: given


impl_abstract = register_vmap = register_fake


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Where autocast is on, cast an op's tensors of a kind of device to this dtype, and compute it with autocast off.

    The first dtype for a kind of device counts. Raises ValueError for one that has no autocast.
    """
    if device_type not in wired("AUTOCAST_KINDS"):
        raise GradwireValueError(f"Device type '{device_type}' does not support autocast.")
    _casts.setdefault(_name(op), {}).setdefault(device_type, cast_inputs)


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Return the function unused: commands are not intercepted in the client."""
    return func if func is not None else lambda given: given


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Any = None) -> None:
    """Set an op's derivative: `backward(ctx, *grads)`, and `setup_context(ctx, inputs, output)` before it.

    That of an op with keyword-only arguments gets them as `keyword_only_inputs`. Defaults are among the inputs.
    """
    name = _name(op)

    def forward(ctx: Any, *given: Any) -> Any:
        *args, named = given
        made = _implementations[name](*args, **named)
        if setup_context is not None:
            if named:
                setup_context(ctx=ctx, inputs=tuple(args), keyword_only_inputs=named, output=made)
            else:
                setup_context(ctx, tuple(args), made)
        return made

    def backward_of_all(ctx: Any, *grads: Any) -> Any:
        made = backward(ctx, *grads)
        return (*made, None) if isinstance(made, (tuple, list)) else (made, None)

    parts = {"forward": forward, "backward": backward_of_all}
    _derivatives[name] = type(name.rpartition("::")[2], (Function,), parts)


def _run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for device_type, cast_inputs in _casts.get(name, {}).items():
        if wired("is_autocast_enabled")(device_type):
            return wired("with_casts")(_packet(name), device_type, cast_inputs, args, kwargs)  # which is off there
    if BATCHING and name in _implementations:
        overload = _packet(name).default
        for each in CUSTOM_OPS:
            made = each(overload, args, kwargs, lambda: _computed(name, args, kwargs))
            if made is not NotImplemented:
                return made
    return _computed(name, args, kwargs)


def _computed(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name in _derivatives and name in _implementations:
        bound = signature(_implementations[name]).bind(*args, **kwargs)
        bound.apply_defaults()
        return _derivatives[name].apply(*bound.args, bound.kwargs)
    if name not in _implementations:
        function = _of_torch(name)
        if function is not None:
            return function(*args, **kwargs)
        raise refusal("ops." + name.replace("::", "."), _COMPILED)
    return _implementations[name](*args, **kwargs)


def _of_torch(name: str) -> Callable[..., Any] | None:
    """The function of torch that computes an op of ATen; None if it has no such name."""
    namespace, _, short = name.partition("::")
    if namespace != "aten":
        return None
    if short in aten.__all__:
        inner: Callable[..., Any] = getattr(aten, short)
        return inner
    if short.startswith("_"):
        return None
    found = getattr(import_module("gradwire"), short, None)
    return found if callable(found) else None


class _Callable:
    """What computes an op, and is equal to another of the same name."""

    def __init__(self, name: str) -> None:
        self._qualname = name
        self.__name__ = name.rpartition("::")[2]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self._qualname, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self._qualname.replace("::", ".")


class OpOverloadPacket(_Callable):
    """An op of `torch.ops`: `torch.ops.namespace.name`. Its attributes are its overloads, which all compute the same.

    One that is called without an overload computes, too.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        short = self._qualname.removeprefix("aten::")
        if short != self._qualname and (BATCHING or not hasattr(import_module("gradwire"), short)):
            made = call_packet(self, args, kwargs)
            if made is not NotImplemented:
                return made
        return super().__call__(*args, **kwargs)

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("_"):
            raise AttributeError(name)
        made = OpOverload(self._qualname, name, self)
        setattr(self, name, made)
        return made

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


@cache
def _packet(name: str) -> OpOverloadPacket:
    """The one object of an op."""
    return OpOverloadPacket(name)


class OpOverload(_Callable):
    """One overload of an op: `torch.ops.namespace.name.default`."""

    def __init__(self, name: str, overload: str, packet: OpOverloadPacket) -> None:
        super().__init__(name)
        self._overloadname, self.overloadpacket = overload, packet
        self.__name__ = f"{self.__name__}.{overload}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._qualname.startswith("aten::"):
            return super().__call__(*args, **kwargs)
        return call_overload(self, args, kwargs)

    def name(self) -> str:
        """The name in ATen's form: "aten::sin", "aten::mul.Tensor"."""
        return self._qualname if self._overloadname == "default" else f"{self._qualname}.{self._overloadname}"

    def __str__(self) -> str:
        return f"{super().__str__()}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"


class _Namespace:
    """The ops of a namespace."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _packet(f"{self._name}::{name}")
        setattr(self, name, made)
        return made


class _Ops:
    """torch.ops."""

    def __init__(self) -> None:
        self.loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace(name)
        setattr(self, name, made)
        return made

    def load_library(self, path: str) -> None:
        """Note a library of compiled ops. Its ops are refused by name when they are called: they run in no server."""
        self.loaded_libraries.add(path)


ops = _Ops()
