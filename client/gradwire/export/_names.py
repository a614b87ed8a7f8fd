"""Names of what a function reads: its tensors, optimizers and schedulers, by the variables that lead to them.

A module's tensors have the names of its state_dict, after the variable's name: "net.0.weight". A module that is itself
exported has them without a prefix. An optimizer's state has the parameter's name, too, as in
"optimizer.net.0.weight.exp_avg".
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from gradwire._compile.compile import Compiled
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.optim._optimizer import Optimizer
from gradwire.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

_DEEPEST = 6


class Reached:
    """What an exported function reads, by name."""

    def __init__(self, function: Any) -> None:
        #: By tensor id.
        self.names: dict[int, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self.schedulers: dict[str, LRScheduler] = {}
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # so that ids stay taken
        self._queue: deque[tuple[str, Any, int]] = deque([("", function, 0)])
        self._walk()
        for name, scheduler in self.schedulers.items():  # of optimizers, the variables' names come first
            self._queue.append((f"{name}.optimizer", scheduler.optimizer, 1))
        self._walk()
        for name, optimizer in self.optimizers.items():  # after the modules, whose names their parameters have
            for place, param, _ in parameters_of(optimizer):
                if param._id not in self.names:
                    self._name(f"{name}.param.{place}", param)
        self.refresh()

    def refresh(self) -> None:
        """Name the optimizers' state, which may have been made since."""
        for name, optimizer in self.optimizers.items():
            for place, param, state in parameters_of(optimizer):
                for key, value in state.items():
                    if isinstance(value, Tensor):
                        self._name(f"{name}.{self.names.get(param._id, str(place))}.{key}", value)

    def _walk(self) -> None:
        """Look at the queued values and at what they lead to, the nearest first."""
        while self._queue:
            self._visit(*self._queue.popleft())

    def _add(self, name: str, value: Any, depth: int) -> None:
        self._queue.append((name, value, depth))

    def _visit(self, name: str, value: Any, depth: int) -> None:
        if id(value) in self._seen or depth > _DEEPEST:
            return
        if isinstance(value, (int, float, str, bytes, type, types.ModuleType, type(None))):
            return
        self._seen.add(id(value))
        self._kept.append(value)
        if isinstance(value, Tensor):
            self._name(name or "tensor", value)
        elif isinstance(value, Module):
            self._add_module(name, value, depth)
        elif isinstance(value, Optimizer):
            self.optimizers[name or "optimizer"] = value
        elif isinstance(value, (LRScheduler, ReduceLROnPlateau)):
            self.schedulers[name or "scheduler"] = value
            for place, part in enumerate(getattr(value, "_schedulers", ())):
                self._add(_joined(name or "scheduler", str(place)), part, depth + 1)
        else:
            prefix = "" if isinstance(value, types.FunctionType) else name
            for key, part in _parts_of(value):
                self._add(_joined(prefix, key), part, depth + 1)

    def _add_module(self, name: str, module: Module, depth: int) -> None:
        for key, tensor in (*module.named_parameters(), *module.named_buffers()):
            self._name(_joined(name, key), tensor)
        for part in module.modules():
            held = {key: value for key, value in part.__dict__.items() if not key.startswith("_")}
            for key, value in held.items():
                if key not in ("training", "forward"):
                    self._add(_joined(name, key), value, depth + 1)

    def _name(self, name: str, tensor: Tensor) -> None:
        if tensor._id in self.names:
            return
        unique, count = name, 1
        while unique in self.tensors:
            count += 1
            unique = f"{name}.{count}"
        self.names[tensor._id] = unique
        self.tensors[unique] = tensor


def parameters_of(optimizer: Optimizer) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """The optimizer's parameters: place, tensor and state, which is empty before the first step."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for place, param in enumerate(params):
        yield place, param, optimizer.state.get(param, {})


def _joined(name: str, key: str) -> str:
    return f"{name}.{key}" if name and key else name or key


def _parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value leads to, by name."""
    if isinstance(value, Compiled):
        yield "", value._function
    elif isinstance(value, functools.partial):
        yield "", value.func
        yield from _items([*value.args])
        yield from _items(value.keywords)
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, types.FunctionType):
        if value.__closure__ or not (value.__module__ or "").startswith("gradwire."):
            yield from _variables_of(value)
    elif isinstance(value, (dict, list, tuple)):
        yield from _items(value)
    elif not type(value).__module__.startswith("gradwire."):
        yield from _items(getattr(value, "__dict__", {}))
        if not isinstance(value, type) and isinstance(type(value).__dict__.get("__call__"), types.FunctionType):
            yield "", type(value).__dict__["__call__"]


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield str(key), part


def _variables_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Variables that a function closes over, and the globals that its code names."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    codes = [code]
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
