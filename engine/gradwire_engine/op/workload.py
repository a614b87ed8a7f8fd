"""Refuse an op that costs more than the account's limit, and compute one that takes long aside; cost.py has the costs.

An op is refused before anything is allocated. One that takes long is handed to the context's interrupt, which may
compute it where it can be ended (`Interrupt.aside`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.admission import needed
from gradwire_engine.op.cost import LONG

if TYPE_CHECKING:
    from gradwire_engine.core.context import Context
    from gradwire_engine.op.declaration import Declaration


def foretell(op: Declaration, arrays: list[Any]) -> float:
    """The operations of an op's forward; 0 where it will refuse what it is given."""
    try:
        return float(op.cost.forward(*arrays))
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError, EngineError):
        return 0.0  # the op refuses it, in its own words


def foretell_backward(op: Declaration, arrays: list[Any]) -> float:
    """The operations of an op's formulas, in a backward."""
    try:
        return float(op.cost.backward(*arrays))
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError, EngineError):
        return 0.0


def attend(op: Declaration, context: Context, arrays: list[Any]) -> float:
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


def aside(op: Declaration, context: Context, arrays: tuple[Any, ...], work: float) -> Any:
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
