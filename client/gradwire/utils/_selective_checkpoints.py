"""Selective checkpoints: a policy says which ops' results are kept; backward computes the others again.

Saved-tensor hooks take each value that a node saves, and keep none of it. When backward asks for one, the function is
called again. Its ops save the same values in the same order, and an op whose results are kept is not computed: what
its node saved are its arguments, its results, or values that were kept with them.
"""

from __future__ import annotations

import enum
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

from gradwire._base.errors import refuse
from gradwire._base.modes import enable_grad, no_grad
from gradwire._base.wiring import wired
from gradwire._dispatch.modes import MODES
from gradwire._functions import saved_tensor_hooks
from gradwire._functions.random import get_rng_state, set_rng_state
from gradwire._functions.saved_tensor_hooks import Pair, in_force
from gradwire._graph.hook_runner import CURRENT_PASS, IN_CHECKPOINT
from gradwire._proxy.handle import Handle, handles_in
from gradwire._tensor.batching import CUSTOM_OPS, DISPATCH, REGION, restored, without_casts
from gradwire._tensor.call import _call, _without_defaults
from gradwire._tensor.in_place import writes_in_place
from gradwire.autograd.function import Function
from gradwire.utils._aten_overloads import draws, overloads, to_keep

_OUTSIDE = (
    "create_selective_checkpoint_contexts: these contexts are not what `context_fn` of a checkpoint returned, so the "
    "policy is not called and backward computes everything again."
)
_MISMATCH = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend on global state that "
    "changed between forward and backward."
)
_AGAIN = (
    "Trying to backward an extra time. You are only allowed to backward once on any region computed under selective "
    "activation checkpoint."
)
_MUTATED = "Tensor cached during selective activation checkpoint has been mutated"
_MORE = (
    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward pass."
)
_FEWER = (
    "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation."
)
_UNLIKE = (
    "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the "
    "forward pass: {name} saved {before}, now it saves {now}."
)
_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a value that "
    "{name} saved in a checkpoint, after it was computed again"
)


class CheckpointPolicy(enum.Enum):
    """What a selective checkpoint does with an op's results (torch.utils.checkpoint.CheckpointPolicy)."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_KEEPING = (
    CheckpointPolicy.MUST_SAVE,
    CheckpointPolicy.PREFER_SAVE,
    CheckpointPolicy.MUST_CPU_OFFLOAD,
    CheckpointPolicy.PREFER_CPU_OFFLOAD,
)


class SelectiveCheckpointContext:
    """What a policy is told besides the op and its arguments: the op's result. `is_recompute` is always False."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


class Selection(AbstractContextManager[None]):
    """The context of a selective checkpoint's first call: its policy. `checkpoint` reads it instead of entering it."""

    def __init__(self, policy: Callable[..., Any], allows_mutation: bool) -> None:
        self.policy = policy
        self.allows_mutation = allows_mutation
        self.again: AbstractContextManager[None] = nullcontext()

    def __enter__(self) -> None:
        warnings.warn(_OUTSIDE, UserWarning, stacklevel=3)

    def __exit__(self, *exc: object) -> None:
        pass


class _StoppedEarly(Exception):
    """All that backward needs is computed again."""


class _Slot:
    """Stands for a value that a node of a region saved."""

    __slots__ = ("__weakref__", "key", "region")

    def __init__(self, region: _Region, key: _Key) -> None:
        self.region, self.key = region, key


class _Key(NamedTuple):
    """Which value: the op's name, the number of the call of this op, and the place among what it saved."""

    op: str
    number: int
    place: int


class _Kept(NamedTuple):
    """The results of an op that is not computed again.

    overload: what PyTorch would keep the results of. flags: for each tensor whether it required a gradient. sources:
    for each saved value where it comes from.
    """

    overload: Any
    results: Any
    versions: list[int]
    flags: list[bool]
    sources: list[tuple[str, Any]]


_CONSUMED = object()
_ACTIVE: ContextVar[_Region | None] = ContextVar("gradwire_selective_checkpoint", default=None)


class _Run:
    """One call of a region's function: how far it has come.

    again: whether it computes again. stops: whether it ends once all that was saved is there.
    """

    def __init__(self, again: bool, stops: bool) -> None:
        self.again, self.stops = again, stops
        self.counts: Counter[str] = Counter()
        self.places: Counter[tuple[str, int]] = Counter()
        self.calling = ("", 0)
        self.shown: list[tuple[Any, Any]] = []  # what the present call saved: values, and the tensors they are
        self.given = 0

    def next_key(self) -> _Key:
        """The key of the next value that the present call saves."""
        place = self.places[self.calling]
        self.places[self.calling] += 1
        return _Key(*self.calling, place)


class _Entry(NamedTuple):
    """A result in the storage that a program reads."""

    val: Any


class _RegionMode:
    """What a program is shown as the innermost dispatch mode, in a call of a region's function."""

    def __init__(self, region: _Region) -> None:
        self._region = region

    @property
    def storage(self) -> dict[Any, dict[int, _Entry]]:
        """By overload, and number of the op's call, the results that are kept and not used yet."""
        found: dict[Any, dict[int, _Entry]] = {}
        for (_, number), kept in self._region.calls.items():
            if isinstance(kept, _Kept):
                found.setdefault(kept.overload, {})[number] = _Entry(kept.results)
        return found


class _CachingTorchDispatchMode(_RegionMode):
    """The first call, which keeps results (torch.utils.checkpoint)."""


class _CachedTorchDispatchMode(_RegionMode):
    """A call in backward, which takes results that are kept (torch.utils.checkpoint)."""


def with_region(active: Sequence[Any]) -> list[Any]:
    """The active modes with that of a region, in which a program's function runs."""
    region = _ACTIVE.get()
    if region is None:
        return list(active)
    mode = (_CachedTorchDispatchMode if region._run.again else _CachingTorchDispatchMode)(region)
    return [*active[: region.depth], mode, *active[region.depth :]]


class _Region:
    """One call of `checkpoint` with a policy: what its ops saved, and what was computed again of it."""

    def __init__(
        self,
        function: Callable[[], Any],
        selection: Selection,
        check: Callable[[], None],
        early_stop: bool,
        keeps_random: bool,
    ) -> None:
        self.function, self.selection, self.check = function, selection, check
        self.early_stop, self.keeps_random = early_stop, keeps_random
        #: Per saved value: its slot, as long as the graph has it, and its kind.
        self.slots: dict[_Key, tuple[weakref.ref[_Slot], Any]] = {}
        #: Per call of an op what is kept: None for an op that is computed again.
        self.calls: dict[tuple[str, int], Any] = {}
        #: Values that were computed again, with their versions.
        self.values: dict[_Key, tuple[Any, int]] = {}
        self.casts = REGION.get()
        self.random: Any = None
        #: How many modes are active around the call that runs.
        self.depth = 0
        self._run = _Run(again=False, stops=False)
        self._is_first = True
        self._pass: weakref.ref[Any] | None = None

    def first(self) -> Any:
        """Call the function, and keep what the policy says."""
        self.random = get_rng_state() if self.keeps_random else None
        try:
            with without_casts():
                return self._call_function()
        finally:
            self._is_first = False

    def _call_function(self) -> Any:
        with in_force(Pair(self._pack, self._unpack, named=True)):
            active, inside = _ACTIVE.set(self), IN_CHECKPOINT.set(True)
            outer, self.depth = self.depth, len(MODES.get())
            try:
                return self.function()
            finally:
                self.depth = outer
                IN_CHECKPOINT.reset(inside)
                _ACTIVE.reset(active)

    def _compute_again(self) -> None:
        """Call the function again, until all values are there that nodes saved.

        A backward inside of the first call comes here before that call has ended.
        """
        self.check()
        self.values.clear()
        outer = get_rng_state() if self.keeps_random else None
        if self.random is not None:
            set_rng_state(self.random)
        before, self._run = self._run, _Run(again=True, stops=self.early_stop or self._is_first)
        try:
            with enable_grad(), restored(self.casts):
                self._call_function()
        except _StoppedEarly:
            pass
        finally:
            self._run = before
            if outer is not None:
                set_rng_state(outer)

    def _pack(self, value: Any, known: Any) -> Any:
        """Take a value that a node saved: in the first call for nothing, in the second for backward."""
        key = self._run.next_key()
        if self._run.again:
            self._give(key, value)
            return value  # for a backward inside of the function
        slot = _Slot(self, key)
        self.slots[key] = weakref.ref(slot), _kind(value)
        self._run.shown.append((value, known))
        return slot

    def _give(self, key: _Key, value: Any) -> None:
        if key not in self.slots:
            raise refuse(_MORE)
        slot, kind = self.slots[key]
        if _kind(value) != kind:
            raise refuse(_UNLIKE.format(name=key.op, before=kind, now=_kind(value)))
        if slot() is not None:
            self.values[key] = value, value._version
        self._run.given += 1
        if self._run.stops and self._run.given == len(self.slots):
            raise _StoppedEarly

    def _unpack(self, packed: Any) -> Any:
        return packed.region.value(packed.key) if isinstance(packed, _Slot) else packed

    def value(self, key: _Key) -> Any:
        """The value, computed again by the first that backward asks for. Each is given once."""
        this = CURRENT_PASS.get()
        if self._pass is None or self._pass() is not this:
            self.values.clear()
        if key not in self.values:
            self._compute_again()
            self._pass = None if this is None else weakref.ref(this)
        if key not in self.values:
            raise refuse(_FEWER)
        value, version = self.values.pop(key)
        if value._version != version:
            raise refuse(_CHANGED.format(name=key.op))
        return value

    def call(self, op: str, names: Callable[[Any], Sequence[Any]], args: Any, kwargs: Any, compute: Any) -> Any:
        """Call an op, or take its results from the first call. `names` are the overloads that the policy sees."""
        run = self._run
        calling = op, run.counts[op]
        run.counts[op] += 1
        if run.again:
            if calling not in self.calls:
                raise refuse(f"{op} encountered during backward but not found in storage. {_MISMATCH}")
            kept = self.calls[calling]
            if kept is _CONSUMED:
                raise refuse(_AGAIN)
            if kept is not None:
                self.calls[calling] = _CONSUMED
                return self._reuse(kept, calling, args, kwargs)
        outer, run.calling, run.shown = run.calling, calling, []
        try:
            made = compute()
        finally:
            run.calling = outer
        shown, run.shown = run.shown, []
        if not run.again:
            overload = self._asks(names(made), made, args, kwargs)
            keeps = overload is not None and _may_keep(op, made, args)
            self.calls[calling] = _kept(overload, made, args, kwargs, shown) if keeps else None
        return made

    def _asks(self, overloads: Sequence[Any], made: Any, args: Any, kwargs: Any) -> Any:
        """Ask the policy about each op that PyTorch would call. The one that computes, if its results are kept."""
        asked: dict[str, Any] = {}
        named = [str(each).partition(".")[2] for each in overloads]
        with no_grad(), in_force(None):
            for name, each in zip(named, overloads, strict=True):
                answer = self.selection.policy(
                    SelectiveCheckpointContext(is_recompute=False, op_output=made), each, *args, **dict(kwargs)
                )
                asked[name] = each if answer in _KEEPING or answer is True else None
        return asked.get(to_keep(named) or "")

    def _reuse(self, kept: _Kept, calling: tuple[str, int], args: Any, kwargs: Any) -> Any:
        """The kept results, with a history that leads to the arguments and refuses to be differentiated."""
        found: list[Any] = list(handles_in(kept.results))
        if not self.selection.allows_mutation and [each._version for each in found] != kept.versions:
            raise refuse(_MUTATED)
        given = list(handles_in((args, kwargs)))
        outer, self._run.calling = self._run.calling, calling
        try:
            for kind, source in kept.sources:
                value = source if kind == "kept" else (found if kind == "result" else given)[source].detach()
                self._give(self._run.next_key(), value)
        finally:
            self._run.calling = outer
        with in_force(None):
            behind = [each for each in given if each._spec.requires_grad]
            differ = iter(kept.flags)
            return _mapped(lambda each: _Reused.apply(each, *behind) if next(differ) else each.clone(), kept.results)


class _Reused(Function):
    """A result that was not computed again."""

    @staticmethod
    def forward(ctx: Any, result: Any, *behind: Any) -> Any:
        return result.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise refuse(
            "a selective checkpoint keeps the result of an op that is differentiated inside of it; let its policy "
            "return MUST_RECOMPUTE for the op"
        )


def run(
    function: Callable[[], Any],
    selection: Selection,
    check: Callable[[], None],
    early_stop: bool,
    keeps_random: bool,
) -> Any:
    """Call the function as a checkpoint of that policy. `check` raises what forbids to call it again."""
    return _Region(function, selection, check, early_stop, keeps_random).first()


def _may_keep(op: str, made: Any, args: Any) -> bool:
    """Whether results may be kept: not those that an op changed, or drew, or that are its arguments."""
    if writes_in_place(op) or draws(op, args):
        return False
    given = {id(each) for each in handles_in(args)}
    return not any(id(each) in given or each.__dict__.get("_view") is not None for each in handles_in(made))


def _kept(overload: Any, made: Any, args: Any, kwargs: Any, shown: Sequence[tuple[Any, Any]]) -> _Kept:
    with no_grad():
        results = _mapped(lambda each: each.detach(), made)
    found: list[Any] = list(handles_in(results))
    given, own = [id(each) for each in handles_in((args, kwargs))], [id(each) for each in handles_in(made)]
    sources: list[tuple[str, Any]] = []
    for value, known in shown:
        if id(known) in own:
            sources.append(("result", own.index(id(known))))
        elif id(known) in given:
            sources.append(("argument", given.index(id(known))))
        else:
            sources.append(("kept", value))
    flags = [bool(each._spec.requires_grad) for each in handles_in(made)]
    return _Kept(overload, results, [each._version for each in found], flags, sources)


def _kind(value: Any) -> tuple[Any, ...]:
    spec = value._spec
    return tuple(spec.shape), spec.dtype, spec.device_name


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A value with other tensors in it."""
    if isinstance(value, Handle):
        return change(value)
    if not isinstance(value, (tuple, list)):
        return value
    made = [_mapped(change, each) for each in value]
    return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Call an op of a region; NotImplemented outside, and for what an op calls itself."""
    region = _ACTIVE.get()
    if region is None or op == "detach":  # there are more of them in one of the two calls
        return NotImplemented
    token = _ACTIVE.set(None)
    try:
        shown, named = _without_defaults(op, args, kwargs)
        packets = wired("ops").aten

        def names(made: Any) -> list[Any]:
            unchanged = any(made is each for each in args) and not writes_in_place(op)
            found = () if unchanged else overloads(op, args, made)
            return [getattr(getattr(packets, name), form) for name, _, form in (each.partition(".") for each in found)]

        return region.call(op, names, shown, named, lambda: _call(op, args, kwargs, result))
    finally:
        _ACTIVE.reset(token)


def _custom_op(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Callable[[], Any]) -> Any:
    """Call an op of torch.library of a region; NotImplemented outside."""
    region = _ACTIVE.get()
    if region is None:
        return NotImplemented
    token = _ACTIVE.set(None)
    try:
        return region.call(str(overload), lambda made: [overload], args, tuple(kwargs.items()), compute)
    finally:
        _ACTIVE.reset(token)


DISPATCH.insert(DISPATCH.index(saved_tensor_hooks._dispatch), _dispatch)
CUSTOM_OPS.append(_custom_op)
