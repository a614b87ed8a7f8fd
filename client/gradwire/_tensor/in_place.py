"""In-place checks: refuses in-place changes that flags alone forbid, in PyTorch's words, before a command is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import GradwireError, refuse
from gradwire._base.modes import INFERENCE
from gradwire._graph.nodes import name_node
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import WRITING_OPS, Spec
from gradwire._proxy.results import update_in_place
from gradwire._proxy.transforms import TRANSFORM, check_not_captured
from gradwire.v1 import errors_pb2, types_pb2


def writes_in_place(op: str) -> bool:
    """Whether an op's name is that of an in-place form: add_, but not __name__."""
    return op.endswith("_") and not op.endswith("__")


def check_in_place(op: str, args: tuple[Any, ...], mode: Any, edges: Sequence[Any]) -> None:
    """Raise RuntimeError unless the first argument may be changed in place in this grad mode."""
    target = args[0]
    if not isinstance(target, Handle):
        raise TypeError("an in-place op needs a tensor as its first argument")
    if TRANSFORM.get() is not None:
        check_not_captured(op, target)
    spec: Spec = target._spec
    if spec.inference and mode is not INFERENCE:
        raise refuse(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a "
            "normal tensor before doing inplace update."
        )
    if not mode or not (edges or spec.requires_grad):
        return
    if not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return
    view = target.__dict__.get("_view")
    if view is not None:
        if spec.origin:
            raise refuse_origin(spec, "is being")
        if spec.requires_grad and view.base._spec.is_leaf:
            raise _protected("a view of a leaf Variable")
    if spec.requires_grad and spec.is_leaf:
        # x[0] = v writes through a view; an index with tensors writes to x itself.
        through_view = op == "setitem_" and not any(isinstance(item, Handle) for item in args[1].items)
        raise _protected("a view of a leaf Variable" if through_view else "a leaf Variable")
    for changed in (target,) if view is None else (target, view.base):
        if "_grad_fn" in changed.__dict__:
            name_node(changed)


def note_written(op: str, args: Sequence[Any]) -> None:
    """Count the change of the operands that an op of WRITING_OPS writes to: running statistics, scaled rows."""
    for place, by in WRITING_OPS[op]:
        if max(place, by) >= len(args):
            continue  # not given, as the functions of ops.py give each
        written = args[place]
        if args[by] is not None and args[by] is not False and isinstance(written, Handle):
            update_in_place(written, written._spec, [], False)


def _protected(what: str) -> GradwireError:
    return refuse(
        f"{what} that requires grad is being used in an in-place operation. "
        "Change it under gradwire.no_grad(), or change a clone",
        errors_pb2.REASON_LEAF_IN_PLACE,
    )


def refuse_origin(spec: Spec, what: str) -> GradwireError:
    """Error for an in-place change of a view, or of its relatives, that cannot be recorded for how the view was made.

    `what` is the verb form in the message: "is being", or a clause about the base.
    """
    inference = spec.origin == types_pb2.VIEW_ORIGIN_INFERENCE
    mode, where = ("inference", "in normal mode") if inference else ("no_grad", "with grad mode enabled")
    who = f"A view was created in {mode} mode and {what} modified inplace {where}."
    if spec.grad_fn:
        name = spec.grad_fn.rpartition("Backward")[0]
        who = f"Output {spec.output_nr} of {name} is a view and {what} modified inplace."
        if spec.origin in (types_pb2.VIEW_ORIGIN_NO_GRAD, types_pb2.VIEW_ORIGIN_INFERENCE):
            who = (
                f"Output {spec.output_nr} of {name} is a view of a view which was created in {mode} mode and {what} "
                f"modified inplace {where}."
            )
    if spec.origin == types_pb2.VIEW_ORIGIN_FUNCTION:
        return refuse(
            f"{who} This view was created inside a custom Function (or because an input was returned as-is) and the "
            "autograd logic to handle view+inplace would override the custom backward associated with the custom "
            "Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the "
            "output of the custom Function."
        )
    if spec.origin == types_pb2.VIEW_ORIGIN_MULTIPLE:
        return refuse(
            f"{who} This view is the output of a function that returns multiple views. Such functions do not allow the "
            "output views to be modified inplace. You should replace the inplace operation by an out-of-place one."
        )
    block = "inference_mode" if inference else "no_grad"
    return refuse(
        f"{who} Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by "
        f"moving both the view and the inplace either both inside the {block} block (if you don't want the inplace to "
        "be tracked) or both outside (if you want the inplace to be tracked)."
    )
