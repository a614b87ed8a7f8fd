"""torch.autograd.Function: forward in Python without recording, then a node that asks for its derivative."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from gradwire_engine.autograd.functions import record_function
from gradwire_engine.graph.callbacks import CallbackRequest
from tests.engine.torch_like.hooks import ask
from tests.engine.torch_like.modes import is_grad_enabled, no_grad
from tests.engine.torch_like.tensors import Tensor, recorded, unwrap, wrap
from tests.refusals import as_python


class Context:
    """What forward leaves for backward."""

    materializes = True

    def __init__(self) -> None:
        self.saved_tensors: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.constant: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materializes = value


class Function:
    """The base of functions with a derivative of their own."""

    setup_context: Any = None
    forward: Any
    backward: Any

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function and record a node, where an argument requires grad."""
        ctx = Context()
        if cls.setup_context is not None:  # it gets defaults too
            bound = inspect.signature(cls.forward).bind(*args)
            bound.apply_defaults()
            args = bound.args
        tensors = [each if isinstance(each, Tensor) else None for each in args]
        ctx.needs_input_grad = tuple(each is not None and each.requires_grad for each in tensors)  # type: ignore[attr-defined]
        with no_grad():
            result = cls._forward(ctx, args)
            several = isinstance(result, tuple)
            results = [_own(each, tensors, ctx.dirty) for each in (result if several else (result,))]
        if is_grad_enabled():
            cls._record(ctx, tensors, results)
        return tuple(results) if several else results[0]

    @classmethod
    def _forward(cls, ctx: Context, args: tuple[Any, ...]) -> Any:
        if cls.setup_context is None:
            return cls.forward(ctx, *args)
        result = cls.forward(*args)
        cls.setup_context(ctx, args, result)
        return result

    @classmethod
    def _record(cls, ctx: Context, tensors: Sequence[Any], results: Sequence[Any]) -> None:
        saved, dirty, constant = ctx.saved_tensors, ctx.dirty, ctx.constant
        outputs = [each if isinstance(each, Tensor) else None for each in results]
        # The node holds the tensors, the context none: it is held by the node.
        ctx.saved_tensors = ctx.dirty = ctx.constant = ()

        def formula(due: CallbackRequest) -> Sequence[Any]:
            ctx.saved_tensors = tuple(wrap(due.others))
            made = cls.backward(ctx, *wrap(due.gradients))
            ctx.saved_tensors = ()
            return made if isinstance(made, tuple) else (made,)

        def record() -> list[Any]:
            lists = [unwrap(list(each)) for each in (tensors, outputs, saved, dirty, constant)]
            record_function(f"{cls.__name__}Backward", ask(formula), *lists, ctx.materializes)
            return [each for each in lists[1] if each is not None]

        with as_python():
            recorded(record)


def _own(result: Any, tensors: Sequence[Any], dirty: Sequence[Any]) -> Any:
    """The result; of an input that is returned as it is, a view, which may have a history of its own."""
    given = any(result is each for each in tensors) and not any(result is each for each in dirty)
    return result.view_as(result) if isinstance(result, Tensor) and given else result
