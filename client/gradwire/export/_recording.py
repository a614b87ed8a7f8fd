"""Recording: calls a function with example inputs and makes a program of its commands, with names and rules.

The function is called twice, first to make what only a first call makes: gradients, an optimizer's state. The second
call is recorded. Afterwards everything is as before: values, gradients, numbers, the random generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradwire._base import dtypes
from gradwire._base.modes import no_grad
from gradwire._compile.recorded_run import RECORDING, LeafGradients, run_recorded
from gradwire._compile.recorder import RecordedProgram, Recorder
from gradwire._compile.result_structure import map_tensors
from gradwire._functions.create import tensor
from gradwire._functions.random import get_rng_state, set_rng_state
from gradwire._session.sessions import current_session
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.export._counters import Counters, Rules, refusal, step_numbers
from gradwire.export._names import Reached, parameters_of
from gradwire.export._tensors import (
    OutsideTensors,
    distinct_arguments,
    input_names,
    output_names,
)
from gradwire.v1 import programs_pb2


@dataclass
class RecordedFunction:
    """A program and the values of its state."""

    program: programs_pb2.Program
    #: By name: copies of the tensors that the function reads, as they were before it.
    state: dict[str, Tensor]
    #: By name: what the tensor is a copy of. Programs of one file share what has the same source.
    sources: dict[str, Any]

    @property
    def data(self) -> bytes:
        """The serialized program."""
        return self.program.SerializeToString(deterministic=True)


def record(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Sequence[str]
) -> RecordedFunction:
    """Record a function with example inputs; `dynamic` are the inputs whose first dimension may have any size.

    Raises GradwireRuntimeError (NOT_SUPPORTED) for a function that no program can repeat.
    """
    if not callable(function):
        raise TypeError(f"export() takes a function or a module, but got {type(function).__name__}")
    names = input_names(function, args, kwargs)
    unknown = [name for name in dynamic if name not in names]
    if unknown:
        raise ValueError(f"there is no tensor argument {unknown[0]!r} to be dynamic; there are {', '.join(names)}")
    reached = Reached(function)
    args, kwargs = distinct_arguments(args, kwargs, reached)
    names = input_names(function, args, kwargs)
    with _Unchanged(reached, names) as before:
        recording = _Recording(function, args, kwargs, names, reached, before)
        if dynamic:
            recording.check_dynamic(dynamic)
    return recording.made


class _Unchanged:
    """Puts everything back that calls of the function change."""

    def __init__(self, reached: Reached, inputs: Mapping[str, Tensor]) -> None:
        self._reached, self._inputs = reached, inputs
        #: By name: the values of the tensors.
        self.copies: dict[str, Tensor] = {}

    def __enter__(self) -> _Unchanged:
        reached = self._reached
        self._random = get_rng_state()
        self._fresh: list[tuple[Any, Any]] = []
        for optimizer in reached.optimizers.values():
            for group in optimizer.param_groups:
                for param in group["params"]:
                    if not optimizer.state.get(param):
                        optimizer.state[param] = dict(optimizer._initial_state(param, group))
                        self._fresh.append((optimizer, param))
        reached.refresh()
        tensors = reached.tensors
        with no_grad():
            self.copies = {name: held.detach().clone() for name, held in tensors.items()}
            self._versions = versions_of(tensors)
            self._given = {name: held.detach().clone() for name, held in self._inputs.items()}
            self._given_versions = versions_of(self._inputs)
            self._grads = {name: _copy(held.grad) for name, held in tensors.items() if held.requires_grad}
        self._numbers = [
            (state, dict(state))
            for optimizer in reached.optimizers.values()
            for _, _, state in parameters_of(optimizer)
        ]
        self._others = [(each.__dict__, dict(each.__dict__)) for each in reached.schedulers.values()]
        self._groups = [(group, dict(group)) for each in reached.optimizers.values() for group in each.param_groups]
        return self

    def restore(self) -> None:
        """Put values and numbers back, but not gradients."""
        for held, before in (*self._numbers, *self._others, *self._groups):
            held.clear()
            held.update(before)
        tensors = self._reached.tensors
        with no_grad():
            _put_back(self._inputs, self._given, self._given_versions)
            _put_back(tensors, self.copies, self._versions)
            self._versions, self._given_versions = versions_of(tensors), versions_of(self._inputs)
        set_rng_state(self._random)

    def __exit__(self, *error: object) -> None:
        self.restore()
        tensors = self._reached.tensors
        for name, grad in self._grads.items():
            tensors[name].grad = grad
        for optimizer, param in self._fresh:
            del optimizer.state[param]


def _put_back(tensors: Mapping[str, Tensor], copies: Mapping[str, Tensor], versions: Mapping[str, int]) -> None:
    """Copy back the values of those tensors that have another version now."""
    for name, version in versions_of(tensors).items():
        if versions.get(name, version) != version:
            tensors[name].detach().copy_(copies[name])


def _copy(grad: Any) -> Any:
    return None if grad is None else grad.detach().clone()


def versions_of(tensors: Mapping[str, Any]) -> dict[str, int]:
    """How often each tensor was changed in place; inference tensors do not count it."""
    return {name: held._version for name, held in tensors.items() if not held.is_inference()}


class _Recording:
    """One recorded call and its program."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        names: dict[str, Tensor],
        reached: Reached,
        unchanged: _Unchanged,
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._names, self._reached, self._before = names, reached, unchanged
        before = step_numbers(reached)
        self._known = set(reached.names)
        function(*args, **kwargs)
        after = step_numbers(reached)
        late = set(after) - set(before)
        if late:
            raise refusal("an optimizer makes its state in its first step: make one step before exporting")
        self._stepped = {state for (state, key), value in after.items() if value != before[state, key]}
        reached.refresh()
        if set(reached.names) != self._known:
            raise refusal("an optimizer makes its state in its first step: make one step before exporting")
        unchanged.restore()
        self.made = self._record()
        unchanged.restore()

    def _record(self) -> RecordedFunction:
        feeds = list(self._names.values())
        versions = versions_of(self._reached.tensors)
        outside = OutsideTensors()
        recorder, answer, counters = self._call(feeds, outside)
        rules = Rules(counters, recorder.formulas)
        outputs = output_names(answer)
        self._check_kept(recorder, answer, outputs)
        trace = RecordedProgram(recorder, feeds, list(outputs.values()), len(rules.counters))
        now = versions_of(self._reached.tensors)
        changed = {name for name in now if now[name] != versions.get(name)}
        outside.check(trace, self._reached.names, changed)
        program, state = trace.program, self._name_inputs(trace, changed)
        sources: dict[str, Any] = dict(zip(state, (handle._id for handle in trace.captures), strict=True))
        first = len(program.inputs)
        for number in rules.counters:
            name = self._unused(counters.names[number], state)
            code: Any = dtypes.float64.code
            program.inputs.add(dtype=code, name=name, state=True, changed=number in rules.changed)
            state[name] = tensor(counters.values[number], dtype=dtypes.float64)
            sources[name] = counters.source(number)
        rules.fill(program, first)
        del program.outputs[:]
        for name, handle in outputs.items():
            slot = trace.slots.get(handle._id)
            if slot is None:
                raise refusal(f"the function returns {name}, which it neither makes nor uses")
            program.outputs.append(slot)
            spec = handle._spec
            program.described.add(name=name, dtype=spec.dtype.code, shape=spec.shape)
        return RecordedFunction(program, state, sources)

    def _call(self, feeds: Sequence[Any], outside: OutsideTensors) -> tuple[Recorder, Any, Counters]:
        session = feeds[0]._session if feeds else current_session()
        counters = Counters(self._reached, self._stepped)
        with RECORDING:
            session.sync()
            recorder = Recorder(session)
            recorder.handles = outside
            held = (*feeds, *self._reached.tensors.values())
            recorder.handles.update((handle._id, handle) for handle in held)
            gradients = LeafGradients(session)
            try:
                with counters:
                    answer = run_recorded(self._function, self._args, self._kwargs, session, recorder)
            finally:
                gradients.leave(recorder)
        if recorder.refused is not None:
            raise recorder.refused
        if recorder.obstacle is not None:
            raise refusal(recorder.obstacle)
        return recorder, answer, counters

    def _check_kept(self, recorder: Recorder, answer: Any, outputs: Mapping[str, Any]) -> None:
        known = {id(handle) for handle in outputs.values()}
        known.update(id(leaf._grad) for leaf in recorder.session.watched.values())
        for handle in outputs.values():
            view = handle.__dict__.get("_view")
            if view is not None:
                known.add(id(view.base))
        if any(id(handle) not in known for handle in recorder.live_handles()):
            raise refusal("the function keeps a tensor outside its results")

    def _name_inputs(self, trace: RecordedProgram, changed: set[str]) -> dict[str, Tensor]:
        """Name the program's inputs; return the values of those that are state. `changed` names tensors."""
        inputs = trace.program.inputs
        for item, name in zip(inputs, self._names, strict=False):
            item.name = name
        state: dict[str, Tensor] = {}
        for place, handle in enumerate(trace.captures):
            found = self._reached.names.get(handle._id)
            item = inputs[len(self._names) + place]
            item.name = self._unused(found or f"constant.{place}", state)
            item.state, item.changed = True, found in changed
            with no_grad():
                copy = None if found is None else self._before.copies.get(found)
                state[item.name] = handle.detach().clone() if copy is None else copy  # type: ignore[attr-defined]
        return state

    def _unused(self, name: str, state: Mapping[str, Any]) -> str:
        """The name, or a longer one if an input has it."""
        while name in self._names or name in state:
            name = f"state.{name}"
        return name

    def check_dynamic(self, dynamic: Sequence[str]) -> None:
        """Record again with one row more, and mark what has as many rows. Raises GradwireError if commands differ."""
        longer = {id(self._names[name]): ops.cat([self._names[name], self._names[name][:1]]) for name in dynamic}
        first, rows = self.made.program, {self._names[name].shape[0] for name in dynamic}
        if len(rows) > 1:
            raise ValueError(f"dynamic inputs must have the same number of rows, not {sorted(rows)}")
        given = (tuple(self._args), dict(self._kwargs))
        args, kwargs = map_tensors(given, lambda held: longer.get(id(held), held))
        names = {name: longer.get(id(held), held) for name, held in self._names.items()}
        other = _Recording(self._function, args, kwargs, names, self._reached, self._before)
        second = other.made.program
        for place, (one, two) in enumerate(zip(first.steps, second.steps, strict=False)):
            if one != two:
                which = one.op.op if one.HasField("op") else one.WhichOneof("step")
                raise refusal(
                    f"command {place} ({which}) depends on the number of rows, which is dynamic: compute sizes with "
                    "-1, as in reshape(-1, 8) or flatten(1)"
                )
        if len(first.steps) != len(second.steps):
            raise refusal("the number of commands depends on the number of rows, which is dynamic")
        for item in first.inputs:
            item.dynamic = item.name in dynamic
        for shown, longer_one in zip(first.described, second.described, strict=True):
            shown.dynamic = bool(shown.shape) and shown.shape[0] != longer_one.shape[0]
