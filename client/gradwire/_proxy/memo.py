"""What the client remembers, so that it need not ask: descriptions of tensors, and what commands answered before.

A `Spec` is one object per process for each different description, so it is compared and hashed by identity. An
`Entry` is made when a command at some place of the user's program has succeeded: the next time the same command
comes by with operands of the same specs, the entry tells the result's spec and packs the command's bytes, and
nobody waits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType

from gradwire._base.dtypes import BY_CODE, Size, device, dtype
from gradwire._transport.wire import Template
from gradwire.v1 import types_pb2 as pb

#: Entries a session remembers before it starts over.
MEMO_LIMIT = 65_536


class Spec:
    """What is known of a tensor without its values. `strides` is empty for row-major without gaps."""

    __slots__ = (
        "__weakref__",
        "device",
        "device_name",
        "dtype",
        "grad_fn",
        "inference",
        "is_leaf",
        "is_view",
        "origin",
        "outdated",
        "output_nr",
        "requires_grad",
        "shape",
        "strides",
    )

    def __init__(
        self,
        dtype: dtype,
        shape: tuple[int, ...],
        device_name: str,
        requires_grad: bool,
        is_leaf: bool,
        grad_fn: str,
        strides: tuple[int, ...],
        is_view: bool,
        origin: int = 0,
        inference: bool = False,
        outdated: bool = False,
        output_nr: int = 0,
    ) -> None:
        self.dtype = dtype
        self.shape = Size(shape)
        self.device_name = device_name
        self.device = device(device_name)
        self.requires_grad = requires_grad
        self.is_leaf = is_leaf
        self.grad_fn = grad_fn
        self.strides = strides
        self.is_view = is_view
        # A ViewOrigin of the contract, and whether the view was left behind by a change of its base.
        self.origin = origin
        self.inference = inference
        self.outdated = outdated
        # Of a non-leaf: which of its node's results it is.
        self.output_nr = output_nr

    def __repr__(self) -> str:
        return f"Spec({self.dtype.name}{list(self.shape)}, {self.device_name}, grad_fn={self.grad_fn or None})"

    def with_requires_grad(self, flag: bool) -> Spec:
        """The same leaf with its flag set."""
        return self._like(flag, True, "")

    def recorded(self, grad_fn: str) -> Spec:
        """The same tensor as a non-leaf that a node of that name made."""
        return self._like(True, False, grad_fn)

    def left_behind(self) -> Spec:
        """The same view after a change of its base that it may not follow."""
        return self._like(True, self.is_leaf, self.grad_fn, True, self.output_nr)

    def _like(
        self, requires_grad: bool, is_leaf: bool, grad_fn: str, outdated: bool = False, output_nr: int = 0
    ) -> Spec:
        return intern(
            self.dtype,
            self.shape,
            self.device_name,
            requires_grad,
            is_leaf,
            grad_fn,
            self.strides,
            self.is_view,
            self.origin,
            self.inference,
            outdated,
            output_nr,
        )

    def gradient(self) -> Spec:
        """What the accumulated gradient of such a tensor is: a plain tensor of its kind."""
        return intern(self.dtype, self.shape, self.device_name)


_SPECS: weakref.WeakValueDictionary[tuple[object, ...], Spec] = weakref.WeakValueDictionary()


def intern(
    dtype: dtype,
    shape: tuple[int, ...],
    device_name: str,
    requires_grad: bool = False,
    is_leaf: bool = True,
    grad_fn: str = "",
    strides: tuple[int, ...] = (),
    is_view: bool = False,
    origin: int = 0,
    inference: bool = False,
    outdated: bool = False,
    output_nr: int = 0,
) -> Spec:
    """The one Spec of this description."""
    key = (
        dtype, tuple(shape), device_name, requires_grad, is_leaf, grad_fn, strides, is_view, origin, inference,
        outdated, output_nr,
    )  # fmt: skip
    found = _SPECS.get(key)
    if found is None:
        # Of two threads that get here at once, both must go on with the same object.
        found = _SPECS.setdefault(key, Spec(*key))
    return found


def read_spec(message: pb.TensorSpec) -> Spec:
    """The Spec that a server's description stands for."""
    return intern(
        BY_CODE[message.dtype],
        tuple(message.shape),
        message.device or "cpu",
        message.requires_grad,
        message.is_leaf,
        message.grad_fn,
        tuple(message.strides),
        message.is_view,
        message.view_origin,
        message.inference,
        message.outdated,
        message.output_nr,
    )


class Entry:
    """A command that succeeded at a place of the user's program, ready to be repeated without waiting."""

    __slots__ = (
        "code",
        "fixed",
        "in_place",
        "key",
        "name",
        "number",
        "offset",
        "plain",
        "same",
        "specs",
        "template",
        "warning",
        "words",
    )

    def __init__(
        self,
        key: tuple[object, ...],
        name: str,
        place: tuple[CodeType, int],
        template: Template,
        specs: tuple[Spec, ...],
        fixed: tuple[tuple[int, float], ...] = (),
        in_place: bool = False,
        same: tuple[int, ...] = (),
        warning: str = "",
    ) -> None:
        self.key = key
        self.name = name
        # Holding the code object keeps its id, which the key is made of, from being used again.
        self.code, self.offset = place
        self.template = template
        self.words: Callable[..., bytes] = template.words
        #: The prepared op's number; 0 until it is prepared, which happens when it is first repeated.
        self.number = 0
        self.specs = specs
        # Floats that are attributes rather than operands: the entry holds for these values only.
        self.fixed = fixed
        self.in_place = in_place
        # Per result the place among the values of the input that it is itself, or -1; empty where all are new.
        self.same = same
        # What each such call warns of.
        self.warning = warning
        # One new tensor that is neither a view nor a leaf that requires grad: the path that must be short.
        spec = specs[0] if len(specs) == 1 and not in_place and not same and not warning else None
        self.plain = spec is not None and not spec.is_view and not (spec.is_leaf and spec.requires_grad)
