"""Foretelling: describes the results of ops of which the session has had no answer.

The shape rules (shape_rules/) give sizes and strides. A dtype rule gives the dtype; the engine names each op's rule and
node (`gradwire_engine/ops/dtype_rules.py`). The flags follow from the operands' and the mode. Only ordinary tensors in
the CPU's memory are foretold. Anything else waits for the first answer, and so does what the server might refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gradwire._base.dtypes import dtype, float32
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec, intern
from gradwire._tensor.foretelling.dtypes import DTYPES
from gradwire._tensor.foretelling.indices import are_in_range, has_indices
from gradwire._tensor.foretelling.kinds import have_kinds
from gradwire._tensor.foretelling.nodes import NODES
from gradwire._tensor.shape_rules import MAY_COPY, Shapes

_NamedValues = Sequence[tuple[str, Any]]
# Stands for the node of ops without a derivative.
_NO_NODE = "-"
# View origins of the contract (ViewOrigin).
_MULTIPLE, _NO_GRAD = 1, 2
# Named arguments that decide nothing of a result's description, and the values with which the server refuses no call.
_MUTE = {"approximate": ("none", "tanh"), "enable_gqa": (False,)}
#: Rule, node and kind of view of each op that has a dtype rule; filled when the ops' module is imported.
DTYPE_RULES: dict[str, tuple[str, str, str]] = {}


def foretell(
    shapes: Shapes, op: str, args: tuple[Any, ...], kwargs: _NamedValues, mode: Any
) -> tuple[Spec, ...] | None:
    """The descriptions of a call's results, from their sizes and strides; None if they are not known for certain.

    mode: whether ops are recorded, and the default dtype, as the memo's key has them.
    """
    declared = DTYPE_RULES.get(op)
    recording, default = mode if type(mode) is tuple else (mode, float32)
    if declared is None or shapes is None or type(recording) is not bool or not have_kinds(op, args, kwargs):
        return None
    if has_indices(op) and not are_in_range(op, args):
        return None
    rule, node, views = declared
    specs: list[Spec] = []
    others: list[Any] = []
    for value in _flat(args):
        if isinstance(value, Handle):
            specs.append(value._spec)
        else:
            others.append(value)
    named = {name: value for name, value in kwargs if value is not None}
    if not all(map(_is_ordinary, specs)) or any(isinstance(value, (Handle, list, tuple)) for value in named.values()):
        return None
    if op.endswith("_") and any(spec.origin for spec in specs):
        return None  # in-place changes of such a view may be refused
    leaf = named.pop("requires_grad", False)
    dtypes = DTYPES[rule](specs, others, named, default)
    if dtypes is None:
        return None
    if rule == "of_first":
        del specs[1:]  # only the sizes of the other tensor count
    recorded = recording and any(spec.requires_grad for spec in specs)
    if recorded and not node:
        name = NODES.get(op.removesuffix("_"))
        node = "" if name is None else name(args, named)
    if op in MAY_COPY and specs[0].strides and not shapes[0][1]:
        node, views = "UnsafeViewBackward0", ""
    if op.endswith("_"):
        return _written(args, specs, node if recorded else None, dtypes[0])
    if str(named.pop("device", "cpu")) != "cpu":
        return None
    if leaf and (recorded or not all(kind.is_floating_point for kind in dtypes)):
        return None
    for mute in [each for each, value in named.items() if value in _MUTE.get(each, ())]:
        del named[mute]
    if named and set(named) != {"dtype"} and not _are_numbers(named.values()):
        return None
    made = []
    recorded = recorded and node != _NO_NODE
    for place, ((sizes, strides), kind) in enumerate(zip(shapes, [*dtypes, *dtypes[-1:] * len(shapes)], strict=False)):
        flows = recorded and kind.is_floating_point
        if flows and not node:
            return None
        many = views == "many"
        origin = 0 if not views else _NO_GRAD if not recording else _MULTIPLE if many else specs[0].origin
        made.append(
            intern(
                kind,
                sizes,
                "cpu",
                flows or leaf is True,
                not flows,
                node if flows else "",
                strides,
                bool(views),
                origin,
                output_nr=place if flows else 0,
            )
        )
    return tuple(made)


def _written(args: tuple[Any, ...], specs: Sequence[Spec], node: str | None, written: dtype) -> tuple[Spec, ...] | None:
    """The target of an in-place op afterwards. A view's history is the server's to tell."""
    target = specs[0]
    if written is not target.dtype or not isinstance(args[0], Handle):
        return None
    if node is None:
        return None if target.requires_grad and not target.is_leaf else (target,)
    if node in ("", _NO_NODE) or target.is_view or args[0]._storage is not None or not target.dtype.is_floating_point:
        return None
    return (target.recorded(node),)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    """The arguments, and those in lists. None is left out."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        elif value is not None:
            yield value


def _is_ordinary(spec: Spec) -> bool:
    """Whether a tensor lies in the CPU's memory, and nothing but its node and its base tells its history."""
    return spec.device_name == "cpu" and not (spec.inference or spec.outdated or spec.tangents or spec.dtype.is_complex)


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(type(value) in (int, float) for value in values)
