"""Memo: caches tensor descriptions and the results of earlier commands, so repeats need no answer.

Each distinct description has one `Spec` object per process, so specs are compared and hashed by identity. A command
that succeeded at a call site creates a `MemoEntry`. When the same command repeats with operands of the same specs, the
entry gives the result's spec and serializes the command. The client then does not wait.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import CodeType

from gradwire._base.dtypes import BY_CODE, Size, device, dtype
from gradwire._transport.wire import Pattern, Template, Value
from gradwire.v1 import types_pb2 as pb

#: Maximum entries of a session's memo. A full memo is cleared.
MEMO_LIMIT = 65_536

#: Ops of one result whose derivatives, of any order, are described by what the memo knows of the call. Others may be
#: described by values too (prod), or have nodes that the client does not know. `tests/client/test_graph_structure.py`
#: compares each with the server's answers.
STRUCTURAL_OPS = frozenset(
    {
        "abs", "acos", "add", "addmm", "asin", "atan", "atan2", "bmm", "cat", "clamp", "cos", "cosh", "div", "elu",
        "erf", "exp", "expand", "expm1", "getitem", "hypot", "leaky_relu", "linear", "log", "log1p", "logsigmoid",
        "matmul", "mean", "mm", "mse_loss", "mul", "mv", "narrow", "neg", "permute", "pow", "reciprocal", "relu",
        "reshape", "rsqrt", "select", "sigmoid", "silu", "sin", "sinh", "softmax", "softplus", "sqrt", "square",
        "squeeze", "stack", "sub", "sum", "tan", "tanh", "transpose", "unsqueeze", "view", "where",
    }
)  # fmt: skip


#: Ops that may write to operands although their names do not end in an underscore, from the engine's declarations
#: (`_tensor/ops.py`): places of such operands, each with the place of the argument that decides it, neither None nor
#: False.
WRITING_OPS: dict[str, tuple[tuple[int, int], ...]] = {}

#: Ops that may draw random numbers, from the engine's declarations (`_tensor/ops.py`).
DRAWING_OPS: set[str] = set()


class Spec:
    """A tensor's description without values. `strides` is empty for a contiguous tensor."""

    __slots__ = (
        "__weakref__",
        "device",
        "device_name",
        "dtype",
        "family",
        "grad_fn",
        "inference",
        "is_leaf",
        "is_view",
        "kind",
        "origin",
        "outdated",
        "output_nr",
        "requires_grad",
        "shape",
        "strides",
        "tangents",
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
        tangents: tuple[tuple[int, Spec], ...] = (),
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
        # `origin` is a ViewOrigin of the contract. `outdated`: a change of the base invalidated the view.
        self.origin = origin
        self.inference = inference
        self.outdated = outdated
        # Of a non-leaf: the index among its node's results.
        self.output_nr = output_nr
        # Depth and tangent of each open level of forward-mode differentiation at which it has one, outermost first.
        self.tangents = tangents
        #: One object for all tensors that differ in sizes and strides alone; None with tangents. Empty ones differ,
        #: because ops refuse fewer of them.
        self.kind: object | None = None
        #: The same for all nodes that may have made the tensors: no op's results depend on that.
        self.family: object | None = None
        if not tangents:
            family = (
                dtype, len(shape), 0 in shape, device_name, requires_grad, is_leaf, bool(strides), is_view, origin,
                inference, outdated,
            )  # fmt: skip
            kind = (*family, grad_fn, output_nr)
            self.family, self.kind = _KINDS.setdefault(family, family), _KINDS.setdefault(kind, kind)

    def __repr__(self) -> str:
        return f"Spec({self.dtype.name}{list(self.shape)}, {self.device_name}, grad_fn={self.grad_fn or None})"

    def with_requires_grad(self, flag: bool) -> Spec:
        """The same leaf with its flag set."""
        return self._like(flag, True, "")

    def recorded(self, grad_fn: str) -> Spec:
        """The same tensor as a non-leaf, made by a node named `grad_fn`."""
        return self._like(True, False, grad_fn)

    def left_behind(self) -> Spec:
        """The same view, invalidated by a change of its base."""
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
            self.tangents,
        )

    def without_tangent(self, depth: int) -> Spec:
        """The same tensor after the level of this depth was closed."""
        return self.with_tangents(tuple([(one, tangent) for one, tangent in self.tangents if one != depth]))

    def with_tangents(self, tangents: tuple[tuple[int, Spec], ...]) -> Spec:
        """The same tensor with these tangents."""
        return intern(
            self.dtype,
            self.shape,
            self.device_name,
            self.requires_grad,
            self.is_leaf,
            self.grad_fn,
            self.strides,
            self.is_view,
            self.origin,
            self.inference,
            self.outdated,
            self.output_nr,
            tangents,
        )

    def of_sizes(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Spec:
        """A tensor like this one with other sizes and strides."""
        return intern(
            self.dtype,
            shape,
            self.device_name,
            self.requires_grad,
            self.is_leaf,
            self.grad_fn,
            strides,
            self.is_view,
            self.origin,
            self.inference,
            self.outdated,
            self.output_nr,
            self.tangents,
        )

    def gradient(self) -> Spec:
        """The Spec of the accumulated gradient: same dtype, shape and device, without history."""
        return intern(self.dtype, self.shape, self.device_name)


# The program's kinds of tensors are few, unlike their sizes.
_KINDS: dict[tuple[object, ...], object] = {}
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
    tangents: tuple[tuple[int, Spec], ...] = (),
) -> Spec:
    """The unique Spec of this description."""
    key = (
        dtype, tuple(shape), device_name, requires_grad, is_leaf, grad_fn, strides, is_view, origin, inference,
        outdated, output_nr, tangents,
    )  # fmt: skip
    found = _SPECS.get(key)
    if found is None:
        # setdefault gives concurrent threads the same object.
        found = _SPECS.setdefault(key, Spec(*key))
    return found


def read_spec(message: pb.TensorSpec) -> Spec:
    """The Spec for a server's TensorSpec."""
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
        tuple([(each.depth, read_spec(each.tangent)) for each in message.tangents]) if message.tangents else (),
    )


class MemoEntry:
    """A command that can be repeated at a call site without waiting, because it succeeded there.

    `template` serializes it. An entry inferred from a `Model` has none before its second use, since few numbers repeat.
    """

    __slots__ = (
        "call_kind",
        "code",
        "fixed",
        "in_place",
        "integers",
        "key",
        "model",
        "name",
        "number",
        "of_structure",
        "offset",
        "plain",
        "quick",
        "received",
        "refused",
        "same",
        "specs",
        "structural",
        "template",
        "warning",
        "words",
    )

    def __init__(
        self,
        key: tuple[object, ...],
        name: str,
        call_site: tuple[CodeType, int],
        template: Template | None,
        specs: tuple[Spec, ...],
        fixed: tuple[tuple[int, float], ...] = (),
        in_place: bool = False,
        same: tuple[int, ...] = (),
        warning: str = "",
    ) -> None:
        self.key = key
        self.name = name
        # The key contains the code object's id. The reference prevents reuse of that id.
        self.code, self.offset = call_site
        self.template = template
        self.words: Callable[..., bytes] = _unprepared if template is None else template.words
        #: The prepared op's number; 0 until the first repeat prepares it.
        self.number = 0
        #: Whether a repeat is no more than a call of a prepared op, whatever its floats are, and one plain new tensor.
        self.quick = False
        self.specs = specs
        # Float attributes: the entry is valid for these values only.
        self.fixed = fixed
        self.in_place = in_place
        # For each result: the index of the input that it equals, or -1. Empty if all results are new.
        self.same = same
        # The warning text of each such call.
        self.warning = warning
        #: The model that the entry was inferred from, or that was learned from its answer. A refusal removes both.
        self.model: Model | None = None
        #: Whether the server refused one of its commands; the memo alone does not tell, since a full one is cleared.
        self.refused = False
        self.integers: Sequence[int] = ()
        self.plain = template is not None and self._is_plain()
        #: Whether the node of its result says what its derivatives are (`graph_structure`).
        self.structural = name in STRUCTURAL_OPS and len(specs) == 1 and not (in_place or same or warning)
        #: Of a derivative known by its structure: that its key holds it, and the places of the leaves, or of the inputs
        #: of `grad`, that received a gradient.
        self.of_structure = False
        #: The kind of call among buffered commands: 2 with operands, 1 without. Such a call begins a training step, or
        #: makes a constant of it.
        self.call_kind = 2 if any(type(each) is Spec for each in key) else 1
        self.received: tuple[int, ...] = ()

    def _is_plain(self) -> bool:
        """Whether the fast path may be taken: one new tensor, no view, no leaf that requires grad, no tangents."""
        if len(self.specs) != 1 or self.in_place or self.same or self.warning:
            return False
        if self.name in WRITING_OPS or self.name in DRAWING_OPS:
            return False
        spec = self.specs[0]
        return not (spec.is_view or spec.tangents) and not (spec.is_leaf and spec.requires_grad)

    def make_template(self) -> Template:
        """The template of an inferred entry, made at its second use."""
        assert self.model is not None
        assert self.model.pattern is not None
        self.template = self.model.pattern.template(self.integers)
        self.words = self.template.words
        self.plain = self._is_plain()
        return self.template

    @property
    def parts(self) -> Sequence[MemoEntry]:
        """The entries of all commands that this one stands for."""
        return (self,)

    def part_at(self, step: int | None) -> MemoEntry:
        """The entry of the command that was refused at a step of a program."""
        return self


class SegmentEntry(MemoEntry):
    """Commands that are sent as one program (`_compile.segments`). `by_step` are the entries of the program's steps."""

    __slots__ = ("_by_step", "_parts")

    def __init__(self, parts: Sequence[MemoEntry], by_step: Sequence[MemoEntry]) -> None:
        first = parts[0]
        super().__init__(("segment",), "segment", (first.code, first.offset), None, ())
        self._parts = parts
        self._by_step = by_step

    @property
    def parts(self) -> Sequence[MemoEntry]:
        """The entries of all commands that this one stands for."""
        return self._parts

    def part_at(self, step: int | None) -> MemoEntry:
        """The entry of the command that was refused at a step of a program."""
        return self if step is None or step >= len(self._by_step) else self._by_step[step]


def _unprepared(*values: Value) -> bytes:
    """Stand-in for `words` of an entry without a template, which has no number that could be called."""
    raise AssertionError("the op was not prepared")


class Model:
    """What calls at one call site have in common that differ in sizes and numbers alone, learned from an answer.

    `key` is the memo's key without sizes and integers. Dtype, device, flags and nodes of the results are those of
    `specs`; `_tensor.inference` gives their sizes. `pattern` makes the commands; a recording's models have none.
    """

    __slots__ = ("call_site", "fixed", "key", "pattern", "specs")

    def __init__(
        self,
        key: tuple[object, ...],
        call_site: tuple[CodeType, int],
        pattern: Pattern | None,
        specs: tuple[Spec, ...],
        fixed: tuple[tuple[int, float], ...],
    ) -> None:
        self.key = key
        # The key contains the code object's id, as that of an entry does.
        self.call_site = call_site
        self.pattern = pattern
        self.specs = specs
        self.fixed = fixed
