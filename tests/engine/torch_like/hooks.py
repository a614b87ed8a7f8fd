"""Hooks: callbacks by number, and the loop that answers a backward's requests for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradwire_engine import grad_mode
from gradwire_engine.graph.callbacks import CallbackRequest, hook_accumulated, hook_tensor, hooks_of
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback
from tests.engine.torch_like.tensors import Tensor, unwrap, wrap
from tests.refusals import as_python
from tests.steps import through

Callback = Callable[[CallbackRequest], "Sequence[Any] | None"]
_CALLBACKS: dict[int, Callback] = {}
_numbers = itertools.count(1)


_gone: list[int] = []  # where the engine notes the numbers of callbacks that no node has any more


def ask(callback: Callback) -> ExternalCallback:
    """The engine's handle of a callback, which lives as long as it."""
    while _gone:
        _CALLBACKS.pop(_gone.pop(), None)
    number = next(_numbers)
    _CALLBACKS[number] = callback
    return ExternalCallback(number, _gone)


def run(passage: Any) -> None:
    """Run a backward to its end and answer what it asks for. Raises what a callback raises, after ending it."""
    answer: Sequence[Any] | None = None
    while True:
        with as_python():
            due = through(passage.advance(answer))
            if due is not None:
                passage.deliver()
        if due is None:
            return
        try:
            with grad_mode(passage.create_graph):
                answer = unwrap(_CALLBACKS[due.number](due))
        except BaseException:
            passage.steps.close()
            raise


def unpacked(asked: ExternalCallback) -> Any:
    """What the callback of a packed value answers."""
    return unwrap(_CALLBACKS[asked.number](CallbackRequest(CallbackKind.UNPACK, asked.number, [])))


class Handle:
    """A registered hook; `remove` removes it."""

    def __init__(self, asked: ExternalCallback) -> None:
        self._asked = asked

    def remove(self) -> None:
        self._asked.remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def on_tensor(tensor: Tensor, hook: Callable[[Any], Any]) -> Handle:
    """Call `hook(gradient)` with a tensor's gradient."""
    asked = ask(lambda due: _several(hook(wrap(due.gradients[0]))))
    with as_python():
        hook_tensor(tensor.inner, asked)
    return Handle(asked)


def on_leaf(leaf: Tensor, hook: Callable[[Any], Any]) -> Handle:
    """Call `hook(leaf)` after its gradient was accumulated."""
    asked = ask(lambda due: hook(wrap(due.leaf)))
    with as_python():
        hook_accumulated(leaf.inner, asked)
    return Handle(asked)


def on_node(node: Any, when: CallbackKind, hook: Callable[..., Any]) -> Handle:
    """Call a node's hook before its formulas with its outputs' gradients, or after with its inputs' too."""

    def callback(due: CallbackRequest) -> Sequence[Any] | None:
        given = tuple(wrap(due.gradients))
        return _several(hook(given) if when is CallbackKind.BEFORE else hook(given, tuple(wrap(due.others))))

    asked = ask(callback)
    hooks_of(node).add(when, asked)
    return Handle(asked)


def _several(made: Any) -> Sequence[Any] | None:
    return made if made is None or isinstance(made, (tuple, list)) else (made,)
