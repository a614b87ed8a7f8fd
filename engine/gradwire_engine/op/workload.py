"""Workload: refuses ops that cost more than the account's limit, and computes expensive ops apart.

cost.py has the costs. An op is refused before any allocation. An expensive op is passed to the context's interrupt
(`Interrupt.offload`), which may compute it in another process. That process can be killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import cupy
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.admission import needed
from gradwire_engine.op.cost import LONG

if TYPE_CHECKING:
    from gradwire_engine.core.context import Context
    from gradwire_engine.op.declaration import Declaration


def estimate(op: Declaration, arrays: list[Any]) -> float:
    """Estimated operations of an op's forward; 0 for arguments that the op will refuse."""
    try:
        return float(op.cost.forward(*arrays))
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError, EngineError):
        return 0.0  # the op raises its own error for these arguments


def estimate_backward(op: Declaration, arrays: list[Any]) -> float:
    """Estimated operations of an op's formulas in backward."""
    try:
        return float(op.cost.backward(*arrays))
    except (IndexError, TypeError, AttributeError, ValueError, ZeroDivisionError, OverflowError, EngineError):
        return 0.0


def check_cost(op: Declaration, context: Context, arrays: list[Any]) -> float:
    """Estimate an op's operations before it runs, and check the limit. Raises EngineError: OP_LIMIT."""
    work = estimate(op, arrays)
    if work > context.account.operations:
        check(op.name, work, context)
    return work


def check(name: str, work: float, context: Context) -> None:
    """Check operations against the account's limit per op. Raises EngineError: OP_LIMIT."""
    most = context.account.operations
    if most and work > most:
        raise EngineError(
            Reason.OP_LIMIT,
            f"{name}() would take about {shown(work)} operations at once; the limit is {shown(most)}",
            op=name,
            operations=shown(work),
            limit=shown(most),
        )


def check_interrupt(context: Context) -> None:
    """Let other sessions compute, when the account is pressed. Raises EngineError: CANCELLED."""
    context.account.pressed = False
    if context.interrupt is not None:
        context.interrupt.poll()


def check_composite(name: str, work: float) -> None:
    """Check the limit for a composite's work outside its ops. Raises EngineError: OP_LIMIT."""
    check(name, work, CURRENT.get())


def offload_work(name: str, work: float, compute: Callable[[], Any], room: int = 0) -> Any:
    """Compute a composite's work outside its ops; apart, if it is expensive. Raises EngineError: OP_LIMIT."""
    check_composite(name, work)
    interrupt = CURRENT.get().interrupt
    return compute() if work < LONG or interrupt is None else interrupt.offload(compute, name, work, False, room)


def pause() -> None:
    """Pause in a composite's long loop if the account is pressed, as before each op. Raises EngineError: CANCELLED."""
    context = CURRENT.get()
    if context.account.pressed:
        check_interrupt(context)


def offload_op(op: Declaration, context: Context, arrays: tuple[Any, ...], work: float) -> Any:
    """Compute an expensive op apart, so that other sessions need not wait."""
    interrupt = context.interrupt
    if interrupt is None or op.view is True or _is_on_gpu(arrays):  # a view computes nothing
        return op.compute(arrays)
    if context.tracer is not None:
        context.tracer.fail(f"{op.name} takes so long that it is offloaded")
    alone = not (op.view or op.draws or op.cost.copies)
    given = [getattr(value, "dtype", None) for value in arrays]
    compute = _with_declared_loops(op, context, given, lambda: op.compute(arrays))
    return interrupt.offload(compute, op.name, work, alone, needed(op, list(arrays)))


def _is_on_gpu(values: Iterable[Any]) -> bool:
    """Whether one of these is an array of a GPU, or a list of them.

    Such an op returns when its work is in the GPU's queue, so it is not computed apart: a plan may contain it, and it
    has its kernels.
    """
    module: Any = cupy()
    if module is None:
        return False
    items = (item for value in values for item in (value if type(value) in (list, tuple) else (value,)))
    return any(isinstance(item, module.ndarray) for item in items)


def offload_formula(node: Any, context: Context, gradient: Any, compute: Callable[[], Any], room: int) -> Any:
    """Compute a node's formula on arrays; apart, if it is expensive. On tensors, its ops are checked one by one.

    Raises EngineError: OP_LIMIT, CANCELLED.
    """
    check(f"the backward of {node.op.name}", node.work, context)
    if node.work < LONG or context.interrupt is None or _is_on_gpu((gradient,)):
        return compute()
    compute = _with_declared_loops(node.op, context, [meta[1] for meta in node.metas if meta is not None], compute)
    return context.interrupt.offload(compute, node.name, node.work, not node.op.cost.copies, room)


def _with_declared_loops(
    op: Declaration, context: Context, found: Iterable[Any], compute: Callable[[], Any]
) -> Callable[[], Any]:
    """The same computation with the loops that the op declares and no others, loaded for operands of these dtypes.

    Whether it runs in a fork, which can load none, then makes no difference. Raises EngineError: CANCELLED.
    """
    if context.loops is None:
        return compute
    wanted = {"d" if dtype == dtypes.float64 else "f" for dtype in found if dtype is not None} if op.loops else ()
    loops = context.loops.only([(name, dtype) for name in op.loops for dtype in sorted(wanted)])

    def run() -> Any:
        token = CURRENT.set(replace(CURRENT.get(), loops=loops))
        try:
            return compute()
        finally:
            CURRENT.reset(token)

    return run


def shown(operations: float) -> str:
    """A number of operations as text: an integer below 1e6, else three significant digits."""
    return f"{operations:.0f}" if operations < 1e6 else f"{operations:.3g}".replace("e+", "e")
