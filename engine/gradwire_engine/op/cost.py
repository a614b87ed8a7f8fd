"""What an op will compute, told from its operands before it begins: in operations, about a nanosecond of a core each.

Every op has a `Cost` (costs.py): what its forward takes, what its formulas take in backward, and how few elements are
not worth asking about. An op over the account's limit is refused before anything is allocated; one that takes long is
handed to the context's interrupt, which may compute it where it can be ended (`Interrupt.aside`).

The numbers are estimates, within a factor that `tools/cost.py` measures. They bound what one request may take, and are
no promise of how long it will.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.admission import needed

if TYPE_CHECKING:
    from gradwire_engine.core.context import Context
    from gradwire_engine.op.op import Op

Works = Callable[..., float]
#: Operations that are many: such an op is computed aside, where it can be ended, and others need not wait for it.
LONG = 150_000_000


_ITEM = 250  # elements that an array of a list counts for besides, which Python looks at
_USUAL = 8  # bytes of an element; of more it takes longer
_COPIES = 8  # operations of an element: an op of at most so many costs little more than its bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations of an op by its arguments, arrays among them; `few`: of so many elements they are never many.

    The elements are those of all operands, multiplied. A `few` of -1 has the op asked whatever it is given.
    `copies`: whether it costs little more than its result's bytes, which are then not sent from one process to another.
    """

    forward: Works
    backward: Works
    few: int
    copies: bool = False
    linear: bool = False  # in the elements that its operands broadcast to


def linear(weight: float, backward: float = 3.0) -> Cost:
    """So many operations for each element that is read or made; its formulas so many times as much."""

    def works(*arrays: Any) -> float:
        widest = max((operand.itemsize for operand in operands(arrays)), default=0)
        return weight * elements(arrays) * max(1.0, widest / _USUAL)

    return Cost(
        works, lambda *arrays: backward * works(*arrays), int(LONG / weight / max(1, backward)), weight <= _COPIES, True
    )


def counted(works: Works, backward: float | Works = 3.0, few: int = -1) -> Cost:
    """As the function tells; its formulas as another does, or so many times as much."""
    if callable(backward):
        return Cost(works, backward, few)
    times = backward
    return Cost(works, lambda *arrays: times * works(*arrays), few)


def elements(arrays: Any) -> int:
    """Elements that are read or made, where the operands broadcast: at most those of the result, or of an operand."""
    shape, most = None, 0
    for operand in operands(arrays):
        given = operand.shape
        if shape is None:
            shape, most = given, operand.size
        elif given != shape:
            if len(given) > len(shape):
                shape, given = given, shape
            lead = len(shape) - len(given)
            if any(m != n and 1 not in (m, n) for m, n in zip(shape[lead:], given, strict=True)):
                return sum(each.size for each in operands(arrays))  # they do not broadcast
            shape = (*shape[:lead], *map(max, shape[lead:], given))
            most = max(most, operand.size, math.prod(shape))
    if any(type(value) is list for value in arrays):
        return sum(operand.size + _ITEM for operand in operands(arrays))
    return max(most, 1)


def operands(arrays: Any) -> Iterator[Any]:
    """The arrays among the arguments, those in lists too."""
    for value in arrays:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            yield value
        elif type(value) is list:
            yield from (item for item in value if hasattr(item, "shape"))


def foretell(op: Op, arrays: list[Any]) -> float:
    """The operations of an op's forward; 0 where it will refuse what it is given."""
    try:
        return float(op.cost.forward(*arrays))
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError, EngineError):
        return 0.0  # the op refuses it, in its own words


def foretell_backward(op: Op, arrays: list[Any]) -> float:
    """The operations of an op's formulas, in a backward."""
    try:
        return float(op.cost.backward(*arrays))
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError, EngineError):
        return 0.0


def attend(op: Op, context: Context, arrays: list[Any]) -> float:
    """Before an op that is not small: its operations. Raises EngineError: OP_LIMIT."""
    work = foretell(op, arrays)
    if work > context.account.operations:
        check(op.name, work, context)
    return work


def check(name: str, work: float, context: Context) -> None:
    """Whether so many operations may be done at once. Raises EngineError: OP_LIMIT."""
    most = context.account.operations
    if most and work > most:
        raise EngineError(
            Reason.OP_LIMIT,
            f"{name}() would take about {shown(work)} operations at once; the limit is {shown(most)}",
            op=name,
            operations=shown(work),
            limit=shown(most),
        )


def look(context: Context) -> None:
    """The account is pressed: let others go on before. Raises EngineError: CANCELLED if the client wants no more."""
    context.account.pressed = False
    if context.interrupt is not None:
        context.interrupt.look()


def foresee(name: str, work: float) -> None:
    """For what a composite does besides its ops. Raises EngineError: OP_LIMIT."""
    check(name, work, CURRENT.get())


def beside(name: str, work: float, compute: Callable[[], Any], room: int = 0) -> Any:
    """What a composite makes besides its ops, while others go on if it takes long. Raises EngineError: OP_LIMIT."""
    foresee(name, work)
    interrupt = CURRENT.get().interrupt
    return compute() if work < LONG or interrupt is None else interrupt.aside(compute, name, work, False, room)


def pause() -> None:
    """Within a loop of a composite that may be long: as before each op. Raises EngineError: CANCELLED."""
    context = CURRENT.get()
    if context.account.pressed:
        look(context)


def aside(op: Op, context: Context, arrays: tuple[Any, ...], work: float) -> Any:
    """What an op that takes long computes, where others need not wait for it."""
    interrupt = context.interrupt
    if interrupt is None or op.view is True:  # which computes nothing
        return op.compute(arrays)
    if context.tracer is not None:
        context.tracer.fail(f"{op.name} takes so long that it is computed aside")
    alone = not (op.view or op.draws or op.cost.copies)
    return interrupt.aside(lambda: op.compute(arrays), op.name, work, alone, needed(op, list(arrays)))


def formula_aside(node: Any, context: Context, compute: Callable[[], Any], room: int) -> Any:
    """What a formula of a node makes that takes long; of arrays, since of tensors its ops are looked at themselves.

    Raises EngineError: OP_LIMIT, CANCELLED.
    """
    check(f"the backward of {node.op.name}", node.work, context)
    if node.work < LONG or context.interrupt is None:
        return compute()
    return context.interrupt.aside(compute, node.name, node.work, not node.op.cost.copies, room)


def shown(operations: float) -> str:
    """A number of operations, for a person: whole, or so many of a power of ten."""
    return f"{operations:.0f}" if operations < 1e6 else f"{operations:.3g}".replace("e+", "e")
