"""Composites: ops made of other ops; they record no node and are differentiated through their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor, edge_of
from gradwire_engine.op.rebase import by_route, rewrite
from gradwire_engine.op.refusals import (
    REFUSED,
    check_in_place,
    check_inference,
    check_no_overlap,
    check_result,
    check_writable,
    explain,
)  # fmt: skip
from gradwire_engine.op.signature import Signature, Views


class Composite(Signature):
    """An op made of other ops: it records no node and is differentiated through its parts."""

    #: Whether its in-place form consists of other ops' in-place forms, which report to a tracer themselves.
    writes_by_parts = False

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        in_place: bool = False,
        data_dependent: bool | Callable[..., bool] = False,
        outputs: tuple[str, ...] = (),
        differentiable: bool = True,
        writes: bool = False,
        updates: dict[str, str] | None = None,
        complex_grad: bool = True,
        no_overlap: bool = False,
        reads_values: bool = False,
        views: Views = "never",
        draws: bool = False,
        deprecated: str = "",
    ) -> None:
        """Declare a composite; the options are those of Op. A composite without tensor inputs is not differentiable.

        writes: whether it is an in-place op itself, with a name that ends in an underscore.
        updates: parameters that a call may write to in place, such as running statistics. Each has the parameter that
            decides it: the call writes if that one is neither None nor False.
        complex_grad: whether PyTorch differentiates it if the result is complex.
        reads_values: whether it reads values of arrays or draws random numbers itself, instead of by ops alone. A plan
            then calls the composite, because a trace of its ops may not hold for the next run.
        views: whether results share the first input's memory: "never", "maybe" or "always".
        draws: whether a call may draw random numbers, by itself or by its parts.
        deprecated: what to use instead, if PyTorch has deprecated it.
        """
        super().__init__(function, name, skip=0)
        self.differentiable = differentiable
        self.has_in_place = in_place
        self.data_dependent = data_dependent
        self.outputs = outputs
        self.writes = writes
        #: Places of the parameters in `updates`, each with the place of the one that decides.
        self.updated_places = tuple((self.positions[name], self.positions[by]) for name, by in (updates or {}).items())
        self.complex_grad = complex_grad
        self.no_overlap = no_overlap
        self.reads_values = reads_values
        self.views, self.draws, self.deprecated = views, draws, deprecated

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Bind the arguments to the signature and apply the composite."""
        if kwargs or len(args) != self.arity:
            args = self.bind(args, kwargs)
        return self.apply(args)

    def apply(self, args: tuple[Any, ...]) -> Any:
        """Apply the composite to complete arguments (see `bind`)."""
        named = dict(zip(self.keywords, args[self.positional :], strict=True))
        refusal = self.unsupported_error(args) if self.unsupported_dtypes else None
        if refusal is not None and self.updates(args):
            raise refusal
        try:
            made = self.function(*args[: self.positional], **named)
        except REFUSED as error:
            raise explain(self, args, error) from error
        if refusal is not None:  # errors of sizes and other arguments come first, as in PyTorch
            raise refusal
        if not self.complex_grad:
            self._check_complex(made)
        return made

    def updates(self, args: tuple[Any, ...]) -> bool:
        """Whether a call changes an argument in place, as batch_norm changes its running statistics."""
        return any(
            args[place] is not None and args[by] is not None and args[by] is not False
            for place, by in self.updated_places
        )

    def _check_complex(self, made: Any) -> None:
        if made.dtype.kind == "c" and made.requires_grad:
            raise EngineError(
                Reason.RUNTIME,
                f"{self.name} does not support automatic differentiation for outputs with complex dtype.",
                op=self.name,
            )

    def in_place(self, args: tuple[Any, ...]) -> Tensor:
        """Apply the composite to a copy of the first argument; write the result and its node into the argument."""
        target: Tensor = args[0]
        context = CURRENT.get()
        track = context.grad_enabled and any(type(value) is Tensor and edge_of(value) is not None for value in args)
        if track:
            check_in_place(target)
        if target.storage.inference:
            check_inference(context)
        if target.node is not None and target.view is not None and track:
            by_route(target)
        check_writable(target.array)
        if self.no_overlap:
            check_no_overlap(target.array, args[1:])
        kept = Tensor(target.array.copy("K"), target.requires_grad)
        kept.node, kept.index = target.node, target.index
        if context.duals.active:
            context.duals.copy(target, kept)
        result = self.apply((kept, *args[1:]))
        check_result(self.name, target, result)
        target.array[...] = result.array
        target.storage.changed()
        if result.node is not None:
            rewrite(target, result.node, result.index)
        if context.duals.active:
            context.duals.overwrite(target, result)
        return target


@overload
def composite(function: Callable[..., Any], /) -> Composite: ...
@overload
def composite(**options: Any) -> Callable[[Callable[..., Any]], Composite]: ...
def composite(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a composite: `@composite` or `@composite(in_place=True, ...)`; see Composite."""
    return Composite(function) if function is not None else lambda function: Composite(function, **options)
