"""The graph's own surface (torch.autograd.graph): nodes, edges, versions, hooks of several tensors, of saved values."""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gradwire._base.errors import GradwireValueError, refuse
from gradwire._base.modes import no_grad
from gradwire._functions.edges import GradientEdge, get_gradient_edge
from gradwire._functions.saved_tensor_hooks import Pair, check_enabled, disabled, in_force
from gradwire._graph.hook_runner import CURRENT_PASS, Pass
from gradwire._graph.hooks import RemovableHandle
from gradwire._graph.nodes import Node as NodeOfGraph
from gradwire._tensor.tensor import Tensor
from gradwire.autograd._execution import count_executed
from gradwire.autograd._nodes import DelayedError, UndefinedGrad
from gradwire.autograd._saved_mutations import allow_mutation_on_saved_tensors
from gradwire.autograd.function import BackwardCFunction


class Node(abc.ABC):
    """What all nodes of the reverse graph can do. Their classes are none's below it, as in PyTorch: it is for
    `isinstance` and annotations (torch.autograd.graph.Node)."""

    @abc.abstractmethod
    def name(self) -> str:
        """PyTorch's name of the node: "MulBackward0"."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that receive this node's gradients, each with its output number."""

    @property
    @abc.abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the program's notes on the node."""

    @abc.abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after backward has passed the node; its answer replaces the first."""

    @abc.abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)` before backward passes the node; its answer replaces the gradients."""


for _kind in (NodeOfGraph, DelayedError, UndefinedGrad, BackwardCFunction):
    Node.register(_kind)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a change in place that was none: what backward has saved of these tensors is out of date then."""
    for each in [tensor] if isinstance(tensor, Tensor) else tensor:
        if not each.is_inference():
            with no_grad():
                each.copy_(each.clone())


class _MultiHandle(RemovableHandle):
    """The handle of a hook of several tensors."""

    __slots__ = ()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn` in each backward that computes gradients of any of these tensors.

    mode "all": `fn(gradients)` once, as soon as the last gradient is computed, with None for tensors that backward does
    not reach. "any": `fn(gradient)` with the first. Raises ValueError for another mode, RuntimeError for a tensor that
    requires no gradient.
    """
    if mode not in ("all", "any"):
        raise GradwireValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    hooks = _all_hooks(tensors, fn) if mode == "all" else _any_hooks(len(tensors), fn)
    handles = [each.register_hook(hook) for each, hook in zip(tensors, hooks, strict=True)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return _MultiHandle(remove)


def _current() -> Pass:
    this = CURRENT_PASS.get()
    if this is None:
        raise refuse("expected this hook to be called inside a backward call")
    return this


class _Gathered:
    """The gradients that have come in a pass, and for how many more to wait."""

    def __init__(self, this: Pass, places: Sequence[tuple[Tensor, Any]], fn: Callable[..., None]) -> None:
        self.gradients: list[Any] = [None] * len(places)
        left = count_executed(this, places)
        if left is None:
            this.at_end.append(lambda _: fn(self.gradients))
        self.left = -1 if left is None else left


def _all_hooks(tensors: Sequence[Tensor], fn: Callable[..., None]) -> list[Callable[[Any], None]]:
    places = [(each, each._edge) for each in tensors]
    passes: weakref.WeakKeyDictionary[Pass, _Gathered] = weakref.WeakKeyDictionary()  # a failed pass is removed

    def note(number: int, gradient: Any) -> None:
        this = _current()
        gathered = passes.get(this)
        if gathered is None:
            gathered = passes[this] = _Gathered(this, places, fn)
        gathered.gradients[number] = gradient
        gathered.left -= 1
        if not gathered.left:
            del passes[this]
            fn(gathered.gradients)

    return [functools.partial(note, number) for number in range(len(places))]


def _any_hooks(count: int, fn: Callable[..., None]) -> list[Callable[[Any], None]]:
    ran: weakref.WeakSet[Pass] = weakref.WeakSet()

    def first(gradient: Any) -> None:
        this = _current()
        if this not in ran:
            ran.add(this)
            fn(gradient)

    return [first] * count


class saved_tensors_hooks:
    """Inside, `pack_hook(tensor)` is given each value that an op saves for backward, and the server keeps none of it.

    The client keeps its result, any object, and passes it to `unpack_hook` when backward needs the value. That hook
    returns a tensor of the same values, size, dtype and device. The innermost pair is in force. Each recorded op waits
    for the server then, as does each unpacking. Raises RuntimeError inside disable_saved_tensors_hooks; an op raises
    what `pack_hook` raises, and RuntimeError if that changes its argument in place.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        check_enabled()
        self._entered.append(in_force(Pair(self.pack_hook, self.unpack_hook)))
        self._entered[-1].__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._entered:  # PyTorch takes an exit too many, too
            self._entered.pop().__exit__(None, None, None)


class save_on_cpu(saved_tensors_hooks):
    """Inside, what ops save for backward is kept in the server's memory, off its GPU.

    On a server without one it is a copy, so that backward does not see later changes in place. The arguments change
    nothing: memory is not pinned.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(_to_cpu, _from_cpu)


def _to_cpu(tensor: Tensor) -> tuple[Any, Tensor]:
    return tensor.device, tensor.clone() if tensor.device.type == "cpu" else tensor.cpu()


def _from_cpu(packed: tuple[Any, Tensor]) -> Tensor:
    device, tensor = packed
    made: Tensor = tensor.to(device)
    return made


def disable_saved_tensors_hooks(error_message: str) -> AbstractContextManager[None]:
    """Inside, saved_tensors_hooks raises RuntimeError with this message; so does entering this while hooks are in
    force."""
    return disabled(error_message)


__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
