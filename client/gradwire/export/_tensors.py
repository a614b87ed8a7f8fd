"""Tensors of an exported function: its arguments and results by name, and what they share memory with.

A program file has one tensor for each name. So two names must not stand for one memory that the function changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._compile.result_structure import map_tensors
from gradwire._proxy.handle import Handle
from gradwire._proxy.results import share_storage
from gradwire._tensor.storages import memory_of
from gradwire._tensor.tensor import Tensor
from gradwire.export._counters import refusal
from gradwire.export._names import Reached, parameters_of

if TYPE_CHECKING:
    from gradwire._compile.recorder import RecordedProgram


def input_names(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among the arguments by name: the parameter's, with places of nested ones: "batch.0"."""
    target = function.forward if hasattr(function, "forward") else function
    try:
        bound = inspect.signature(target).bind(*args, **kwargs)
        parts: dict[str, Any] = dict(bound.arguments)
    except (TypeError, ValueError):  # a function in C, or one that refuses the arguments itself
        parts = {**{f"arg{place}": value for place, value in enumerate(args)}, **kwargs}
    found: dict[str, Tensor] = {}
    for name, value in parts.items():
        _collect(name, value, found)
    return found


def _collect(name: str, value: Any, found: dict[str, Tensor], whole: bool = False) -> None:
    """Find the tensors in nested containers, by their paths. With `whole`, refuse other values than None."""
    if isinstance(value, Handle):
        found[name] = value  # type: ignore[assignment]
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str) or "." in key or key.isdigit():
                raise refusal(f"the key {key!r} is no name: use texts without dots")
            _collect(f"{name}.{key}" if name else key, part, found, whole)
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            _collect(f"{name}.{place}" if name else str(place), part, found, whole)
    elif whole and value is not None:
        raise NotATensor(name, type(value).__name__)


class NotATensor(Exception):
    """A container has a value that is neither a tensor nor None. `path` is its place, `kind` its type's name."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(path, kind)
        self.path = path
        self.kind = kind


def tensors_by_path(value: Any) -> dict[str, Tensor]:
    """The tensors in a value by their paths in it, "" for the value itself. Raises NotATensor; None has no path."""
    found: dict[str, Tensor] = {}
    _collect("", value, found, whole=True)
    return found


def output_names(answer: Any) -> dict[str, Tensor]:
    """The tensors of a result by name; a tensor alone is "output". Raises GradwireError for what no name can tell."""
    try:
        outputs = tensors_by_path(answer)
    except NotATensor as error:
        where = f" at {error.path}" if error.path else ""
        raise refusal(f"the function returns a {error.kind}{where}: return tensors only") from None
    if list(outputs) == ["output"]:
        raise refusal('a dictionary whose only key is "output" reads as one tensor: use another key')
    return {name or "output": held for name, held in outputs.items()}


def distinct_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], reached: Reached
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, each tensor of which is an input of its own.

    A copy stands for a tensor that occurs again, and for one that a variable of the function leads to, too. What an
    optimizer trains has no copy: its step changes it.
    """
    trained = {param._id for each in reached.optimizers.values() for _, param, _ in parameters_of(each)}
    seen = reached.names.keys() - trained

    def change(held: Any) -> Any:
        if held._id not in seen:
            seen.add(held._id)
            return held
        return held.detach().clone().requires_grad_(held.requires_grad)

    given = tuple([map_tensors(value, change) for value in args])
    return given, {name: map_tensors(value, change) for name, value in kwargs.items()}


class OutsideTensors(dict[int, Handle]):
    """Tensors from outside a recorded call by id, with the count of their changes when each was first used."""

    def __init__(self) -> None:
        super().__init__()
        self._changes: dict[int, int] = {}

    def __setitem__(self, tensor_id: int, handle: Handle) -> None:
        if tensor_id not in self._changes:
            storage = handle._storage or share_storage(handle, handle)
            self._changes[tensor_id] = storage.changes
        super().__setitem__(tensor_id, handle)

    def check(self, trace: RecordedProgram, names: Mapping[int, str], changed: set[str]) -> None:
        """Refuse changes in place that a file cannot tell. `names` and `changed` are those of reached tensors.

        Raises GradwireError for a changed tensor that no variable leads to, and for one that shares its memory with
        another input.
        """
        shared: dict[int, list[str]] = {}
        moved: set[int] = set()
        captured = {handle._id for handle in trace.captures}
        for handle in (*trace.feeds, *trace.captures):
            name = names.get(handle._id)
            storage = handle._storage
            memory = id(memory_of(handle))
            shared.setdefault(memory, []).append(name or "an argument")
            was = self._changes.get(handle._id)
            if name in changed or (storage is not None and was is not None and storage.changes != was):
                moved.add(memory)
                if name is None and handle._id in captured:
                    raise refusal(
                        "the function changes a tensor in place to which no variable leads: make it a variable that "
                        "the function names, an attribute of its object, or an argument"
                    )
        for memory in moved:
            if len(shared[memory]) > 1:
                raise refusal(
                    f"the function changes {shared[memory][0]}, which shares memory with {shared[memory][1]}: make the "
                    "view inside the function"
                )
