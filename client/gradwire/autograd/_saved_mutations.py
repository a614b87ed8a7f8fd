"""Saved values that may be changed in place (torch.autograd.graph.allow_mutation_on_saved_tensors).

Saved-tensor hooks keep each saved value as it is. An in-place op on its memory makes a copy of it first. A change that
comes by another way is seen by the value's version, and refused when backward needs the value.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._functions import saved_tensor_hooks
from gradwire._functions.saved_tensor_hooks import Pair, check_enabled, in_force
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import WRITING_OPS
from gradwire._tensor.batching import DISPATCH
from gradwire._tensor.in_place import writes_in_place
from gradwire._tensor.storages import memory_of

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_OUTSIDE = (
    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' contextin which the graph was originally "
    "recorded."
)
_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation that "
    "allow_mutation_on_saved_tensors does not see, such as that of another thread"
)


class _Saved:
    """Stands for one version of a value in graphs. It holds the value's memory, so that its id stays its own."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, memory: Any = None) -> None:
        self.memory = memory


class _Copies(MutableMapping[_Saved, Any]):
    """The copies by what stands for them in graphs. They go with the graphs, of which the server tells first."""

    def __init__(self) -> None:
        self._copies: weakref.WeakKeyDictionary[_Saved, Any] = weakref.WeakKeyDictionary()
        self.session: SessionProtocol | None = None

    def __getitem__(self, key: _Saved) -> Any:
        return self._copies[key]

    def __setitem__(self, key: _Saved, copy: Any) -> None:
        self._copies[key] = copy

    def __delitem__(self, key: _Saved) -> None:
        del self._copies[key]

    def __contains__(self, key: object) -> bool:
        return key in self._copies

    def __iter__(self) -> Iterator[_Saved]:
        self._settle()
        return iter(list(self._copies))

    def __len__(self) -> int:
        self._settle()
        return len(self._copies)

    def _settle(self) -> None:
        for _ in range(3):  # the server says in an answer what went with the batch before
            if self.session is not None:
                self.session.sync()


class AllowMutationOnSavedContext:
    """The values that graphs saved in one `allow_mutation_on_saved_tensors`, and the copies of those that changed."""

    def __init__(self) -> None:
        self.cloned = _Copies()
        #: Values as they were saved, with their versions.
        self.original: weakref.WeakKeyDictionary[_Saved, tuple[Any, int]] = weakref.WeakKeyDictionary()
        #: What stands for a value of that layout, memory and version.
        self.tid_to_weakhandle: weakref.WeakValueDictionary[Any, _Saved] = weakref.WeakValueDictionary()
        self._of_memory: weakref.WeakKeyDictionary[Any, weakref.WeakSet[_Saved]] = weakref.WeakKeyDictionary()

    def clear(self) -> None:
        """Drop the values: backward through the graphs is refused from then on."""
        for held in (self.cloned, self.original, self.tid_to_weakhandle, self._of_memory):
            held.clear()

    def pack(self, value: Any, known: Any) -> _Saved:
        """Keep a saved value as it is. One that is no tensor of the program's is copied: it may be a part of one."""
        self.cloned.session = value._session
        if known is None:
            saved, copy = _Saved(), value.clone()
            self.original[saved] = copy, copy._version
            return saved
        memory, version = memory_of(known), value._version
        form = known._spec
        key = id(memory), tuple(form.shape), tuple(form.strides), known.storage_offset(), form.dtype, version
        found = self.tid_to_weakhandle.get(key)
        if found is None:
            found = self.tid_to_weakhandle[key] = _Saved(memory)
            self.original[found] = value, version
            self._of_memory.setdefault(memory, weakref.WeakSet()).add(found)
        return found

    def unpack(self, saved: _Saved) -> Any:
        """The value as it was saved."""
        if _ALLOWED.get() is not self:
            raise AssertionError(_OUTSIDE)
        if saved in self.cloned:
            return self.cloned[saved]
        if saved not in self.original:
            raise AssertionError(_OUTSIDE)
        value, version = self.original[saved]
        if value._version != version:
            raise refuse(_CHANGED)
        return value

    def copy_before_change(self, target: Handle) -> None:
        """Copy the values that a change of this tensor would change."""
        for saved in list(self._of_memory.get(memory_of(target), ())):
            if saved in self.original and saved not in self.cloned:
                value, version = self.original[saved]
                if value._version == version:
                    with no_grad(), in_force(None):
                        self.cloned[saved] = value.clone()
                    del self.original[saved]


_ALLOWED: ContextVar[AllowMutationOnSavedContext | None] = ContextVar("gradwire_mutation", default=None)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[AllowMutationOnSavedContext]:
    """Inside, tensors that backward needs may be changed in place (torch.autograd.graph).

    A saved value is copied when an in-place op is about to change it. Forward and backward run in the same context:
    backward outside raises AssertionError. Raises RuntimeError inside of another. Recorded ops wait for the server.
    """
    if _ALLOWED.get() is not None:
        raise refuse("allow_mutation_on_saved_tensors contexts cannot be nested")
    check_enabled()
    context = AllowMutationOnSavedContext()
    token = _ALLOWED.set(context)
    try:
        with in_force(Pair(context.pack, context.unpack, named=True)):
            yield context
    finally:
        context.clear()
        _ALLOWED.reset(token)


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Copy what an op is about to change in place; always NotImplemented, so that the op is called."""
    context = _ALLOWED.get()
    if context is not None:
        written = [args[0]] if writes_in_place(op) and args else []
        written += [args[place] for place, _ in WRITING_OPS.get(op, ()) if place < len(args)]
        for each in written:
            if isinstance(each, Handle):
                context.copy_before_change(each)
    return NotImplemented


DISPATCH.insert(DISPATCH.index(saved_tensor_hooks._dispatch), _dispatch)
