"""Programs of a data-parallel step: its recorded commands, with the exchanges of its arguments and results.

The programs of the caller's session, rank 0, and of the other ranks differ in one step: rank 0 gives the rows of the
sliced arguments. So a step is one command for each rank, and the exchanges are steps of its plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradwire.v1 import collectives_pb2 as pb
from gradwire.v1 import commands_pb2, programs_pb2, types_pb2

if TYPE_CHECKING:
    from gradwire._compile.recorder import RecordedProgram

#: Dtype and device of tensors that one reduction may hold.
Kind = tuple[Any, Any]
# Ops whose results have memory of their own: no step changes them that does not name them or a view of them.
_OWN_MEMORY = frozenset(
    (
        "mean", "sum", "add", "sub", "mul", "div", "neg", "cross_entropy", "nll_loss", "mse_loss", "l1_loss",
        "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
    )
)  # fmt: skip


@dataclass
class Exchanges:
    """What the ranks of a group exchange in a step.

    rows: by the place of a sliced argument, the rows of each rank. whole: places of the other arguments. means: by
    kind, the outputs of which means are taken. averages: the kinds of the averages that the recorded step has.
    """

    group: str
    ranks: int
    timeout_ms: int
    rows: Mapping[int, int]
    whole: Mapping[Kind, Sequence[int]]
    means: Mapping[Kind, Sequence[int]]
    averages: Sequence[Kind]

    def step(self, kind: pb.CollectiveKind, inputs: Sequence[int], outputs: Sequence[int] = ()) -> Any:
        """A step in which all ranks take part."""
        request = pb.CollectiveRequest(
            kind=kind, group=self.group, inputs=inputs, outputs=outputs, timeout_ms=self.timeout_ms
        )
        if kind == pb.COLLECTIVE_KIND_ALL_REDUCE:
            request.op = pb.REDUCE_OP_AVG
        return programs_pb2.ProgramStep(collective=request)


def divide(trace: RecordedProgram, exchanges: Exchanges) -> tuple[programs_pb2.Program, programs_pb2.Program]:
    """The programs of rank 0 and of the other ranks.

    The trace has left room for as many inputs as there are sliced arguments. Rank 0's are bound to the whole tensors.
    """
    shared = programs_pb2.Program()
    shared.CopyFrom(trace.program)
    slots = itertools.count(1 + len(shared.inputs) + len(exchanges.rows) + max(trace.slots.values(), default=0))
    _take_means(shared, exchanges, slots)
    steps = [
        *(
            exchanges.step(pb.COLLECTIVE_KIND_BROADCAST, [at + 1 for at in places])
            for places in exchanges.whole.values()
        ),
        *shared.steps,
    ]
    made = []
    first = next(slots)
    for gives in (True, False):
        program = programs_pb2.Program()
        program.CopyFrom(shared)
        del program.steps[:]
        if exchanges.rows:
            program.steps.extend(_scattering(program, exchanges, itertools.count(first), gives))
        program.steps.extend(steps)
        made.append(program)
    return made[0], made[1]


def _scattering(
    program: programs_pb2.Program, exchanges: Exchanges, slots: Iterator[int], gives: bool
) -> Iterator[Any]:
    """Give each rank its rows of all sliced arguments in one exchange. They are bytes, if their dtypes differ."""
    places = sorted(exchanges.rows)
    as_bytes = len({program.inputs[place].dtype for place in places}) > 1
    given: list[int] = []
    taken: list[int] = []

    def shown(slot: int) -> Generator[Any, None, int]:
        if not as_bytes:
            return slot
        seen = next(slots)
        yield _op("view_dtype", seen, slot, types_pb2.Argument(dtype=types_pb2.DTYPE_UINT8))
        return seen

    if gives:
        first = len(program.inputs) + 1
        for place in places:
            program.inputs.add().CopyFrom(program.inputs[place])
            program.inputs[-1].shape[0] *= exchanges.ranks
        for rank in range(exchanges.ranks):
            for whole, place in enumerate(places, first):
                rows, part = exchanges.rows[place], next(slots)
                numbers = [types_pb2.Argument(integer=each) for each in (0, rank * rows, rows)]
                yield _op("narrow", part, whole, *numbers)
                given.append((yield from shown(part)))
    for place in places:
        taken.append((yield from shown(place + 1)))  # noqa: PERF401 - no comprehension may yield
    yield exchanges.step(pb.COLLECTIVE_KIND_SCATTER, given, taken)


def _take_means(program: programs_pb2.Program, exchanges: Exchanges, slots: Iterator[int]) -> None:
    """Replace outputs by their means over the ranks.

    An output that is ready before the last average of its kind joins it, and costs no exchange of its own.
    """
    averages = [place for place, step in enumerate(program.steps) if step.WhichOneof("step") == "collective"]
    copied: dict[int, list[Any]] = {}  # by the place of a step: what comes before it
    for kind, outputs in exchanges.means.items():
        joined = [place for place, other in zip(averages, exchanges.averages, strict=True) if other == kind]
        late: list[int] = []
        for output in outputs:
            slot, copy = program.outputs[output], next(slots)
            program.outputs[output] = copy
            if joined and _is_settled(program, slot, joined[-1]):
                program.steps[joined[-1]].collective.inputs.append(copy)
                copied.setdefault(joined[-1], []).append(_op("clone", copy, slot))
            else:
                copied.setdefault(len(program.steps), []).append(_op("clone", copy, slot))
                late.append(copy)
        if late:
            copied[len(program.steps)].append(exchanges.step(pb.COLLECTIVE_KIND_ALL_REDUCE, late))
    steps = list(program.steps)
    del program.steps[:]
    for place in range(len(steps) + 1):
        program.steps.extend([*copied.get(place, ()), *steps[place : place + 1]])


def _is_settled(program: programs_pb2.Program, slot: int, place: int) -> bool:
    """Whether a slot has its final values before a step: an op made it there, and later steps change only others."""
    inputs = len(program.inputs)
    maker = next((at for at, step in enumerate(program.steps) if slot in step.op.outputs), place)
    if maker >= place or program.steps[maker].op.op not in _OWN_MEMORY:
        return False
    fresh = {step.grad.id for step in program.steps if step.WhichOneof("step") == "grad"}
    for step in program.steps[maker + 1 :]:
        if step.WhichOneof("step") == "set_data":
            return False
        if step.WhichOneof("step") == "op" and (step.op.op.endswith("_") or not step.op.outputs):
            target = step.op.args[0].tensor if step.op.args else 0
            if not 0 < target <= inputs and target not in fresh:
                return False
        fresh.update(step.op.outputs if step.op.op in _OWN_MEMORY else ())
    return True


def _op(name: str, made: int, given: int, *args: types_pb2.Argument) -> Any:
    operand = types_pb2.Argument(tensor=given)
    return programs_pb2.ProgramStep(
        op=commands_pb2.OpRequest(
            op=name, args=[operand, *args], outputs=[made], grad_mode=types_pb2.GRAD_MODE_DISABLED
        )
    )
