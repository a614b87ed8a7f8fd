"""Repeats: the repeated calls of one prepared op, by the descriptions of its operands (engine: op/repeated.py).

Layers of different sizes share a prepared op. A loop calls them in the same order each time, so each description
remembers which one came next, and a call tries that one first. Sessions share what makes the repeated calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from gradwire_engine import Context, Op, Tensor
from gradwire_engine.op.repeated import Listing, Recipe, listing_of, may_repeat, recipe_of_call, recipe_of_change
from gradwire_engine.op.repeated_source import Repeated, is_same
from gradwire_server.session.arguments import NamedOp

#: Calls with a description before the one that makes what repeats them. After a failure the number doubles.
_FIRST, _MOST_WAITING = 2, 1 << 12
_MOST = 16  # descriptions of one op that have a repeated call
_MOST_KNOWN = 64  # descriptions of one op
_MOST_OF_SESSION = 1 << 13  # descriptions of all ops of a session, of about 5 KB each
_MOST_SHARED = 1 << 12  # recipes, and arguments of prepared ops, of all sessions
#: What repeated calls ask of an operand: shape, strides, dtype, and whether it requires grad.
Description: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], Any, bool]"


_lock = Lock()
#: What makes repeated calls, by op, arguments, settings and descriptions; the oldest are forgotten.
_recipes: dict[Hashable, Recipe] = {}
#: How often calls with a description could not be repeated.
_failures: dict[Hashable, int] = {}
#: Arguments that a prepared op fixes, by op and text. The same objects are compared faster.
_fixed: dict[Hashable, list[Any]] = {}


class Places(NamedTuple):
    """Where a call has what varies: tensors, numbers, lists with their lengths, indices with items and their holes."""

    tensors: Sequence[int] = ()
    numbers: Sequence[int] = ()
    lists: Sequence[tuple[int, int]] = ()
    indices: Sequence[tuple[int, tuple[Any, ...], Sequence[int]]] = ()


def shared_values(call: NamedOp, values: list[Any], places: Places) -> tuple[Hashable, list[Any]]:
    """What an op's fixed arguments are known by, and these, as the first op with equal ones has them."""
    key = (call.op, call.in_place, repr((values, places)))
    return key, values if any(type(each) is list for each in values) else _keep(_fixed, key, values)


def _keep(known: dict[Hashable, Any], key: Hashable, value: Any) -> Any:
    """The value that is known by a key, which may be this one from now on."""
    with _lock:
        found = known.setdefault(key, value)
        _drop_oldest(known)
    return found


def _drop_oldest(known: dict[Hashable, Any]) -> None:
    if len(known) > _MOST_SHARED:
        del known[next(iter(known))]


def _note_failure(key: Hashable) -> None:
    with _lock:
        _failures[key] = min(_failures.get(key, 0) + 2, 16)
        _drop_oldest(_failures)


def describe(operand: Tensor) -> Description:
    """The description of an operand."""
    array = operand.array
    return array.shape, array.strides, array.dtype, operand.requires_grad


def described_gradient(leaf: Description) -> Description:
    """The description of a leaf's gradient."""
    shape, _, dtype, _ = leaf
    strides, step = [], dtype.itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return shape, tuple(reversed(strides)), dtype, False


def _nothing(arguments: tuple[Any, ...], context: Context) -> None:
    """The call of a description that has no repeated call."""


class Repeat:
    """A description of operands. call: repeats calls with it. following: the description that came next."""

    __slots__ = ("call", "following", "pause", "waiting")

    def __init__(self) -> None:
        self.call: Repeated = _nothing
        self.following = self
        self.waiting, self.pause = _FIRST, 1


class RepeatRoom:
    """Room for the descriptions of a session's ops. Where it is used up, the op that first took some loses its own.

    is_open: whether calls may come again, so that what repeats them is made.
    """

    __slots__ = ("_taken", "_used", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._used = 0
        self._taken: dict[Repeats, int] = {}

    def take(self, repeats: Repeats) -> None:
        """Take room for one description of an op."""
        while self._used >= _MOST_OF_SESSION:
            next(iter(self._taken)).clear()
        self._used += 1
        self._taken[repeats] = self._taken.get(repeats, 0) + 1

    def give_back(self, repeats: Repeats, count: int) -> None:
        """Give the room of an op's descriptions back."""
        if not count:
            return
        self._used -= count
        left = self._taken.pop(repeats) - count
        if left:
            self._taken[repeats] = left


class Repeats:
    """The descriptions with which an op was called.

    last: of the last call that was repeated. made: how many have a repeated call.
    """

    __slots__ = (
        "_call",
        "_context",
        "_known",
        "_may_be_one",
        "_numbers",
        "_places",
        "_room",
        "_settings",
        "_tensors",
        "last",
        "made",
    )

    def __init__(self, call: NamedOp, context: Context, fixed: Hashable, places: Places, room: RepeatRoom) -> None:
        """fixed: stands for the op and its fixed arguments."""
        self._room = room
        self._call, self._context, self._tensors = call, context, places.tensors
        self._may_be_one = type(call.op) is not Op and len(places.tensors) > 1
        #: Places of lists and indices, if there are any.
        self._places = places if places.lists or places.indices else None
        self._settings = (fixed, context.grad_enabled, context.inference, context.default_dtype)
        # A call of one op that promotes takes any float; others take the floats for which they were made.
        self._numbers = () if getattr(call.op, "promotes", None) else tuple(places.numbers)
        self._known: dict[Hashable, Repeat] = {}
        self.made = 0
        self.last = Repeat()

    def apply(self, arguments: tuple[Any, ...]) -> Any:
        """Apply the op, in its context, to arguments that `last.following` does not take. Raises EngineError."""
        if not (self._room.is_open or self._known or _recipes):
            return self._call.apply(arguments)
        key = self._key(arguments)
        known = self._known.get(key) or self._add(key)
        if known.call is not _nothing:
            made = None if known is self.last.following else known.call(arguments, self._context)
            if made is None:
                return self._call.apply(arguments)
            self._passed(known)
            return made
        if known.waiting or not self._room.is_open:
            known.waiting -= self._room.is_open
            return self._call.apply(arguments)
        return self._make(key, known, arguments)

    def listing_for(self, operands: Sequence[Description], numbers: Sequence[float]) -> Listing | None:
        """What the repeated call of such operands and numbers computes; None if there is none or it is not known."""
        known = self._known.get((*(numbers if self._numbers else ()), *operands))
        found = None if known is None else listing_of(known.call)
        if found is not None:  # the key of -0.0 is that of 0.0
            pairs = [(found.operands[place].value, each) for place, each in zip(self._numbers, numbers, strict=False)]
            if not all(is_same(*pair) for pair in pairs):
                return None
        return found

    def _key(self, arguments: tuple[Any, ...]) -> Hashable:
        """What decides whether a repeated call takes the arguments, but for rare states."""
        found: list[Any] = [arguments[place] for place in self._numbers]
        for place in self._tensors:
            each: Tensor = arguments[place]
            array = each.array
            found.append((array.shape, array.strides, array.dtype, each.requires_grad))
        if self._places is not None:
            for place, _ in self._places.lists:
                found += map(describe, arguments[place])
            for place, _, holes in self._places.indices:
                found += [describe(arguments[place][hole]) for hole in holes]
        if self._may_be_one:
            tensors = [id(arguments[place]) for place in self._tensors]
            if len(set(tensors)) < len(tensors):  # which of them the parts are given is part of the recipe
                found.append(tuple(map(tensors.index, tensors)))
        return tuple(found)

    def _add(self, key: Hashable) -> Repeat:
        """A new description, with a repeated call if another session has made what makes it."""
        if len(self._known) >= _MOST_KNOWN:
            self._forget(lambda each: each.call is not _nothing)
        self._room.take(self)
        made = self._known[key] = Repeat()
        recipe = _recipes.get((self._settings, key)) if may_repeat() else None
        if recipe is not None:
            self._use(made, recipe)
        elif failures := _failures.get((self._settings, key), 0):  # one look-up: another thread may forget it
            made.waiting = made.pause = min(_FIRST << failures, _MOST_WAITING)
        return made

    def clear(self) -> None:
        """Forget all descriptions."""
        self._forget(lambda each: False)
        self.made, self.last = 0, Repeat()

    def _forget(self, kept: Callable[[Repeat], bool]) -> None:
        before = len(self._known)
        self._known = {key: each for key, each in self._known.items() if kept(each)}
        self._room.give_back(self, before - len(self._known))

    def _make(self, key: Hashable, known: Repeat, arguments: tuple[Any, ...]) -> Any:
        """Apply the op and make what repeats the call."""
        known.waiting = known.pause = min(2 * known.pause, _MOST_WAITING)
        if self._call.in_place:
            recipe = recipe_of_change(self._call.op, arguments, self._context)
            made = self._call.apply(arguments)
        else:
            made, recipe = recipe_of_call(self._call.op, arguments, self._context)
        if recipe is not None:
            if recipe.is_small:
                _keep(_recipes, (self._settings, key), recipe)
            self._use(known, recipe)
            self._passed(known)
        else:
            _note_failure((self._settings, key))
        return made

    def _use(self, known: Repeat, recipe: Recipe) -> None:
        if self.made >= _MOST:
            self._forget(lambda each: each is known or each.call is _nothing)
            self.made, self.last = 0, Repeat()
        self.made += 1
        known.call = recipe.repeated(self._context)

    def _passed(self, known: Repeat) -> None:
        self.last.following = known
        self.last = known
