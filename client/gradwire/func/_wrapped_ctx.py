"""A custom function's ctx by another object, which shows other saved tensors (torch._functorch.autograd_function)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire.func._batched import BatchedTensor, Level, is_batched, value_at


class WrappedCtx:
    """A function's ctx by another object: attributes are read and set at the ctx itself."""

    _pt_reserved_attrs: tuple[str, ...] = ("_pt_reserved_attrs", "_pt_inner_ctx")

    def __init__(self, ctx: Any) -> None:
        """Raises RuntimeError for a ctx that has one of the wrapper's own attributes."""
        reserved = type(self)._pt_reserved_attrs
        if not isinstance(ctx, WrappedCtx) and any(hasattr(ctx, name) for name in reserved):
            raise refuse(
                f"PyTorch reserves the {reserved} field on ctx. Please name your fields on ctx something else to avoid "
                "name collision."
            )
        self._pt_inner_ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_pt_inner_ctx"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._pt_reserved_attrs:
            self.__dict__[name] = value
        else:
            setattr(self._pt_inner_ctx, name, value)


class CtxWithSavedTensors(WrappedCtx):
    """A ctx with other saved tensors."""

    _pt_reserved_attrs = ("_pt_new_saved_tensors", *WrappedCtx._pt_reserved_attrs)

    def __init__(self, ctx: Any, new_saved_tensors: Sequence[Any]) -> None:
        super().__init__(ctx)
        self._pt_new_saved_tensors = new_saved_tensors

    @property
    def saved_tensors(self) -> Sequence[Any]:
        """The tensors that were given in place of the ctx's own."""
        return self._pt_new_saved_tensors


class SampleCtx(WrappedCtx):
    """The ctx of one sample: the ctx of all samples has the values of its tensors."""

    _pt_reserved_attrs = ("_pt_level", "_pt_saved", "_pt_for_jvp", *WrappedCtx._pt_reserved_attrs)

    def __init__(self, ctx: Any, level: Level) -> None:
        super().__init__(ctx)
        self._pt_level = level
        # Which of the saved tensors differ from sample to sample.
        self._pt_saved: tuple[bool, ...] = ()
        self._pt_for_jvp: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """See FunctionCtx.save_for_backward."""
        self._pt_saved = self._batched(tensors)
        self._pt_inner_ctx.save_for_backward(*self._values(tensors))

    def save_for_forward(self, *tensors: Any) -> None:
        """See FunctionCtx.save_for_forward."""
        self._pt_for_jvp = self._batched(tensors)
        self._pt_inner_ctx.save_for_forward(*self._values(tensors))

    def mark_dirty(self, *tensors: Any) -> None:
        """See FunctionCtx.mark_dirty."""
        self._pt_inner_ctx.mark_dirty(*self._values(tensors))

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """See FunctionCtx.mark_non_differentiable."""
        self._pt_inner_ctx.mark_non_differentiable(*self._values(tensors))

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What backward was left, as one sample."""
        return self._shown(self._pt_inner_ctx.saved_tensors, self._pt_saved)

    def for_jvp(self) -> CtxWithSavedTensors:
        """This ctx with what jvp was left."""
        return CtxWithSavedTensors(self, self._left_for_jvp())

    def _left_for_jvp(self) -> tuple[Any, ...]:
        inner = self._pt_inner_ctx
        found = inner._left_for_jvp() if isinstance(inner, SampleCtx) else inner.saved_tensors
        return self._shown(found, self._pt_for_jvp)

    def _shown(self, found: Sequence[Any], batched: Sequence[bool]) -> tuple[Any, ...]:
        """Saved tensors, those that differ from sample to sample as one of them."""
        return tuple(
            BatchedTensor(each, self._pt_level) if differs and each is not None else each
            for each, differs in zip(found, batched, strict=True)
        )

    def _batched(self, tensors: Sequence[Any]) -> tuple[bool, ...]:
        return tuple(is_batched(each, self._pt_level) for each in tensors)

    def _values(self, tensors: Sequence[Any]) -> list[Any]:
        return [value_at(each, self._pt_level) for each in tensors]
