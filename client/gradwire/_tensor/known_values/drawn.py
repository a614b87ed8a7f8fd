"""Drawn: values of small random tensors, which the client draws as the server does.

`FollowedDraws` is a copy of the session's generator on the CPU, MT19937. A program that reads drawn values gets the
generator's state together with such a read. From then on each op that draws takes as many words from the copy as on
the server. An op whose number of words is unknown, and any command that may draw, ends that: `DrawOrder.calls`
counts both, also those that did not end. Draws after an op that the server may refuse for its values are in doubt until
a later read ends. The words are used as in `gradwire_engine/ops/random/pytorch_sampler.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire._base import dtypes
from gradwire._tensor.known_values.known import Known
from gradwire.v1 import commands_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle
    from gradwire._proxy.memo import Spec
    from gradwire._proxy.protocols import SessionProtocol

_SIZE = 624  # words of the generator's state
_HEAD = struct.Struct("<QiiQ")  # seed, words left plus one, whether seeded, the next word's place
_TAIL = struct.Struct("<dddi4xf?3x")  # x, kept normal number, rho, whether one is kept; float32: number, whether
_STATE_BYTES = _HEAD.size + 8 * _SIZE + _TAIL.size
_MOST_WORDS = 4096  # that are taken for one op
_MOST_VALUES = 1024  # that are kept of one tensor
_NARROW = 1 << 28  # spans of integers below take one word, others two
_BLOCK = 16  # normal numbers from here on are drawn in blocks
_LEAST_READS, _MOST_READS = 2, 1 << 10  # of drawn values before the state is asked for

#: From a tensor's words to its values.
_Finish = Callable[[Any], Any]


class FollowedDraws:
    """A copy of the session's generator, as long as all draws are followed."""

    def __init__(self) -> None:
        self._bits: Any = None
        self._kept = False  # whether the second of two normal numbers is kept for the next one
        self._followed = -1  # the session's draws through the last one followed
        self._reads = 0
        self._needed = _LEAST_READS
        self._found = 0  # values found since the state was copied
        self._doubt: _Doubt | None = None

    def begin(self, session: SessionProtocol) -> Callable[[], bytes] | None:
        """Ask for the state, if enough drawn values were read without it; return the function that waits for it."""
        self._reads += 1
        if self._reads < self._needed or session.draws.apart or session.recorder is not None:
            return None
        # A copy that saved fewer reads than it cost is asked for less often.
        self._needed = min(2 * self._needed, _MOST_READS) if self._found < self._needed else _LEAST_READS
        self._reads = self._found = 0
        answer = session.issue(service_pb2.Command(manual_seed=commands_pb2.ManualSeedRequest()))
        self._followed = session.draws.calls
        self._doubt = None
        return lambda: answer().manual_seed.state

    def copy(self, state: bytes) -> None:
        """Continue from a state of the server's. That of another generator is left alone."""
        if not _STATE_BYTES <= len(state) <= _STATE_BYTES + 8:  # more follow where a GPU drew
            self._followed = -1
            return
        _, left, _, _ = _HEAD.unpack_from(state)
        key = np.frombuffer(state, "<u8", _SIZE, _HEAD.size).astype(np.uint32)
        if self._bits is None:
            self._bits = np.random.MT19937(0)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _SIZE + 1 - left}}
        self._kept = bool(_TAIL.unpack_from(state, _STATE_BYTES - _TAIL.size)[3])

    def follow(self, session: SessionProtocol, number: int, op: str, args: tuple[Any, ...], made: Any) -> None:
        """Take the words of an op that was sent as the session's draw of this number, and note the values."""
        taken = _TAKEN.get(op)
        found = None
        if taken is not None and self._followed == number - 1 and session.draws.calls == number:
            found = taken(self, args, made._spec)
        if found is not None:
            self._followed = number
            count, finish = found
            if op in _REFUSED_FOR_VALUES and self._doubt is None:
                self._doubt = _Doubt()
            if finish is None or math.prod(made._spec.shape) > _MOST_VALUES:
                self._bits.random_raw(count, output=False)
            else:
                made._known = Drawn(made, (self, self._bits.random_raw(count), finish), self._doubt)
        elif op in _VALUED:
            made._known = Drawn(made, None)

    def normal_words(self, count: int, wide: bool) -> int:
        """How many words so many normal numbers take."""
        if count >= _BLOCK:
            return (2 if wide else 1) * (count + (_BLOCK if count % _BLOCK else 0))
        if count and self._kept:
            self._kept = False
            count -= 1
        if count % 2:
            self._kept = True
        return 4 * ((count + 1) // 2)

    def settle(self, session: SessionProtocol) -> None:
        """Note that a read has ended: no draw before it was refused, or `DrawOrder.calls` has counted the refusal."""
        if self._doubt is not None and self._followed == session.draws.calls:
            self._doubt.settled = True
            self._doubt = None

    def count_found(self) -> None:
        """Note that a value was found without the server."""
        self._found += 1


class _Doubt:
    """Whether the draws that values depend on were done."""

    __slots__ = ("settled",)

    def __init__(self) -> None:
        self.settled = False


class Drawn(Known):
    """Values of a random tensor."""

    __slots__ = ("_doubt", "_source", "_values")

    def __init__(
        self, tensor: Handle, source: tuple[FollowedDraws, Any, _Finish] | None, doubt: _Doubt | None = None
    ) -> None:
        super().__init__(tensor, drawn=True)
        self._source = source
        self._doubt = doubt
        self._values: list[Any] | None = None

    def values(self) -> list[Any] | None:
        """All values in order; None if only the server knows them."""
        if self._doubt is not None and not self._doubt.settled:
            return None
        if self._values is None and self._source is not None:
            draws, words, finish = self._source
            self._values = finish(words).tolist()
            draws.count_found()
        return self._values

    def value(self) -> Any:
        """The only value."""
        values = self.values()
        return values[0] if values is not None and len(values) == 1 else None


def note_draw(session: SessionProtocol, number: int, op: str, args: tuple[Any, ...], made: Any) -> None:
    """Note that an op that may draw has made a tensor. number: of `DrawOrder.begin`, before it was sent."""
    if session.recorder is not None or session.segments is not None or session.every_call_waits:
        return
    draws = session.draws.followed
    if draws is None:
        draws = session.draws.followed = FollowedDraws()
    if not session.draws.apart:
        draws.follow(session, number, op, args, made)


def drawn_values(source: Handle) -> list[Any] | None:
    """The values of a tensor that the client has drawn, in order; None of others."""
    known = getattr(source, "_known", None)
    if type(known) is not Drawn or not known.holds(source):
        return None
    session = source._session
    if session.recorder is not None or session.others_may_write:
        return None
    values = known.values()
    if values is not None:
        session.raise_if_unusable()
    return values


# How many words an op takes, and what becomes of them: None of ops whose words are not known, no function if the
# values are not.
_Taken = tuple[int, _Finish | None] | None


def _is_plain(spec: Spec) -> bool:
    return spec.device_name == "cpu" and not spec.strides and not spec.tangents


def _limited(count: int, finish: _Finish | None) -> _Taken:
    return (count, finish) if count <= _MOST_WORDS else None


def _uniform(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    count = math.prod(spec.shape)
    if not _is_plain(spec) or not _are_plain(args):
        return None
    if spec.dtype is dtypes.float64:
        return _limited(2 * count, _unit53)
    return _limited(count, _unit24) if spec.dtype is dtypes.float32 else None


def _are_plain(args: tuple[Any, ...]) -> bool:
    """Whether a tensor that gives the order of memory is contiguous."""
    return all(_is_plain(each._spec) for each in args if hasattr(each, "_spec"))


def _unit24(words: Any) -> Any:
    return (words & np.uint64((1 << 24) - 1)).astype(np.float64) * 2.0**-24


def _pairs(words: Any) -> Any:
    return (words[0::2] << np.uint64(32)) | words[1::2]


def _unit53(words: Any) -> Any:
    return (_pairs(words) & np.uint64((1 << 53) - 1)).astype(np.float64) * 2.0**-53


def _integers(count: int, low: int, high: int, wide: bool | None = None) -> _Taken:
    span = high - low
    if not 0 < span <= 1 << 63 or not -(1 << 62) < low < 1 << 62:
        return None
    if span >= _NARROW if wide is None else wide:
        return _limited(2 * count, lambda words: (_pairs(words) % np.uint64(span)).astype(np.int64) + low)
    return _limited(count, lambda words: (words % np.uint64(span)).astype(np.int64) + low)


def _randint(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    low, high = args[-3:-1] if not hasattr(args[0], "_spec") else args[1:3]
    if type(low) is not int or type(high) is not int or spec.dtype is not dtypes.int64:
        return None
    return _integers(math.prod(spec.shape), low, high) if _is_plain(spec) and _are_plain(args) else None


def _random(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    """random_(): all whole numbers that are not negative; random_(from, to)."""
    low, high = (*args[1:], 0, None)[:2] if len(args) < 3 else args[1:3]
    if spec.dtype is not dtypes.int64 or not _is_plain(spec) or type(low) is not int:
        return None
    count = math.prod(spec.shape)
    if high is None:
        return _integers(count, 0, 1 << 63, True) if not low else None
    return _integers(count, low, high) if type(high) is int else None


def _permutation(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    size = math.prod(spec.shape)
    if spec.dtype is not dtypes.int64 or not _is_plain(spec):
        return None
    return _limited(max(size - 1, 0), lambda words: _shuffled(size, words))


def _shuffled(size: int, words: Any) -> Any:
    """The numbers below `size` after exchanges of each place with a later one, or itself, that a word chooses."""
    order = list(range(size))
    chosen = words % np.arange(size, size - len(words), -1, dtype=np.uint64)
    for step, offset in enumerate(chosen.tolist()):
        if offset:
            order[step], order[step + offset] = order[step + offset], order[step]
    return np.array(order, np.int64)


def _normal(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    """Words of normal numbers; their values depend on the machine's logarithm."""
    count = math.prod(spec.shape)
    if spec.dtype not in (dtypes.float32, dtypes.float64) or not _is_plain(spec) or not _are_plain(args):
        return None
    if 2 * (count + _BLOCK) > _MOST_WORDS:
        return None
    return draws.normal_words(count, spec.dtype is dtypes.float64), None


def _multinomial(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    """Words of an index drawn from each row. The index itself depends on the weights."""
    weights = args[0]._spec
    single = len(args) > 1 and args[1] == 1
    return _limited(2 * math.prod(weights.shape), None) if single and weights.device_name == "cpu" else None


def _dropout(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    """No words where nothing is dropped, as in evaluation."""
    idle = (len(args) > 1 and args[1] == 0) or (len(args) > 2 and args[2] is False)
    return (0, None) if idle else None


def _bernoulli(draws: FollowedDraws, args: tuple[Any, ...], spec: Spec) -> _Taken:
    """Words of ones and zeros, by a tensor of probabilities."""
    chances = args[0]._spec
    if (len(args) > 1 and args[1] is not None) or chances.device_name != "cpu":
        return None
    return _limited((2 if chances.dtype is dtypes.float64 else 1) * math.prod(chances.shape), None)


_TAKEN: dict[str, Callable[[FollowedDraws, tuple[Any, ...], Spec], _Taken]] = {
    "bernoulli": _bernoulli,
    "dropout": _dropout,
    "multinomial": _multinomial,
    "rand": _uniform,
    "rand_like": _uniform,
    "randint": _randint,
    "randint_like": _randint,
    "randn": _normal,
    "randn_like": _normal,
    "random_": _random,
    "randperm": _permutation,
}
# Those that the server may refuse for what the tensor of chances holds: then they take no words.
_REFUSED_FOR_VALUES = frozenset({"bernoulli", "multinomial"})
# Those whose values the client finds out.
_VALUED = frozenset({"rand", "rand_like", "randint", "randint_like", "random_", "randperm"})
