"""Conjugates: `conj` and its kin, which are views in PyTorch and copies here.

A copy has the same values until one of the two is changed in place. From then on the other is refused, as PyTorch's
would have changed with it. `is_conj` and `is_neg` answer as for PyTorch's views, whose change is pending.
"""

from __future__ import annotations

from typing import Any, TypeVar

from gradwire._proxy.handle import Handle
from gradwire._proxy.results import mirror, share_storage
from gradwire._tensor.call import _call
from gradwire._tensor.warnings import warn_once

_T = TypeVar("_T", bound="Conjugates")


class Conjugates(Handle):
    """Methods of Tensor that conjugate or negate without PyTorch's computing it at once."""

    __slots__ = ()

    def conj(self: _T) -> _T:
        """The complex conjugate; a real tensor is returned unchanged (torch.Tensor.conj)."""
        return _conjugated("conj", self)

    @property
    def H(self: _T) -> _T:
        """The conjugate transpose of a matrix."""
        if not self._spec.shape:
            warn_once("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().")
        return _conjugated("H", self)

    @property
    def mH(self: _T) -> _T:
        """The last two dimensions exchanged, conjugated."""
        if not self._spec.shape:
            warn_once("Tensor.mH is deprecated on 0-D tensors. Consider using x.conj().")
        return _conjugated("mH", self)

    def adjoint(self: _T) -> _T:
        """The last two dimensions exchanged, conjugated."""
        if not self._spec.shape:
            warn_once("adjoint() is deprecated on 0-D tensors. Consider using x.conj().")
        return _conjugated("mH", self)

    def is_conj(self) -> bool:
        """Whether it is, in PyTorch, a view whose conjugation is pending."""
        storage = self._storage
        return storage is not None and storage.conjugate and self._spec.dtype.is_complex

    def is_neg(self) -> bool:
        """Whether it is, in PyTorch, a view whose negation is pending."""
        return bool(self.__dict__.get("_negated"))

    def resolve_conj(self: _T) -> _T:
        """A copy of what PyTorch has a pending conjugation for; else the tensor itself."""
        made: Any = _call("clone", (self,)) if self.is_conj() else self
        return made  # type: ignore[no-any-return]

    def resolve_neg(self: _T) -> _T:
        """A copy of what PyTorch has a pending negation for; else the tensor itself."""
        made: Any = _call("clone", (self,)) if self.is_neg() else self
        return made  # type: ignore[no-any-return]

    def _neg_view(self: _T) -> _T:
        """The negative, which is a view in PyTorch."""
        made: Any = mirror(_call("neg", (self,)), self)
        _note_negated(made, not self.is_neg())
        if made._storage is not None:
            made._storage.conjugate = self.is_conj()
        return made  # type: ignore[no-any-return]

    def _share_conjugates(self, value: Handle, shared: bool) -> None:
        """Let conjugates of the tensor's new memory know of its changes, and those of memory that it left, not."""
        storage, its = (each._storage or share_storage(each, each) for each in (self, value))
        storage.moved = True
        if storage is its:
            return
        if storage.mirrors is not None and not shared:
            storage.mirrors.pop(storage, None)
            storage.mirrors = None
        its.mirrored(storage, same_memory=True)

    @property
    def imag(self: _T) -> _T:
        """The imaginary parts, a view. Raises RuntimeError for a real tensor."""
        made: Any = _call("imag", (self,))
        if self.is_conj():
            _note_negated(made, not self.is_neg())
        return made  # type: ignore[no-any-return]


def _conjugated(op: str, source: _T) -> _T:
    """What an op makes, which PyTorch leaves to be conjugated."""
    made: Any = _call(op, (source,))
    if source._spec.dtype.is_complex and made is not source:
        mirror(made, source)
        if made._storage is not None:
            made._storage.conjugate = not source.is_conj()
            _note_negated(made, source.is_neg())
    return made  # type: ignore[no-any-return]


def _note_negated(tensor: Any, negated: bool) -> None:
    if "_value" not in tensor.__dict__:
        tensor.__dict__["_negated"] = negated
