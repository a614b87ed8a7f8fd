"""What is declared of an op: its options, formulas, sizes and cost. Op (op.py) computes and records by it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

from gradwire_engine.core.schema import TENSOR_KINDS, Kind
from gradwire_engine.op.cost import Cost, linear
from gradwire_engine.op.saving import Formula, Saving
from gradwire_engine.op.signature import Signature

Self = TypeVar("Self", bound="Declaration")

#: Every op that a node may be of, also those that are not called by name.
OPS: dict[str, Declaration] = {}
WIDEST = 16  # bytes of an element at most
# A result, and its two operands cast: bytes for each element at most, of an op that needs no more.
COMMON = 3 * WIDEST
# The cost of an op that does not tell it.
UNTOLD = linear(4)


class Declaration(Signature):
    """The facts of an op: what its options, and the methods that are called right after it, declare."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        promote: str | Callable[..., str] | None = None,
        view: bool | str = False,
        node: str | Callable[..., str] | None = None,
        data_dependent: bool | Callable[..., bool] = False,
        outputs: tuple[str, ...] = (),
        differentiable_outputs: tuple[int, ...] | None = None,
        in_place: bool | None = None,
        of_numbers: bool = False,
        drops_grad: bool = False,
        complex_grad: bool = True,
        apart: bool | Callable[..., bool] = False,
        cost: Cost | float | None = None,
        draws: bool = False,
    ) -> None:
        """Declare an op.

        promote: "same" brings the tensor inputs to their common dtype, "float" besides turns whole numbers into
            the default float; a function of the arguments tells which; None leaves dtypes alone.
        view: True if results always share the first input's bytes, "maybe" if they may, "multiple" if
            there are several (their in-place changes are refused).
        node: the name of its graph node, PyTorch's; or a function of its arguments giving it.
        outputs: names of several results; `differentiable_outputs` says which get gradients (all); of a single result
            that gets none, (), its in-place form gives zeros.
        in_place: whether there is a form that ends in an underscore; those that promote have one unless told.
        data_dependent: whether the results' shapes depend on values; or a function of the arguments telling.
        of_numbers: whether it takes nothing but numbers, where each operand may be one.
        drops_grad: whether a result of whole numbers just does not require grad, as a cast's; else that is refused.
        apart: whether in place no operand may share memory with what is written, not even all of it; or a function
            of the arguments telling.
        complex_grad: whether PyTorch differentiates it where the result is complex.
        cost: operations for each element that is read or made, or a Cost (op/cost.py); every op in ops/ tells it.
        draws: whether it draws random numbers: another process, where it would be computed apart, has not the
            generator's state.
        """
        super().__init__(function, name, skip=1)
        if self.name in OPS:
            raise ValueError(f"op {self.name} is declared twice")
        OPS[self.name] = self
        self.promotes = promote
        self.view = view
        self.data_dependent = data_dependent
        self.outputs = outputs or (("...",) if view == "multiple" else ())
        self.differentiable_outputs = differentiable_outputs
        self.node_name = node or "".join(part.capitalize() for part in self.name.split("_")) + "Backward0"
        self.tensor_places = tuple(i for i, param in enumerate(self.params) if param.kind in TENSOR_KINDS)
        self.list_place = next((i for i, param in enumerate(self.params) if param.kind is Kind.TENSORS), -1)
        self.flows_plainly = differentiable_outputs != ()  # gradients flow if the dtype is a real float's
        self.few_places = self.tensor_places if self.list_place < 0 else ()
        self.formulas: dict[str, tuple[Formula, tuple[str, ...]]] = {}
        self.two = self.few_places if len(self.few_places) == 2 else None
        self.tensor_bits = tuple((1 << number, place) for number, place in enumerate(self.tensor_places))
        self.plans: dict[int, Saving] = {}
        self.has_in_place = bool(promote) if in_place is None else in_place
        self.writer: Callable[..., Any] | None = None
        self.writes_always = False
        self.check: Callable[..., None] | None = None
        # One that is told its result's shape, by that name, may make more than it is given.
        self.sizes: Callable[..., int] | None = (
            _sizes_of_shape(self) if "shape" in self.positions and not view else None
        )
        self.asks = self.sizes is not None or self.list_place >= 0
        self.work: float | Callable[..., int] | None = None
        self.work_back = 1.0
        self.most_back = len(self.tensor_places) + 1  # what formulas take at most, in gradients of arithmetic
        self.widest = COMMON  # bytes at most for each element in the product of its operands' sizes
        # Whether a small gradient may come back as a large one: of arithmetic it is as large as the result.
        self.grows_back = not promote
        self.widens = bool(getattr(function, "widens", False))  # half types are computed in float32
        self.cost: Cost = cost if isinstance(cost, Cost) else UNTOLD if cost is None else linear(cost)
        self.few = self.cost.few if self.list_place < 0 else -1  # elements; of more it is told what they cost
        self.alike = self.two if self.cost.linear else None
        self.draws = draws
        self.drops_grad = drops_grad
        self.complex_grad = complex_grad
        self.apart = apart
        kinds = {self.params[place].kind for place in self.tensor_places}
        self.needs_tensor = kinds == {Kind.TENSOR_OR_NUMBER} and not of_numbers

    @property
    def differentiable(self) -> bool:
        """Whether gradients flow through it."""
        return bool(self.formulas) and self.differentiable_outputs != ()

    def grad(self: Self, **formulas: Formula) -> Self:
        """Give the formulas of the differentiable inputs."""
        for name, formula in formulas.items():
            if name not in self.positions:
                raise ValueError(f"{self.name} has no input {name}")
            self.formulas[name] = (formula, tuple(inspect.signature(formula).parameters)[1:])
        return self

    def checked_by(self: Self, check: Callable[..., None]) -> Self:
        """Give a check of operands as given, where they differ in dtype; the forward sees them promoted."""
        self.check = check
        return self

    def fits(self: Self, *names: str) -> Self:
        """Declare parameters whose numbers become elements or factors: what the dtype cannot take is refused.

        As in PyTorch floats are cut for whole dtypes, and whole numbers below 0 wrap where they are unsigned.
        """
        self.fitted = tuple(self.positions[name] for name in names)
        return self

    def into(self: Self, writer: Callable[..., Any], *, always: bool = False) -> Self:
        """Give a forward that writes its result into the first argument, for in-place use without a temporary.

        always: it checks and casts what it is given, so it serves whatever the dtypes, shapes and strides.
        """
        self.writer = writer
        self.writes_always = always
        return self

    def sized_by(self: Self, sizes: Callable[..., int], *, bounded: bool = False) -> Self:
        """Give a function of the arguments, arrays among them, that tells the results' bytes before they are computed.

        admission.py says for which ops that is not needed. bounded: where no operand is empty, it has at most one
        element for each in the product of its operands' sizes; then it is not asked where that many would fit.
        """
        self.sizes = sizes
        self.asks = not bounded or self.list_place >= 0
        return self

    def works_in(
        self: Self,
        forward: float | Callable[..., int] | None = None,
        backward: float | None = None,
        grows: bool | None = None,
        widens: bool | None = None,
    ) -> Self:
        """Tell what a call takes and gives back: beside its results, or of its formulas beside the gradients made.

        forward: bytes by its arguments, or how many times the larger of its results and its largest operand.
        backward: how many times the larger of the gradient given and those made. grows: whether a small gradient is
        made a large one; not if that is a view of it. It is, too, where operands are brought to a dtype, but results
        are smaller than they. widens: whether half types are computed in float32.
        The numbers are as `make memory` measures them; what is drawn is drawn in float64, and what LAPACK is given
        is a copy in Fortran's order.
        """
        if forward is not None:
            self.work = forward
            self.widest = COMMON * 16 if callable(forward) else COMMON + WIDEST * math.ceil(forward)
        if backward is not None:
            self.work_back = backward
            self.most_back = len(self.tensor_places) * (1 + math.ceil(backward))
        if grows is not None:
            self.grows_back = grows
        if widens is not None:
            self.widens = widens
        return self

    def getter(self, name: str) -> tuple[str, Any]:
        """How a formula's parameter is obtained when the op is recorded."""
        is_output = name in ("out", "outs") or (name.startswith("out") and name[3:].isdecimal())
        if is_output and name not in self.positions:
            return ("output", int(name[3:] or 0))
        meta = name.endswith("_meta")
        place = self.positions.get(name.removesuffix("_meta"))
        if place is None:
            raise ValueError(f"a formula of {self.name} names {name!r}, which is no parameter, meta or result of it")
        kind = self.params[place].kind
        if kind not in TENSOR_KINDS:
            return ("argument", place)
        if kind is Kind.TENSORS:
            return ("metas" if meta else "inputs", place)
        return ("meta" if meta else "input", place)

    def plan(self, needed: int) -> Saving:
        """The plan for a choice of tensor parameters that need a gradient, a bit for each."""
        found = self.plans.get(needed)
        if found is None:
            wanted = [
                (slot, *self.formulas[self.params[place].name])
                for slot, (bit, place) in enumerate(self.tensor_bits)
                if needed & bit and self.params[place].name in self.formulas
            ]
            found = self.plans[needed] = Saving(wanted, self.getter)
        return found

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The forward alone, on bare arrays; see Op."""
        raise NotImplementedError

    def apply(self, args: tuple[Any, ...]) -> Any:
        """The forward on Tensors, recorded if it must be; see Op."""
        raise NotImplementedError


def _sizes_of_shape(op: Declaration) -> Callable[..., int]:
    """The bytes of an op's result that has the shape which the op is given."""
    place, first = op.positions["shape"], op.tensor_places[0]
    return lambda *arrays: math.prod(arrays[place]) * int(arrays[first].itemsize)
