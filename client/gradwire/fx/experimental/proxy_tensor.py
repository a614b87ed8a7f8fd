"""make_fx: the graph of the ATen ops that a function calls on tensors (torch.fx.experimental.proxy_tensor)."""

from __future__ import annotations

import functools
import inspect
import operator
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from gradwire._base.errors import refuse
from gradwire._base.refused import refusal
from gradwire._base.wiring import names_of_paths, wired
from gradwire._dispatch import intercept, modes
from gradwire._functions.backward import grad
from gradwire._proxy.handle import Handle, handles_in
from gradwire._session.sessions import current_session
from gradwire.fx.code import Pytree
from gradwire.fx.graph import Graph
from gradwire.fx.graph_module import GraphModule
from gradwire.fx.node import Node
from gradwire.nn import Module, Parameter

__all__ = ["ProxyTorchDispatchMode", "get_proxy_mode", "make_fx"]

__getattr__ = names_of_paths(__name__)

_INTERCEPT = intercept._dispatch  # loading it registers it
_VALUE = (
    "It appears that you're trying to get value out of a tracing tensor with {func} - erroring out! It's likely that "
    "this is caused by data-dependent control flow or similar.  It may be possible to trace this with dynamic shapes; "
    "try setting tracing_mode='symbolic' in your make_fx call."
)


class TensorMeta(NamedTuple):
    """What a node's value is: `meta["tensor_meta"]`."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: Any


class _Tracer:
    """The graph being made, and which node each tensor is."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        # By a tensor's object: a reference to it, and its node.
        self._nodes: dict[int, tuple[weakref.ref[Any], Node]] = {}
        # Sessions' next tensors, at the beginning: what is older comes from outside.
        self._first_ids: dict[Any, int] = {}
        self.constants: set[int] = set()
        # Tensors of the trace are kept: an object's place may not be another's.
        self._kept: list[Any] = []

    def node_of(self, tensor: Any) -> Node | None:
        """The node of a tensor."""
        found = self._nodes.get(id(tensor))
        return None if found is None or found[0]() is not tensor else found[1]

    def note(self, tensor: Any, node: Node) -> None:
        """Let a node be a tensor's."""
        self._nodes[id(tensor)] = weakref.ref(tensor), node
        self._kept.append(tensor)
        node.meta["tensor_meta"] = TensorMeta(tensor.shape, tensor.dtype, tensor.requires_grad, tensor.stride())

    def argument(self, value: Any) -> Any:
        """A value as an argument of a node."""
        if isinstance(value, Handle):
            return self.node_of(value) or self._constant(value)
        if isinstance(value, tuple):
            made = [self.argument(each) for each in value]
            return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
        if isinstance(value, list):
            return [self.argument(each) for each in value]
        if isinstance(value, dict):
            return {key: self.argument(each) for key, each in value.items()}
        return value

    def _constant(self, tensor: Any) -> Node:
        """A tensor from outside, as an attribute."""
        if id(tensor) not in self.constants and not self._is_older(tensor):
            raise refusal(
                "fx.experimental.proxy_tensor.make_fx", "a tensor was made in the trace by what is no op of ATen"
            )
        name = next((key for key, value in self.attributes.items() if value is tensor), None)
        if name is None:
            kind = "_param_constant" if isinstance(tensor, Parameter) else "_tensor_constant"
            name = f"{kind}{sum(key.startswith(kind) for key in self.attributes)}"
            self.attributes[name] = tensor
        node = self.graph.get_attr(name)
        node.meta["tensor_meta"] = TensorMeta(tensor.shape, tensor.dtype, tensor.requires_grad, tensor.stride())
        return node

    def begin(self, session: Any) -> None:
        """Note the ids that a session has given."""
        self._first_ids[session] = next(session.ids)

    def note_constant(self, tensor: Any) -> None:
        """Take a tensor of values that the client sends."""
        self.constants.add(id(tensor))
        self._kept.append(tensor)

    def _is_older(self, tensor: Any) -> bool:
        first = self._first_ids.get(tensor._session)
        return first is None or tensor._id < first

    def track(self, made: Any, node: Node) -> None:
        """Let a node be a result: of several tensors, each is an item of it."""
        if isinstance(made, Handle):
            self.note(made, node)
        elif isinstance(made, (tuple, list)):
            for place, each in enumerate(made):
                if isinstance(each, (Handle, tuple, list)):
                    self.track(each, self.graph.call_function(operator.getitem, (node, place)))


class ProxyTorchDispatchMode:
    """A dispatch mode that adds each op to a graph, and computes it."""

    def __init__(self, tracer: Any, tracing_mode: str = "real", **_: Any) -> None:
        self.tracer, self.tracing_mode = tracer, tracing_mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._qualname.removeprefix("aten::")
        if name == "_local_scalar_dense" and self.tracer.node_of(args[0]) is not None:
            raise refuse(_VALUE.format(func=func))
        if name in ("_local_scalar_dense", "equal", "allclose", "is_same_size"):
            if any(self.tracer.node_of(each) is not None for each in handles_in((args, kwargs))):
                raise refuse(_VALUE.format(func=func))
            return func(*args, **kwargs)
        target = _packet().lift_fresh_copy.default if name == "lift_fresh" else func
        given = self.tracer.argument(tuple(args)), self.tracer.argument(dict(kwargs))
        node = self.tracer.graph.call_function(target, *given)
        made = func(*args, **kwargs)
        self.tracer.track(made, node)
        return made

    def _trace_derivative(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Add a derivative as one call: the server computes it."""
        if function is not grad:
            raise refusal(
                "fx.experimental.proxy_tensor.make_fx", "no backward() in a traced function: use torch.autograd.grad"
            )
        node = self.tracer.graph.call_function(grad, self.tracer.argument(args))
        made = grad(*args)
        self.tracer.track(made, node)
        return made

    def _note_constant(self, tensor: Any) -> None:
        self.tracer.note_constant(tensor)

    def _trace_flag(self, tensor: Any, flag: bool) -> None:
        """Add the call that makes a tensor a leaf, of which a derivative is taken."""
        if self.tracer.node_of(tensor) is not None:
            node = self.tracer.graph.call_method("requires_grad_", (self.tracer.node_of(tensor), flag))
            self.tracer.note(tensor, node)

    def __enter__(self) -> ProxyTorchDispatchMode:
        modes.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        modes.leave()


def _packet() -> Any:
    return wired("ops").aten


def get_proxy_mode() -> Any:
    """The innermost active mode that traces, or None."""
    return next((each for each in reversed(modes.MODES.get()) if isinstance(each, ProxyTorchDispatchMode)), None)


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Any = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    **options: Any,
) -> Callable[..., GraphModule]:
    """A function that traces `f`: called with arguments, it returns the module of the graph of `f`'s ops.

    Only tracing_mode="real" traces here. Python's own values, and branches, are those of the traced call.
    """
    if tracing_mode != "real":
        raise refusal("fx.experimental.proxy_tensor.make_fx", "tracing_mode='real' only: there are no fake tensors")
    if decomposition_table:
        raise refusal("fx.experimental.proxy_tensor.make_fx", "no decomposition_table: ops are shown as they are")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        return _trace(f, args)

    return traced


def _trace(f: Callable[..., Any], args: tuple[Any, ...]) -> GraphModule:
    tracer = _Tracer()
    names, class_name = _parameter_names(f, len(args))
    leaves, spec = wired("tree_flatten")(args)
    is_nested = len(leaves) != len(args) or any(isinstance(each, (tuple, list, dict)) for each in args)
    _add_placeholders(tracer, names, args)
    tracer.begin(current_session())
    for session in {each._session for each in leaves if isinstance(each, Handle)}:
        tracer.begin(session)
    with ProxyTorchDispatchMode(tracer):
        result = f(*args)
    if is_nested:
        values, out_spec = wired("tree_flatten")(result)
        tracer.graph._pytree = Pytree(names, spec, out_spec)
        shown: Any = [tracer.argument(each) for each in values]
    else:
        shown = tracer.argument(result)
    is_own = str(getattr(inspect.unwrap(f), "__module__", "")).split(".")[0] == "gradwire"
    annotation = None if is_own else getattr(inspect.unwrap(f), "__annotations__", {}).get("return")
    tracer.graph.output(shown, annotation if not is_nested else None)
    tracer.graph.eliminate_dead_code(_is_kept)
    return GraphModule(tracer.attributes, tracer.graph, class_name)


def _is_kept(node: Node) -> bool:
    """Whether a node without users stays: what a call of an op made may matter by what the op did."""
    return node.op != "get_attr"


def _add_placeholders(tracer: _Tracer, names: list[str], args: tuple[Any, ...]) -> None:
    for name, value in zip(names, args, strict=True):
        for number, leaf in enumerate(wired("tree_flatten")(value)[0], 1):
            node = tracer.graph.create_node("placeholder", f"{name}_{number}", name=f"{name}_{number}")
            if isinstance(leaf, Handle):
                if tracer.node_of(leaf) is not None:
                    raise refusal(
                        "fx.experimental.proxy_tensor.make_fx",
                        "one tensor as two arguments: the graph would use only one of them; give a clone",
                    )
                tracer.note(leaf, node)


def _parameter_names(f: Callable[..., Any], count: int) -> tuple[list[str], str]:
    """The names of a function's parameters, or numbered ones; and the module's name."""
    plain = inspect.unwrap(f)
    code = getattr(plain, "__code__", None)
    is_own = str(getattr(plain, "__module__", "")).split(".")[0] == "gradwire"  # compiled, in PyTorch
    if isinstance(f, Module) or is_own or code is None or code.co_flags & inspect.CO_VARARGS:
        return [f"arg{place}" for place in range(count)], "<lambda>"
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if inspect.ismethod(plain):
        names = names[1:]
    if len(names) != count:
        raise refuse(f"Tracing expected {len(names)} arguments but got {count} concrete arguments")
    return names, getattr(plain, "__name__", "GraphModule")
