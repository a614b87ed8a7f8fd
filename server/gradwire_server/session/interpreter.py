"""The interpreter: runs a program: binds its inputs, executes its steps in each repetition, names its outputs.

Each repetition has a `RunScope`, in which the handlers of tensor_commands.py look up tensors and bind results by slot.
A refused step ends the run. Effects of earlier steps remain, so a run is never retried when memory is short.
"""

import logging
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire.v1 import programs_pb2
from gradwire_engine import EngineError, Tensor
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.schedule import NotPlannable
from gradwire_engine.compile.trace import Num
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.core.device import CPU, is_writable, module_for
from gradwire_engine.core.dtypes import name_of
from gradwire_engine.op.op import Op
from gradwire_engine.ops.base.updates import Updates
from gradwire_server.common.engine_errors import describe_operands
from gradwire_server.common.errors import Refusal, began, refusal_of
from gradwire_server.session.collectives.kinds import WRITING_BY_RANK
from gradwire_server.session.command_spec import CommandSpec
from gradwire_server.session.programs import Input, Program, Step, filled, find_program, refuse_argument
from gradwire_server.session.rules import Rules
from gradwire_server.session.specs import fill_spec

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

log = logging.getLogger("gradwire.server")
MAX_REPEAT = 1 << 24
NAME_BYTES = 6  # of a program's hash, as its short name
MAX_PLANS = 4  # of a program, for inputs with different layouts or memory sharing


class RunScope:
    """A repetition's tensors by slot: the `TensorScope` of its steps.

    Limits, account, transfers and hooks are the session's. Slots were checked when the program was registered, and they
    are no ids: no tensor has an id here.
    """

    def __init__(
        self,
        session: "Session",
        commands: Mapping[str, CommandSpec],
        store: dict[int, Tensor],
        numbers: Sequence[float],
        tracer: Tracer | None = None,
    ) -> None:
        self.session = session
        self.commands = commands
        self.store = store
        self.numbers = numbers
        self.limits = session.limits
        self.account = session.account
        self.transfers = session.transfers
        self.hooks = session.hooks
        self.groups = session.groups
        self.passes: PassMemo | None = None
        self.tracer = tracer
        self.updates = Updates()
        self._traced: dict[int, tuple[Context, Context]] = {}  # a context, and the one with the tracer, by its id
        self.grad_context = self.context(0)

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        """Engine context of a step; see Session.context."""
        found, tracer = self.session.context(grad_mode, default_dtype), self.tracer
        if tracer is None:
            return found
        if found.inference:
            tracer.fail("inference mode is no part of plans")
        known = self._traced.get(id(found))
        if known is None:
            known = self._traced[id(found)] = found, replace(found, tracer=tracer)
        return known[1]

    def enter(self, context: Context) -> None:
        """Activate a context for the following ops."""
        CURRENT.set(context)

    def tensor(self, slot: int) -> Tensor:
        """The tensor of a slot. Raises Refusal: TENSOR_NOT_FOUND if an earlier step gave no result for it."""
        found = self.store.get(slot)
        if found is None:
            raise Refusal(
                "TENSOR_NOT_FOUND", f"slot {slot} holds no tensor: the step that makes it made none", slot=slot
            )
        return found

    def tensors(self, slots: Iterable[int]) -> list[Tensor]:
        """The tensors of slots."""
        return [self.tensor(slot) for slot in slots]

    def id_of(self, tensor: Tensor) -> int:
        """0: a run's tensors have no ids."""
        return 0

    def ids_of(self, tensors: Iterable[Tensor]) -> list[int]:
        """No ids, as `id_of`."""
        return []

    def check_new(self, slot: int) -> None:
        """Do nothing: slots were checked when the program was registered."""

    def check_all_new(self, slots: Sequence[int]) -> None:
        """Do nothing, as `check_new`."""

    def check_room(self, count: int) -> None:
        """Do nothing: slots do not count as the session's tensors."""

    def bind(self, slot: int, tensor: Tensor) -> int:
        """Put a tensor into a slot; slot 0 drops it."""
        if slot:
            self.store[slot] = tensor
        return slot

    def run(self, step: Step) -> Iterator[None] | None:
        """Execute one step and drop slots that no later step needs. Returns the steps of an expensive command."""
        if step.call is None:
            self.enter(self.grad_context)
            tracer = self.tracer
            spec = self.commands[step.which]
            steps = spec.step_handler(self, step.request, None) if tracer is None else self._trace(step, spec, tracer)
            if steps is not None:
                return self._finish_steps(step, steps)
        else:
            self._apply(step)
        self._drop(step)
        return None

    def _finish_steps(self, step: Step, steps: Iterator[None]) -> Iterator[None]:
        for _ in steps:
            yield
            self.enter(self.grad_context)
        self._drop(step)

    def _drop(self, step: Step) -> None:
        for slot in step.unused_after:
            self.store.pop(slot, None)

    def _trace(self, step: Step, spec: CommandSpec, tracer: Tracer) -> Iterator[None]:
        """Execute a step that is not an op and report it to the tracer; backwards report themselves."""
        request, planned = step.request, spec.planned
        if planned is None:
            tracer.fail(f"{spec.name} is no part of plans")
        elif planned.before is not None:
            planned.before(tracer, self, request)
        yield from spec.step_handler(self, request, None) or ()
        if planned is not None and planned.after is not None:
            planned.after(tracer, self, request)

    def _apply(self, step: Step) -> None:
        call, made, tracer = step.call, step.made, self.tracer
        assert call is not None
        if tracer is None:
            args = filled(step.args, self.tensor, self.numbers.__getitem__)
        else:
            args = filled(step.args, self.tensor, lambda index: Num.at(index, self.numbers[index]))
            mark = None if isinstance(call.op, Op) else tracer.mark()
        self.enter(self.context(step.request.grad_mode, step.request.default_dtype))
        try:
            gathers = step.gathers and tracer is None and type(args[0].array) is not np.ndarray
            result = self._gathered(step, args) if gathers else call.apply(args)
        except EngineError as error:
            describe_operands(error, call.name, args)
            raise
        if call.in_place:
            by_parts = isinstance(call.op, Op) or call.op.writes_by_parts
            if tracer is not None and (not by_parts or (type(call.op) is not Op and tracer.contains_number(args))):
                tracer.fail(f"{call.name} is a composite that works in place")
            return
        results = [result] if type(result) is Tensor else result
        if tracer is not None and mark is not None and not isinstance(call.op, Op):
            tracer.record_composite(mark, call.op, args, results)
        if len(made) > len(results):
            raise Refusal("ARGUMENT_VALUE", f"{call.name}() makes {len(results)} tensors, not {len(made)}")
        for slot, tensor in zip(made, results, strict=False):
            self.store[slot] = tensor

    def _gathered(self, step: Step, args: tuple[Any, ...]) -> Any:
        """Apply a step of a row of updates, which a GPU computes by one kernel."""
        target, *others = [given.array for given in args if type(given) is Tensor]
        self.updates.settle(target, others)
        with self.updates.during(step.goes_on):
            return step.call.apply(args)  # type: ignore[union-attr]


class _ProgramRun:
    """One RunProgram command; the constructor checks all arguments before any step runs."""

    def __init__(
        self, session: "Session", request: programs_pb2.RunProgramRequest, commands: Mapping[str, CommandSpec]
    ) -> None:
        self.session = session
        self.commands = commands
        self.program = program = find_program(session, request.hash)
        self._hash = request.hash
        self.repeat = request.repeat or 1
        if self.repeat > MAX_REPEAT:
            refuse_argument("repeat", f"a program is run at most {MAX_REPEAT} times, not {self.repeat}")
        given_inputs: Sequence[int] = request.inputs
        if program.by_name:
            given_inputs = _bound_by_name(program, request)
        elif request.named:
            refuse_argument("named", "the program's inputs have no names")
        inputs = program.inputs
        if len(given_inputs) != len(inputs):
            refuse_argument("inputs", f"the program has {len(inputs)} inputs, not {len(given_inputs)}")
        self.sliced = frozenset(request.sliced)
        self.first = request.first
        if self.sliced and max(self.sliced) >= len(inputs):
            refuse_argument("sliced", f"the program has {len(inputs)} inputs, counted from 0")
        given, count = len(request.numbers), program.numbers
        if program.rules is not None:
            count = len(program.rules.given)
            if any(index in self.sliced for index in program.rules.counters):
                refuse_argument("sliced", "a counter has no rows to slice")
        if given != count and given != count * self.repeat:
            refuse_argument("numbers", f"the program takes {count} numbers for each of {self.repeat} runs, not {given}")
        self.numbers: list[Sequence[float]] = [()]
        if count:
            numbers = list(request.numbers)
            self.numbers = [numbers[k : k + count] for k in range(0, given, count)]
        self.stacked = request.stacked
        self.ids = list(request.outputs)
        if len(self.ids) > len(program.outputs):
            refuse_argument("outputs", f"the program has {len(program.outputs)} outputs, not {len(self.ids)}")
        session.check_all_new(self.ids)
        session.check_room(len(program.outputs))
        self.inputs = session.tensors(given_inputs)
        for wanted, tensor in zip(inputs, self.inputs, strict=True):
            array = tensor.array
            if (
                array.shape != wanted.shape
                or array.dtype is not wanted.dtype
                or type(array) is not np.ndarray
                or tensor.requires_grad is not wanted.requires_grad
                or wanted.device != CPU
                or self.sliced
            ):
                self._check_inputs()
                break
        self.rows = -1 if program.dynamic is None else self._check_rows(program.dynamic)
        self.collected: list[Any] = []
        metadata = session.cancel_token.repeated()
        #: In a replay, the repetition that was refused, and its step; -1 else.
        self.refused_in = -1 if metadata is None else int(metadata.get("repetition", 0))
        self.refused_step = None if metadata is None or "step" not in metadata else int(metadata["step"])

    @property
    def name(self) -> str:
        """The program's short name, in op times."""
        return self._hash[:NAME_BYTES].hex()

    def _check_rows(self, first: int) -> int:
        """Number of rows of the dynamic inputs. Raises Refusal: SHAPE unless it is the same for all."""
        inputs = self.program.inputs
        rows = self._rows_of(first)
        for index, wanted in enumerate(inputs):
            if wanted.dynamic and (given := self._rows_of(index)) != rows:
                raise Refusal(
                    "SHAPE",
                    f"input {_title(index, wanted)} has {given} rows, but {_title(first, inputs[first])} has {rows}: "
                    "they must have the same number",
                    input=index,
                )
        return rows

    def _rows_of(self, index: int) -> int:
        """First size of an input in each repetition."""
        shape = self.program.inputs[index].shape if index in self.sliced else self.inputs[index].shape
        rows: int = shape[0]
        return rows

    def _check_inputs(self) -> None:
        """Check the inputs one by one. Raises Refusal: SHAPE, DTYPE, DEVICE_MISMATCH, REQUIRES_GRAD."""
        for index, (wanted, tensor) in enumerate(zip(self.program.inputs, self.inputs, strict=True)):
            self._check_input(index, wanted, tensor)

    def _check_input(self, index: int, wanted: Input, tensor: Tensor) -> None:
        shape: tuple[int, ...] = tensor.shape
        title = _title(index, wanted)
        if index in self.sliced:
            rows = wanted.shape[0] * (self.first + self.repeat) if wanted.shape else 0
            if not wanted.shape or not shape or shape[1:] != wanted.shape[1:] or shape[0] < rows:
                raise Refusal(
                    "SHAPE",
                    f"input {title} is cut into {self.first + self.repeat} slices of {list(wanted.shape)}, which "
                    f"{list(shape)} does not give",
                    input=index,
                )
            if tensor.requires_grad:
                raise Refusal("REQUIRES_GRAD", f"input {title} is sliced and may not require a gradient", input=index)
        elif wanted.dynamic:
            if shape[1:] != wanted.shape[1:] or not shape or not shape[0]:
                sizes = ", ".join(["n", *map(str, wanted.shape[1:])])
                raise Refusal("SHAPE", f"input {title} must have shape [{sizes}], not {list(shape)}", input=index)
        elif shape != wanted.shape:
            raise Refusal(
                "SHAPE", f"input {title} must have shape {list(wanted.shape)}, not {list(shape)}", input=index
            )
        if tensor.dtype != wanted.dtype:
            raise Refusal(
                "DTYPE", f"input {title} must be {name_of(wanted.dtype)}, not {name_of(tensor.dtype)}", input=index
            )
        if tensor.device != wanted.device:
            raise Refusal(
                "DEVICE_MISMATCH", f"input {title} must be on {wanted.device}, not {tensor.device}", input=index
            )
        if tensor.requires_grad != wanted.requires_grad:
            needs = "require a gradient" if wanted.requires_grad else "require no gradient"
            raise Refusal("REQUIRES_GRAD", f"input {title} must {needs}", input=index)

    def slice(self, index: int, repetition: int) -> Tensor:
        """The tensor bound to an input in a repetition."""
        tensor = self.inputs[index]
        if index not in self.sliced:
            return tensor
        rows = self.program.inputs[index].shape[0]
        begin = (self.first + repetition) * rows
        return Tensor(tensor.array[begin : begin + rows], storage=tensor.storage)

    def all(self) -> Generator[None, None, list[Tensor]]:
        """Run all repetitions; return the outputs. Yields in pauses."""
        outputs: list[Tensor] = []
        for repetition in range(self.repeat):
            numbers: Sequence[float] = self.numbers[repetition if len(self.numbers) > 1 else 0]
            if self.program.rules is not None:
                yield from self._pause(repetition)
                numbers = self._evaluate(self.program.rules, numbers, repetition)
            if repetition == self.refused_in:
                yield from self._until_refused(repetition, numbers)
            outputs = yield from self.once(repetition, numbers)
            if self.stacked:
                try:
                    self._collect(repetition, outputs)
                except (EngineError, MemoryError) as error:
                    raise self.failed(error, None, repetition) from None
        if not self.stacked:
            return outputs
        try:
            return [Tensor(array) for array in self.collected]
        except (EngineError, MemoryError) as error:
            raise self.failed(error, None, self.repeat - 1) from None

    def _pause(self, repetition: int) -> Iterator[None]:
        """Yield if the turn is over. Raises Refusal if the run is cancelled; a program may have rules only."""
        cancel_token = self.session.cancel_token
        if monotonic() >= cancel_token.at:
            if not cancel_token.stopping():
                yield
            if cancel_token.stopping():
                raise self.failed(self._stopped(), None, repetition)

    def _evaluate(self, rules: Rules, given: Sequence[float], repetition: int) -> list[float]:
        """Evaluate the rules, set the counters, and return the repetition's numbers. Raises Refusal."""
        inputs = self.inputs
        try:
            numbers, changed = rules.evaluate([float(inputs[index].array) for index in rules.counters], given)
            for index in changed:
                if not is_writable(inputs[index].array):
                    refuse_argument("inputs", f"input {index} is a counter and cannot be written")
        except Refusal as refusal:
            raise self.failed(refusal, None, repetition) from None
        for index, value in changed.items():
            counter = inputs[index]
            counter.array[...] = value
            counter.storage.changed()
        return numbers

    def once(self, repetition: int, numbers: Sequence[float]) -> Generator[None, None, list[Tensor]]:
        """Run one repetition, by its plan or step by step; return the outputs. Yields in pauses."""
        bound = [self.slice(index, repetition) for index in range(len(self.inputs))] if self.sliced else self.inputs
        plan = self._plan(bound)
        times = self.session.activity.op_times
        if times is not None:
            times.begin("program", self.name)
        if isinstance(plan, Plan):
            self.program.planned_runs += 1
            try:
                return (yield from plan.run(bound, numbers, self.session.grad_context))
            except Exception as error:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
                raise self.failed(error, plan.failed_step, repetition) from None
        self.program.stepwise_runs += 1
        scope = RunScope(self.session, self.commands, dict(enumerate(bound, 1)), numbers, plan)
        cancel_token = self.session.cancel_token
        done = 0
        try:
            for step in self.program.steps:
                if monotonic() >= cancel_token.at and not scope.updates.waiting:
                    if not cancel_token.stopping():
                        yield
                    if cancel_token.stopping():
                        raise self._stopped()
                if plan is not None:
                    plan.step = done
                if times is not None:
                    times.begin("step", step.which if step.call is None else step.call.name)
                steps = scope.run(step)
                if steps is not None:
                    yield from steps
                done += 1
        except Exception as error:  # noqa: BLE001 - becomes this step's refusal; the unforeseen is logged
            scope.updates.flush()  # those of earlier steps
            raise self.failed(error, done, repetition) from None
        if times is not None:
            times.begin("program", self.name)  # making its plan
        try:
            outputs = scope.tensors(self.program.outputs)
        except Refusal as refusal:
            raise self.failed(refusal, None, repetition) from None
        if plan is not None:
            self._keep_plan(plan, outputs)
        return outputs

    def _until_refused(self, repetition: int, numbers: Sequence[float]) -> Iterator[None]:
        """Run the steps before the refused one, or all if none was, as the original run did. Raises that refusal."""
        bound = [self.slice(index, repetition) for index in range(len(self.inputs))]
        scope = RunScope(self.session, self.commands, dict(enumerate(bound, 1)), numbers)
        try:
            for step in self.program.steps[: self.refused_step]:
                yield from scope.run(step) or ()
        finally:
            scope.updates.flush()
        raise began(self.session.cancel_token.refusal())

    def _plan(self, bound: Sequence[Tensor]) -> Plan | Tracer | None:
        """A plan that fits the inputs, or a tracer to build one in this run; None to run step by step."""
        if [tensor for tensor in bound if tensor.state is not None and tensor.state.hooks]:
            # Step by step, a backward that reaches a hook is refused.
            self.program.stepwise_because = "an input has hooks"
            return None
        if self.session.durability.replayed is not None and self._depends_on_rank():
            # A plan knows what its collectives wrote, and a replay does not know the rank that the session had.
            return None
        plans = self.program.plans
        dynamic = self.program.dynamic
        for place, plan in enumerate(plans):
            if (dynamic is None or plan.input_shape(dynamic)[0] == self.rows) and plan.fits(bound):
                plans[place] = plan.fastest(self.session.account)
                return plans[place]
        if self.program.tries >= MAX_PLANS:
            if self.program.plans:
                self.program.stepwise_because = f"its inputs were of more than {MAX_PLANS} kinds"
            return None
        self.program.tries += 1
        on_gpu = any(tensor.device != CPU for tensor in bound)
        fuses = OPTIONS.fuses(on_gpu) and self._may_fuse()
        tracer = Tracer(bound, fuses, shared=self.session.groups.has_ranks())
        if tracer.failed is None:
            return tracer
        self.program.stepwise_because = tracer.failed
        return None

    def _depends_on_rank(self) -> bool:
        """Whether it depends on the session's rank which tensors a collective of the program writes."""
        steps = self.program.steps
        return any(step.which == "collective" and step.request.kind in WRITING_BY_RANK for step in steps)

    def _may_fuse(self) -> bool:
        """Whether plans may change to machine code: a replay must repeat every bit, but counts from a checkpoint on."""
        return self.session.durability.log_notes is None

    def _keep_plan(self, tracer: Tracer, outputs: Sequence[Tensor]) -> None:
        program = self.program
        try:
            plan = Plan(tracer, outputs, program.numbers, self.session.account)
            if not self._may_fuse():
                plan.fusion = None
            program.plans.append(plan)
        except (NotPlannable, EngineError, MemoryError) as why:  # the last two: memory is short
            program.stepwise_because = str(why)
            log.debug("a program is run step by step: %s", why)

    def _collect(self, repetition: int, outputs: Sequence[Tensor]) -> None:
        if not repetition:
            self.session.account.admit(self.repeat * sum(math.prod(out.shape) * out.dtype.itemsize for out in outputs))
            self.collected = [module_for(out.device).empty((self.repeat, *out.shape), out.dtype) for out in outputs]
        for index, output in enumerate(outputs):
            if output.shape != self.collected[index].shape[1:]:
                raise Refusal(
                    "SHAPE", f"output {index} has another shape in repetition {repetition} and cannot be stacked"
                )
            self.collected[index][repetition] = output.array

    def _stopped(self) -> Refusal:
        refusal = self.session.cancel_token.refusal()
        return Refusal(refusal.reason, refusal.message.replace("; no tensor has changed", ""))

    def failed(self, error: Exception, step: int | None, repetition: int) -> Refusal:
        """Refusal of a failed step, with its place. Never an error that would make the command be retried."""
        if isinstance(error, EngineError) and error.reason.value == "CANCELLED":
            error = self._stopped()
        refusal = refusal_of(error, "a program" if step is None else f"step {step} of a program")
        if step is not None:
            refusal.metadata["step"] = str(step)
        refusal.metadata["repetition"] = str(repetition)
        return began(refusal)


def _title(index: int, wanted: Input) -> str:
    return repr(wanted.name) if wanted.name else str(index)


def _bound_by_name(program: Program, request: programs_pb2.RunProgramRequest) -> list[int]:
    """The inputs' ids, those given by name in their places. Raises Refusal: ARGUMENT_VALUE."""
    ids = [*request.inputs, *[0] * (len(program.inputs) - len(request.inputs))]
    if len(ids) > len(program.inputs):
        refuse_argument("inputs", f"the program has {len(program.inputs)} inputs, not {len(ids)}")
    for named in request.named:
        index = program.by_name.get(named.name)
        if index is None:
            allowed = ", ".join(program.by_name) or "none"
            raise Refusal(
                "ARGUMENT_VALUE",
                f"the program has no input {named.name[:100]!r}; it has {allowed}",
                argument="named",
                given=named.name[:100],
                allowed=allowed,
            )
        if ids[index]:
            refuse_argument("named", f"input {named.name!r} is given twice")
        ids[index] = named.id
    if not all(ids):
        missing = [_title(index, wanted) for index, wanted in enumerate(program.inputs) if not ids[index]]
        refuse_argument("named", f"the program's inputs {', '.join(missing)} are not given")
    return ids


def run_program(
    session: "Session",
    request: programs_pb2.RunProgramRequest,
    answer: programs_pb2.RunProgramResponse | None,
    commands: Mapping[str, CommandSpec],
) -> Iterator[None]:
    """Run a program, whose steps are of `commands`, and bind its outputs; yields in pauses."""
    session.enter(session.grad_context)
    run = _ProgramRun(session, request, commands)
    try:
        outputs = yield from run.all()
    except Refusal as refusal:
        for step in run.program.steps:  # other ranks wait for those that this run left out
            if (refused := commands[step.which].refused) is not None:
                refused(session, step.request, refusal)
        raise
    session.current = session.grad_context
    CURRENT.set(session.grad_context)
    names: Sequence[int] = ()
    try:
        names = session.allot(run.ids, len(outputs))
        for tensor_id, tensor in zip(names, outputs, strict=True):
            session.bind(tensor_id, tensor)
            if answer is not None:
                fill_spec(answer.outputs.add(), tensor, tensor_id)
    except Exception as error:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
        for tensor_id in names:
            session.store.pop(tensor_id, None)
        raise run.failed(error, None, run.repeat - 1) from None
