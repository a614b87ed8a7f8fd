"""Noted pass: the list of a backward, and how it runs over a graph with the nodes and edges of the noted one.

It takes what the nodes have saved and computes the gradients. Then it delivers them as the ordinary pass does. The
results must have the layout of the noted ones. Where anything is unusual, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from gradwire_engine.autograd.backward_pass import NEVER, cancelled
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.autograd.saved_tensor_hooks import Packed
from gradwire_engine.core.context import Context, Interrupt
from gradwire_engine.graph.graph import Meta, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.refusals import shares_elements
from gradwire_engine.op.repeated_source import is_same

#: A forward, the registers of its arguments, and that of its result.
Step = tuple[Callable[..., Any], tuple[int, ...], int]
#: The rest of a pass: yields in pauses, and returns the tensors that received a gradient, or None.
Later: TypeAlias = "Generator[None, None, list[Tensor] | None]"
Ran: TypeAlias = "list[Tensor] | Later | None"


class Unusual(Exception):
    """The ordinary pass must run."""


class Stopped(Exception):
    """The pass must stop, or pause where it cannot."""


def is_plain(gradient: Tensor | None) -> bool:
    """Whether a leaf has no gradient, or one of its own to which another can be added in place."""
    if gradient is None:
        return True
    if type(gradient) is not Tensor or gradient.node is not None or gradient.view is not None:
        return False
    if type(gradient.array) is not np.ndarray:
        return False
    flags = gradient.array.flags
    if type(gradient.storage) is not Storage or not flags.writeable or not gradient.array.size:
        return False
    return bool(flags.c_contiguous) or not shares_elements(gradient.array)  # the ordinary pass refuses the others


class NotedPass:
    """The list of a pass.

    registers: constants at their places. loads: register, node, place and description of saved values. values:
    register, node, place and value of saved ones that are no tensors, such as sizes. leaves: node and register of
    gradients, in the order of delivery. ends: large values that are not needed after each step. frees: nodes that drop
    their saved values. room: bytes that the pass takes. missed: passes in a row that it could not run; runs: those that
    it could. by_ops: whether it is made of ops where that is possible; of_ops: whether it is. Such a list holds for the
    same `values` alone. before: the one that it replaced, if any, which holds for others, too. root: shape and dtype of
    the result, which its node alone does not tell.
    """

    __slots__ = (
        "before", "by_ops", "ends", "frees", "leaves", "loads", "missed", "of_ops", "operations", "registers", "room",
        "root", "runs", "steps", "values",
    )  # fmt: skip

    def __init__(self, root: tuple[tuple[int, ...], Any]) -> None:
        self.root = root
        self.registers: list[Any] = []
        self.loads: list[tuple[int, int, int, Any]] = []
        self.values: list[tuple[int, int, int, Any]] = []
        self.steps: list[Step] = []
        self.ends: Sequence[tuple[int, ...]] = ()
        self.leaves: list[tuple[int, int]] = []
        self.frees: list[int] = []
        self.room, self.operations = 0, 0.0
        self.missed, self.runs, self.by_ops, self.of_ops = 0, 0, False, False
        self.before: NotedPass | None = None

    def starts_at(self, root: Tensor) -> bool:
        """Whether a result is described as that of the noted pass: its first gradient is then the same."""
        return self.root == (root.array.shape, root.array.dtype)

    def has_values(self, nodes: Sequence[Any]) -> bool:
        """Whether nodes have saved the same values as those of the noted pass, but for tensors and floats."""
        return all(
            (saved := nodes[number].saved[place]) is value or _is_same(saved, value)
            for _, number, place, value in self.values
        )

    def run(self, nodes: Sequence[Any], context: Context, retain: bool) -> Ran:
        """Run the pass over a graph with this key; None, with nothing changed, if the ordinary pass must run.

        Returns the rest of the pass where a pause is due.
        """
        account = context.account
        if (account.limit and account.bytes + self.room > account.limit) or self.operations > account.operations:
            return None
        return begin(self._in_steps(nodes, context.interrupt or NEVER, retain))

    def _in_steps(self, nodes: Sequence[Any], interrupt: Interrupt, retain: bool) -> Later:
        """The pass; yields in pauses, in which other commands of the session wait."""
        registers, waiting = self.registers.copy(), zip(self.steps, self.ends, strict=True)
        try:
            if not self._load(nodes, registers):
                return None
            while not is_computed(waiting, registers, interrupt):
                yield
                if interrupt.stopping():
                    raise Stopped
        except Stopped:
            raise cancelled() from None
        except Exception:  # noqa: BLE001 - the ordinary pass raises it again
            self.missed += 1
            return None
        self.missed, self.runs = 0, self.runs + 1
        return self.deliver(nodes, registers, retain)

    def _load(self, nodes: Sequence[Any], registers: list[Any]) -> bool:
        """Load what nodes have saved; whether it can be used as it is. Raises Unusual."""
        for register, number, place, description in self.loads:
            saved = nodes[number].saved[place]
            if type(saved) is Saved:
                leaf = saved.leaf
                holder = saved if leaf is None else leaf
                if saved.version != holder.storage.version or saved.tangents is not None or saved.storage.left:
                    return False
                array = holder.array
                if (array.shape, array.strides, array.dtype) != description:
                    raise Unusual  # such as a leaf that was given other data
                registers[register] = array
            elif type(saved) is float is description:
                registers[register] = saved
            else:
                registers[register] = value = loaded(saved, nodes[number])
                if described(value) != description:
                    raise Unusual
        for register, number, place, value in self.values:
            saved = nodes[number].saved[place]
            if saved is not value:
                if type(saved) is not type(value):
                    raise Unusual
                registers[register] = saved
        return True

    def deliver(self, nodes: Sequence[Any], registers: list[Any], retain: bool) -> list[Tensor] | None:
        """Give leaves the gradients of a pass that was computed. The registers are emptied."""
        found = [(nodes[number].variable, registers[register]) for number, register in self.leaves]
        if not all(_takes(leaf, gradient) for leaf, gradient in found):
            return None
        registers.clear()
        if not retain:
            for number in self.frees:
                nodes[number].free()
        return _deliver(found)


def is_computed(waiting: Iterator[Any], registers: list[Any], interrupt: Interrupt) -> bool:
    """Compute steps; False if a pause is due before the last is done. Raises Stopped, and what the steps raise."""
    at = registers.__getitem__
    for (forward, places, out), ended in waiting:
        registers[out] = forward(np, *map(at, places))
        for each in ended:
            registers[each] = None
        if monotonic() >= interrupt.at and pauses(interrupt):
            return False
    return True


def _is_same(one: Any, other: Any) -> bool:
    """Whether two saved values that are no tensors are alike."""
    if type(one) is Meta and type(other) is Meta:
        return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
    return is_same(one, other)


def pauses(interrupt: Interrupt) -> bool:
    """Whether a pass whose interrupt asks to be checked must pause. Raises Stopped if it must stop."""
    if interrupt.stopping():
        raise Stopped
    return interrupt.pauses()


def _takes(leaf: Tensor, gradient: Any) -> bool:
    """Whether a gradient can be delivered without an error."""
    held = leaf.grad
    if leaf.array.shape != gradient.shape:
        return False
    return held is None or (held.array.shape == gradient.shape and held.array.dtype == gradient.dtype)


def _deliver(found: list[tuple[Tensor, Any]]) -> list[Tensor]:
    """Give leaves their gradients, or add them, as BackwardPass.deliver; all allocations come first."""
    ready: list[tuple[Tensor, Any]] = []
    found.reverse()
    while found:
        leaf, gradient = found.pop()  # drops a reference, so that `own` can take the array over
        ready.append((leaf, own(gradient) if leaf.grad is None else gradient))
    for leaf, made in ready:
        held = leaf.grad
        if held is None:
            leaf.grad_state().grad = made
        else:
            held.array += made
            held.storage.changed()
    return [leaf for leaf, _ in ready]


def _after_pause(rest: Later) -> Later:
    """A generator that was advanced to its first pause, from there on."""
    yield
    return (yield from rest)


def begin(rest: Later) -> Ran:
    """Begin a pass: what it returns, or where it pauses, the rest of it."""
    try:
        next(rest)
    except StopIteration as done:
        received: list[Tensor] | None = done.value
        return received
    return _after_pause(rest)


def described(value: Any) -> Any:
    """All of a value that a list relies on: of arrays the layout, of others the type."""
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.shape, value.strides, value.dtype
    return tuple(map(described, value)) if type(value) is list else type(value)


def loaded(saved: Any, node: Node) -> Any:
    """A saved value that is no single tensor, as formulas get it. Raises Unusual, EngineError: VERSION_CONFLICT."""
    if type(saved) is list:
        return [_loaded_item(each, node) for each in saved]
    if isinstance(saved, (np.ndarray, Tensor, Packed)):
        raise Unusual
    return saved


def _loaded_item(saved: Any, node: Node) -> Any:
    if type(saved) is Saved and saved.tangents is None:
        return saved.value(node, "")
    if isinstance(saved, (Saved, np.ndarray, Tensor, Packed, list)):
        raise Unusual
    return saved


def same_bits(one: Any, other: Any) -> bool:
    """Whether two results have the same bits and layout."""
    return (
        type(one) is type(other)
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.strides == other.strides
        and one.tobytes() == other.tobytes()
    )
