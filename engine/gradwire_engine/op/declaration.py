"""Declarations: an op's options, formulas, sizes and cost. Op (op.py) computes and records by them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gradwire_engine.core.schema import TENSOR_KINDS, Kind
from gradwire_engine.op.cost import Cost, linear
from gradwire_engine.op.saving import Formula, Saving
from gradwire_engine.op.signature import Signature

Self = TypeVar("Self", bound="Declaration")

#: Every op that a node may refer to, including ops that are not called by name.
OPS: dict[str, Declaration] = {}
WIDEST = 16  # bytes: largest element
# Maximum bytes per element of an ordinary op: its result, and two cast operands.
COMMON = 3 * WIDEST
# Default cost.
UNDECLARED = linear(4)


class Declaration(Signature):
    """An op's declared properties, from the options of `@op` and the methods called right after it."""

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
        unfilled_outputs: tuple[int, ...] = (),
        described_items: tuple[int, ...] = (),
        in_place: bool | None = None,
        of_numbers: bool = False,
        drops_grad: bool = False,
        complex_grad: bool = True,
        no_overlap: bool | Callable[..., bool] = False,
        cost: Cost | float | None = None,
        draws: bool = False,
        moves_list: bool = False,
    ) -> None:
        """Declare an op.

        promote: "same" casts the tensor inputs to their common dtype; "float" also casts integers to the default
            float. A function of the arguments returns one of these; None does not cast.
        view: True if results always share the first input's memory, "maybe" if they may. "multiple" if there are
            several results; their in-place changes are refused. "unsafe" if results share memory, but are no views:
            each has its own version.
        node: PyTorch's name of the graph node, or a function of the arguments that returns it.
        outputs: names of several results. `differentiable_outputs`: indices of those that get gradients; None: all.
            () for a single result without gradient: the in-place form gives zeros.
        described_items: indices of items of a list, of which `<name>_rest` in a formula saves only shape and dtype.
        unfilled_outputs: indices of results whose missing gradient is None for the formulas, not zeros.
        in_place: whether there is a form that ends in an underscore; default: whether the op promotes.
        data_dependent: whether result shapes depend on values, or a function of the arguments that returns it.
        of_numbers: whether all operands may be numbers, if each may be one.
        drops_grad: whether an integer result does not require grad, as for a cast; else that case is refused.
        no_overlap: whether the in-place form refuses operands that share any memory with the target, even all of it; or
            a function of the arguments that returns it.
        complex_grad: whether PyTorch differentiates it if the result is complex.
        cost: operations per element read or written, or a Cost (op/cost.py); every op in ops/ declares it.
        draws: whether it draws random numbers; such an op is not computed in a child process, which does not share
            the generator's state.
        moves_list: whether the list input may be on the CPU if the first input is on a GPU, as for indices.
        """
        super().__init__(function, name, skip=1)
        if self.name in OPS:
            raise ValueError(f"op {self.name} is declared twice")
        OPS[self.name] = self
        self.promotes = promote
        self.view = view
        self.views = "maybe" if view == "maybe" else "always" if view and view != "unsafe" else "never"
        self.data_dependent = data_dependent
        self.outputs = outputs or (("...",) if view == "multiple" else ())
        self.differentiable_outputs = differentiable_outputs
        self.unfilled_outputs = unfilled_outputs
        self.described_items = described_items
        self.node_name = node or "".join(part.capitalize() for part in self.name.split("_")) + "Backward0"
        self.tensor_positions = tuple(i for i, param in enumerate(self.params) if param.kind in TENSOR_KINDS)
        self.list_position = next((i for i, param in enumerate(self.params) if param.kind is Kind.TENSORS), -1)
        self.flows_plainly = differentiable_outputs != ()  # gradients flow if the dtype is a real float
        # Places of the tensor inputs; empty if one of them is a list.
        self.single_positions = self.tensor_positions if self.list_position < 0 else ()
        #: Whether the op's tensors are those of one list.
        self.list_alone = self.tensor_positions == (self.list_position,)
        self.formulas: dict[str, tuple[Formula, tuple[str, ...]]] = {}
        self.tangent_rule: str | Callable[..., Any] | None = None
        # Places of the operands, for an op of two such as `mul`; else None.
        self.operand_positions = self.single_positions if len(self.single_positions) == 2 else None
        self.tensor_bits = tuple((1 << number, place) for number, place in enumerate(self.tensor_positions))
        self.saving_plans: dict[int, Saving] = {}
        self.has_in_place = bool(promote) if in_place is None else in_place
        self.writer: Callable[..., Any] | None = None
        self.writes_always = False
        self.check: Callable[..., None] | None = None
        self.direct: Callable[..., Callable[..., Any] | None] | None = None
        # An op with a parameter `shape` may return more bytes than it is given.
        self.sizes: Callable[..., int] | None = (
            _sizes_of_shape(self) if "shape" in self.positions and not view else None
        )
        self.may_grow = self.sizes is not None or self.list_position >= 0
        self.work: float | Callable[..., int] | None = None
        self.work_back = 1.0
        self.most_back = len(self.tensor_positions) + 1  # formulas' maximum memory as a multiple of the gradient
        self.widest = COMMON  # maximum bytes per element in the product of its operands' sizes
        # Whether a small gradient may give a large one; for promoting (arithmetic) ops, all have the result's size.
        self.grows_back = not promote
        self.widens = bool(getattr(function, "widens", False))  # half types are computed in float32
        self.cost: Cost = cost if isinstance(cost, Cost) else UNDECLARED if cost is None else linear(cost)
        # Elements; above this number the cost is estimated.
        self.cheap_size = self.cost.cheap_size if self.list_position < 0 else -1
        # Two operands whose cost follows from the broadcast shape.
        self.linear_positions = self.operand_positions if self.cost.linear else None
        self.draws = draws
        self.moves_list = moves_list
        self.loops: tuple[str, ...] = ()
        self.result_bounds: Callable[..., Sequence[Any]] | None = None
        self.bounds_of_integers = True
        # Whether operands may be on other devices than the first, as a function of the arguments.
        self.from_devices: Callable[..., bool] | None = None
        # Whether a call's node passes no gradient on, as a function of the arguments.
        self.gradient_ends: Callable[..., bool] | None = None
        self.opmath_position = -1
        self.drops_grad = drops_grad
        self.complex_grad = complex_grad
        self.no_overlap = no_overlap
        kinds = {self.params[place].kind for place in self.tensor_positions}
        self.needs_tensor = kinds == {Kind.TENSOR_OR_NUMBER} and not of_numbers

    @property
    def differentiable(self) -> bool:
        """Whether gradients flow through the op."""
        return bool(self.formulas) and self.differentiable_outputs != ()

    def grad(self: Self, **formulas: Formula) -> Self:
        """Declare the formulas of the differentiable inputs."""
        for name, formula in formulas.items():
            if name not in self.positions:
                raise ValueError(f"{self.name} has no input {name}")
            self.formulas[name] = (formula, tuple(inspect.signature(formula).parameters)[1:])
        return self

    def tangent(self: Self, rule: str | Callable[..., Any]) -> Self:
        """Declare how the results' tangents follow from the inputs' in forward mode; else they cost both directions.

        "linear": a change of the inputs gives the same op of the change, as for sums, shapes and indices.
        "multilinear": linear in each differentiable input alone, as for products.
        "pointwise": each element of the result depends on one element of each input, after broadcasting.
        "symmetric": one input, whose Jacobian is symmetric.
        A function: its parameters name what it gets, as those of a formula. A parameter `t_<input>` is that input's
        tangent, None if it has none.
        """
        self.tangent_rule = rule
        return self

    def by_loops(self: Self, *names: str) -> Self:
        """Declare the loops of machine code that the forward and the formulas may ask for (ops/base/loops.py).

        A fork cannot load any. So if the op is expensive, these are loaded before, and no others are used.
        """
        self.loops = names
        return self

    def bounds_results(self: Self, rule: Callable[..., Sequence[Any]], of_integers: bool = True) -> Self:
        """Declare what bounds the results' integers have on a GPU, as a rule of op/integer_bounds.py.

        of_integers: whether the rule tells nothing without operands of integers or bools.
        """
        self.result_bounds, self.bounds_of_integers = rule, of_integers
        return self

    def takes_from_devices(self: Self, when: Callable[..., bool]) -> Self:
        """Declare calls that copy the other operands to the device of the first."""
        self.from_devices = when
        return self

    def ends_gradient(self: Self, when: Callable[..., bool]) -> Self:
        """Declare calls whose results require grad, but whose inputs get no gradient: None in PyTorch, not zeros."""
        self.gradient_ends, self.operand_positions = when, None
        return self

    def checked_by(self: Self, check: Callable[..., None]) -> Self:
        """Declare a check of the operands before promotion, called when their dtypes differ."""
        self.check = check
        return self

    def directly(self: Self, choose: Callable[..., Callable[..., Any] | None]) -> Self:
        """Declare what computes calls on arrays of certain descriptions: the forward without its checks and choices.

        choose: takes the arguments, and returns a function like the forward, or None. Only the arrays' shapes and
        dtypes may decide.
        """
        self.direct = choose
        return self

    def opmath(self: Self, name: str) -> Self:
        """Declare an operand at which a number or a 0-d tensor is not rounded to a half type, as in PyTorch's kernels.

        The op then computes in float32 and rounds once. All other numbers are rounded to the half type first.
        """
        self.opmath_position = self.positions[name]
        self.widens = True
        return self

    def casts_numbers(self: Self, *names: str) -> Self:
        """Declare number parameters that become elements or factors; numbers out of the dtype's range are refused.

        As in PyTorch, floats are truncated for integer dtypes, and negative integers wrap for unsigned dtypes.
        """
        self.cast_positions = tuple(self.positions[name] for name in names)
        return self

    def into(self: Self, writer: Callable[..., Any], *, always: bool = False) -> Self:
        """Declare a forward that writes its result into the first argument, for in-place use without a temporary.

        always: it checks and casts its arguments itself, so it is used for all dtypes, shapes and strides.
        """
        self.writer = writer
        self.writes_always = always
        return self

    def sized_by(self: Self, sizes: Callable[..., int], *, bounded: bool = False) -> Self:
        """Declare a function of the arguments (arrays for tensors) that returns the results' bytes.

        admission.py says which ops need none. bounded: if no operand is empty, the result has at most as many
        elements as the product of the operands' sizes; the function is not called if that many fit.
        """
        self.sizes = sizes
        self.may_grow = not bounded or self.list_position >= 0
        return self

    def works_in(
        self: Self,
        forward: float | Callable[..., int] | None = None,
        backward: float | None = None,
        grows: bool | None = None,
        widens: bool | None = None,
    ) -> Self:
        """Declare temporary memory: of a call, without its results, and of its formulas, without their gradients.

        forward: bytes, as a function of the arguments; or a multiple of the larger of the results and the largest
            operand.
        backward: a multiple of the larger of the given and the computed gradients.
        grows: whether a small gradient gives a large one that is no view of it. Also true if operands are cast and
            results are smaller than the operands.
        widens: whether half types are computed in float32.
        `make memory` measures the numbers. Random numbers are drawn in float64, and LAPACK gets a copy in Fortran
        order.
        """
        if forward is not None:
            self.work = forward
            self.widest = COMMON * 16 if callable(forward) else COMMON + WIDEST * math.ceil(forward)
        if backward is not None:
            self.work_back = backward
            self.most_back = len(self.tensor_positions) * (1 + math.ceil(backward))
        if grows is not None:
            self.grows_back = grows
        if widens is not None:
            self.widens = widens
        return self

    def getter(self, name: str) -> tuple[str, Any]:
        """Source of a formula's parameter when the op is recorded: a kind, and a place. Raises ValueError."""
        is_output = name in ("out", "outs") or (name.startswith("out") and name[3:].isdecimal())
        if is_output and name not in self.positions:
            return ("output", int(name[3:] or 0))
        if name.endswith("_rest"):
            return ("rest", (self.positions[name.removesuffix("_rest")], self.described_items))
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

    def saving_plan(self, needed: int) -> Saving:
        """The plan for a bit mask of the tensor parameters that need a gradient."""
        found = self.saving_plans.get(needed)
        if found is None:
            wanted = [
                (slot, *self.formulas[self.params[place].name])
                for slot, (bit, place) in enumerate(self.tensor_bits)
                if needed & bit and self.params[place].name in self.formulas
            ]
            found = self.saving_plans[needed] = Saving(wanted, self.getter)
        return found

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The forward alone, on bare arrays; see Op."""
        raise NotImplementedError

    def apply(self, args: tuple[Any, ...]) -> Any:
        """The forward on Tensors, recorded if it must be; see Op."""
        raise NotImplementedError


def _sizes_of_shape(op: Declaration) -> Callable[..., int]:
    """Function for `sized_by`: bytes of a result with the shape given as the parameter `shape`."""
    place, first = op.positions["shape"], op.tensor_positions[0]
    return lambda *arrays: math.prod(arrays[place]) * int(arrays[first].itemsize)
