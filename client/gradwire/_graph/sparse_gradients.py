"""Sparse gradients of dense leaves. The client holds them, since all gradients on the server are dense.

A custom function gives a sparse gradient for a leaf. The pass keeps it from the server, and adds it to the leaf at its
end. So a leaf may have two parts of a gradient, of which `Tensor.grad` is the sum. Other tensors than leaves are
refused: the server's derivatives take dense gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad, set_grad_enabled
from gradwire._base.refused import refusal
from gradwire._graph import commands
from gradwire._proxy.handle import Handle
from gradwire._proxy.shadow_graph import Leaf

_PART = "_sparse_grad"
_TAKES = "_takes_sparse_grad"


def is_sparse(gradient: Any) -> bool:
    """Whether a gradient is a tensor of a sparse layout."""
    return getattr(type(gradient), "holds_stored_values", False)


class SparseGradients:
    """The sparse gradients that one pass has made so far, by leaf."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Handle, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def give(self, leaf: Handle, gradient: Any) -> None:
        """Add a gradient. A backward comes from the end, so the elements are in the order of forward."""
        held = self._held.get(id(leaf))
        self._held[id(leaf)] = leaf, gradient if held is None else gradient + held[1]

    def replace(self, leaf: Handle, gradient: Any) -> None:
        """Put a gradient in the place of a leaf's; None leaves the leaf without one."""
        if gradient is None:
            self._held.pop(id(leaf), None)
        else:
            self._held[id(leaf)] = leaf, gradient

    def of(self, leaf: Handle) -> Any:
        """A leaf's gradient; None without one."""
        held = self._held.get(id(leaf))
        return None if held is None else held[1]

    def deliver(self, targets: Sequence[Handle], create_graph: bool) -> list[Handle]:
        """Add the gradients to those of the leaves, or of the targets alone if there are any; return their owners."""
        wanted = {id(each) for each in targets}
        owners = [each for each, _ in self._held.values() if each._spec.requires_grad]
        owners = [each for each in owners if not wanted or id(each) in wanted]
        for leaf in owners:
            _accumulate(leaf, self._held[id(leaf)][1], create_graph)
        return owners

    def join(self, target: Handle, gradient: Any) -> Any:
        """The whole gradient by a target, given the part that the server has computed."""
        held = self.of(target)
        return gradient if held is None else held if gradient is None else gradient + held


def _accumulate(leaf: Handle, gradient: Any, create_graph: bool) -> None:
    if not create_graph:
        gradient = gradient.like(gradient._v.detach().clone())  # the function may have saved it
    if leaf._grad is not None:
        with set_grad_enabled(create_graph):
            dense = leaf.grad  # type: ignore[attr-defined]
            if dense is not None and not is_sparse(dense):
                if create_graph:
                    leaf.grad = dense + gradient  # type: ignore[attr-defined]
                else:
                    dense.add_(gradient.to_dense())
                return
    held = sparse_part(leaf)
    if held is None:
        # The indices may be the program's own tensor, which it may change later.
        kept = type(gradient)(gradient._i.clone(), gradient._v, gradient.shape, gradient._coalesced)
        leaf.__dict__[_PART] = kept
    elif create_graph:
        leaf.__dict__[_PART] = held + gradient
    else:
        with no_grad():
            held.become(held + gradient)  # the same object, as in PyTorch


def sparse_part(tensor: Handle) -> Any:
    """The sparse part of a tensor's gradient; None without one."""
    return tensor.__dict__.get(_PART)


def set_sparse_part(tensor: Handle, gradient: Any) -> None:
    """Set or clear the sparse part of a tensor's gradient."""
    if gradient is None:
        tensor.__dict__.pop(_PART, None)
    else:
        tensor.__dict__[_PART] = gradient


def joined_gradient(tensor: Handle, dense: Any) -> Any:
    """A tensor's gradient from its parts. If there is a dense one, then from now on that has all of it."""
    sparse = tensor.__dict__[_PART]
    if dense is None:
        return sparse
    with set_grad_enabled(dense.requires_grad or sparse.requires_grad):
        made = dense + sparse.to_dense()
    commands.set_grad(tensor, made)
    del tensor.__dict__[_PART]
    return made


def note_leaves(tensors: Sequence[Any]) -> list[Leaf | None]:
    """Note that leaves may get sparse gradients, as inputs of a custom function; return their edges."""
    edges = [each._edge if each is not None and type(each._edge) is Leaf else None for each in tensors]
    for each, edge in zip(tensors, edges, strict=True):
        if edge is not None:
            each.__dict__[_TAKES] = True
    return edges


def takes_sparse(tensor: Handle) -> bool:
    """Whether a pass may make a sparse gradient of a tensor, which the server does not know of."""
    return _TAKES in tensor.__dict__


def kept_from_server(made: list[Any], leaves: Sequence[Leaf | None], sparse: SparseGradients, name: str) -> list[Any]:
    """A function's gradients without the sparse ones, which are added to those of the pass.

    Raises NotImplementedError for a tensor that is no leaf, RuntimeError for a gradient that does not fit.
    """
    return [
        _kept(gradient, leaves[place], sparse, name, place) if is_sparse(gradient) else gradient
        for place, gradient in enumerate(made)
    ]


def _kept(gradient: Any, edge: Leaf | None, sparse: SparseGradients, name: str, place: int) -> Any:
    if edge is None:
        raise not_a_leaf(f"{name} gave one for argument {place}")
    leaf = edge.owner()
    if leaf is None:  # dropped, so nobody sees the layout; the server may still know a way to the leaf
        return gradient.to_dense()
    check_hooks(leaf)
    sparse.give(leaf, fitting(gradient, leaf, f"Function {name} returned an invalid gradient at index {place}"))
    return None


def not_a_leaf(where: str) -> Exception:
    """The refusal of a sparse gradient of another tensor than a leaf."""
    return refusal("autograd with a sparse gradient of a tensor that is no leaf", f"{where}; make the gradient dense")


def check_hooks(leaf: Handle) -> None:
    """Refuse a leaf with hooks that the server would not call, as it has no gradient for them."""
    edge = leaf._edge
    calls = getattr(getattr(edge, "hooks", None), "calls", {})
    if any(getattr(call, "needs_dense", False) for call in calls.values()):
        what = "Tensor.register_post_accumulate_grad_hook of a leaf with a sparse gradient"
        raise refusal(what, "use register_hook, or sparse=False")


def fitting(gradient: Any, leaf: Handle, problem: str) -> Any:
    """A sparse gradient in a leaf's dtype. Raises RuntimeError for one of another layout, shape or device."""
    spec = leaf._spec
    if not gradient.is_sparse:
        raise refuse(f"{problem} - expected layout Strided or Sparse but got {gradient.layout}")
    if tuple(gradient.shape) != tuple(spec.shape):
        shapes = f"got {list(gradient.shape)} but expected shape compatible with {list(spec.shape)}"
        raise refuse(f"{problem} - {shapes}")
    if gradient.device != spec.device:
        raise refuse(f"{problem} - expected device {spec.device} but got {gradient.device}")
    values = gradient._v
    if values.is_complex() and not spec.dtype.is_complex:
        values = values.real
    return gradient if values.dtype is spec.dtype else gradient.like(values.to(spec.dtype))
