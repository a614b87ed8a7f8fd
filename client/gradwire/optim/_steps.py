"""Steps as programs: a step is one command.

The first step is noted without its ops being run (`_noted`). Where a note cannot tell it, it runs op by op and makes
the optimizer's state. The second one like it is noted, or recorded (recorder.py), and kept as a program. Each later
step sends the program's number and the changing numbers: learning rates, bias corrections.
Before each step everything that the program depends on is compared. Changes from outside (a group's option, a loaded
state, a missing gradient) are always detected. Then that step runs op by op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._compile.recorded_run import RECORDING, LeafGradients, run_recorded
from gradwire._compile.recorder import KnownAnswers, RecordedProgram, Recorder
from gradwire._compile.recordings import run_program
from gradwire._dispatch.modes import MODES
from gradwire._graph import commands
from gradwire._graph.sparse_gradients import sparse_part
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import DRAWING_OPS, WRITING_OPS
from gradwire._proxy.results import new_proxy
from gradwire._transport.wire import Value
from gradwire.optim._noted import NotedStep, note_step
from gradwire.optim._plain_updates import NUMBERS
from gradwire.v1 import programs_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol
    from gradwire.optim._optimizer import Optimizer

_PLAIN = (int, float, bool, str, type(None))
# What schedulers change from step to step, and every optimizer hands on as a number of the program.
_FREE = ("params", "param_names", "lr")
# Number of steps without a program, after which all steps run op by op.
_MOST_FAILURES = 2
# Elements of all tensors of a step, up to which the server has the memory.
_MOST_ELEMENTS = 1 << 18
StepState = tuple[Any, ...]


class Steps:
    """How an optimizer makes its steps."""

    def __init__(self) -> None:
        self._is_first = True
        self._last: StepState | None = None
        self._program: _StepProgram | None = None
        self._failures = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Steps:
        return Steps()

    def __guard__(self) -> None:
        """None: a compiled function that makes steps does not depend on how."""

    def __reduce__(self) -> Any:
        return (Steps, ())

    def make(self, optimizer: Optimizer, update: Callable[[], None]) -> None:
        """One step: `update`, or the program that does the same."""
        session = _session_of(optimizer)
        if (
            session is None
            or session.recorder is not None
            or session.every_call_waits
            or MODES.get()  # which see each op
            or self._failures >= _MOST_FAILURES
        ):
            optimizer._read_numbers()
            update()
            return
        step_state = _step_state(optimizer)
        if step_state is not None and self._program is not None and self._program.step_state == step_state:
            self._program.run()
            return
        is_first, self._is_first = self._is_first, False
        is_repeated = step_state is not None and step_state == self._last
        noted = note_step(session, optimizer) if step_state is not None and (is_first or is_repeated) else None
        if noted is not None and (step_state := _step_state(optimizer)) is not None:
            self._program, self._last = _StepProgram(session, step_state, noted, is_floating=True), None
            self._program.send(noted.values)
            return
        if not is_repeated:
            _name_gradients(session, optimizer)
            update()
            self._last = _step_state(optimizer)
            return
        assert step_state is not None
        self._program = _record(session, optimizer, update, step_state)
        self._failures += self._program is None
        self._last = None


def _session_of(optimizer: Optimizer) -> SessionProtocol | None:
    """The session of all parameters; None if there are two, or a parameter is a non-leaf or complex."""
    found: SessionProtocol | None = None
    for group in optimizer.param_groups:
        for param in group["params"]:
            if found is None:
                found = param._session
            spec = param._spec
            if param._session is not found or not spec.is_leaf or spec.dtype.is_complex:
                return None
    return found


def _name_gradients(session: SessionProtocol, optimizer: Optimizer) -> None:
    """Name the parameters' gradients at once, so that the first step does not wait for each."""
    params = [param for group in optimizer.param_groups for param in group["params"] if sparse_part(param) is None]
    for param, number, spec in commands.name_grads(session, params):
        param._grad = new_proxy(session, number, spec)


def _step_state(optimizer: Optimizer) -> StepState | None:
    """All that a step depends on, but for the values of tensors and the free numbers; None if it is not plain."""
    seen: list[Any] = []
    first_step: Any = None
    numbers: dict[Any, dict[Any, int]] = {}
    state = optimizer.state
    for group in optimizer.param_groups:
        if type(group.get("lr")) not in (int, float):
            return None
        for name, option in group.items():
            if name not in _FREE:
                if not isinstance(option, _PLAIN) and not (
                    type(option) in (tuple, list) and all(isinstance(each, _PLAIN) for each in option)
                ):
                    return None
                seen.append(tuple(option) if type(option) is list else option)
        for param in group["params"]:
            if sparse_part(param) is not None:
                return None
            if param._grad is UNKNOWN:
                _ = param.grad
            seen.append(param._id)
            seen.append(param._spec)
            seen.append(param._grad is None)
            held = state.get(param)
            if held is None:
                continue
            seen.append(id(held))  # whose numbers a program counts
            for name, value in held.items():
                if isinstance(value, Handle):
                    if name in NUMBERS:
                        optimizer._read_numbers()
                        return _step_state(optimizer)
                    seen.append(value._id)
                elif name == "step":
                    # Parameters that are equally far share their numbers.
                    first_step = value if first_step is None else first_step
                    seen.append(value - first_step)
                elif name in NUMBERS and type(value) is float:  # shared by those of a group with equal numbers
                    alike = numbers.setdefault((id(group), name, held.get("step")), {})
                    seen.append(alike.setdefault(value, len(alike)))
                elif isinstance(value, _PLAIN):
                    seen.append(name)
                else:
                    return None
    return tuple(seen)


def _record(
    session: SessionProtocol, optimizer: Optimizer, update: Callable[[], None], step_state: StepState
) -> _StepProgram | None:
    """Make a step and keep it as a program, if it may be one."""
    with RECORDING:
        recorder = Recorder(session)
        recorder.known = KnownAnswers(session, session.memo)  # the last step made the same calls
        held = [param for group in optimizer.param_groups for param in group["params"]]
        held += [value for each in optimizer.state.values() for value in each.values() if isinstance(value, Handle)]
        recorder.handles.update((handle._id, handle) for handle in held)
        gradients = LeafGradients(session)
        try:
            run_recorded(update, (), {}, session, recorder)
        finally:
            gradients.leave(recorder)
    known = {id(leaf._grad) for leaf in session.watched.values()}
    if any(id(handle) not in known for handle in recorder.live_handles()) or _step_state(optimizer) != step_state:
        return None  # it makes its state anew each time
    trace = RecordedProgram(recorder, (), ())
    limits = session.limits
    if len(trace.data) > limits.max_program_bytes or len(trace.program.steps) > limits.max_program_steps:
        return None
    changed = {
        command.op.args[0].tensor
        for command in recorder.commands
        if command.WhichOneof("command") == "op" and command.op.op.endswith("_")
    }
    written = [handle for handle in trace.captures if handle._id in changed]
    is_floating = not any(map(_may_draw, recorder.commands)) and all(
        handle._spec.dtype.is_floating_point or handle._spec.dtype.is_complex for handle in written
    )
    counters = list(recorder.counters.values())
    step = NotedStep(trace.data, trace.hash, trace.captures, written, recorder.numbers, [], counters)
    return _StepProgram(session, step_state, step, is_floating=is_floating)


def _may_draw(command: service_pb2.Command) -> bool:
    """Whether a recorded command may draw random numbers, or write to operands that its name does not tell."""
    if command.WhichOneof("command") != "op":
        return command.WhichOneof("command") not in ("grad", "set_grad")
    return command.op.op in DRAWING_OPS or command.op.op in WRITING_OPS


class _StepProgram:
    """A step as a program, and the optimizer state that it is valid for."""

    def __init__(self, session: SessionProtocol, step_state: StepState, step: NotedStep, *, is_floating: bool) -> None:
        self.step_state = step_state
        self._session = session
        self._step = step
        self._is_floating = is_floating
        captures = [handle._id for handle in step.captures]

        def build(values: Sequence[Value]) -> service_pb2.Command:
            request = programs_pb2.RunProgramRequest(hash=step.hash, inputs=captures, numbers=values, repeat=1)
            return service_pb2.Command(run_program=request)

        self._build = build
        #: Whether the server has the memory, so that the first run need not wait.
        self._is_certain = sum(math.prod(handle._spec.shape) for handle in step.captures) <= _MOST_ELEMENTS
        # Another program of the same bytes has other tensors.
        self._key = (self,)

    def run(self) -> None:
        """Make the step."""
        for count in self._step.counters:
            count(1)
        self.send([float(now(0)) for now in self._step.numbers])

    def send(self, numbers: list[float]) -> None:
        """Make the step with these numbers."""
        run_program(
            self._session,
            self._step,
            lambda: self._send(numbers),
            of_optimizer=self._is_floating,
            certain=self._is_certain,
        )
        for handle in self._step.changed:
            storage = handle._storage
            if storage is not None:
                storage.written()
                handle._changes_seen = storage.changes
        self._session.flush_early()

    def _send(self, numbers: list[float]) -> None:
        told = _nothing if self._is_certain else None
        commands.run(self._session, "run_program", self._key, numbers, self._build, told=told)


def _nothing() -> tuple[()]:
    return ()
