"""compile: a function recorded once and from then on run by one command (torch.compile).

The first call runs as always, every command waiting, and is noted (_recorder.py). A later call whose surroundings are
the same (_guards.py) sends one command that runs the program on the server; it does not wait, so calls pipeline. A
call with other surroundings is recorded anew.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gradwire import _commands, _ops
from gradwire._answers import Place, Places, is_plain, join_pieces, map_tensors
from gradwire._arguments import two_sessions
from gradwire._dtypes import get_default_dtype
from gradwire._errors import GradwireError, GradwireTypeError, GradwireValueError, make_error
from gradwire._guards import Walk
from gradwire._handle import PRESENT, UNKNOWN, Handle
from gradwire._memo import Spec, read_spec
from gradwire._modes import GRAD_ENABLED
from gradwire._place import describe_place
from gradwire._recorder import Recorder, Trace
from gradwire._results import new_proxy, watch_retained
from gradwire._session import Session
from gradwire._sessions import current_session
from gradwire._wire import Value
from gradwire.v1 import errors_pb2, programs_pb2, service_pb2

# After so many calls in a row that cannot be repeated, a function is no longer recorded.
_PATIENCE = 4
_here = threading.local()
#: Held while a function is recorded: one at a time.
RECORDING = threading.RLock()


def compile(
    model: Any = None,
    *,
    repeat: int | None = None,
    batch_size: int | None = None,
    sliced: Sequence[int | str] | None = None,
    stacked: bool = False,
    verify: bool = False,
    cache_size: int = 8,
    fullgraph: bool = True,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """A function, or a module, whose calls are one command each (torch.compile); with or without brackets a decorator.

    The first call with arguments of a kind runs as it is and is recorded; later ones run what was recorded, on the
    tensors given and those it closes over, which it may change in place, differentiate and give `.grad`. It is recorded
    anew when arguments' shapes or dtypes, numbers or what it closes over changed, at most `cache_size` times.

    repeat: each call runs it so often and answers what the last repetition answers, or with `stacked` all of them along
    a new first dimension. batch_size: tensor arguments (those that `sliced` names by place or name; else all) are cut
    along their first dimension, and repetition k sees the rows from k * batch_size on; without `repeat` all there are.
    verify: run it as it is each time and raise RuntimeError where the commands differ from those recorded.

    Reading a value inside is refused with an error that names the line. The other options are PyTorch's and change
    nothing but `disable`, which gives back the function itself.
    """
    if model is None:
        return functools.partial(
            compile, repeat=repeat, batch_size=batch_size, sliced=sliced, stacked=stacked, verify=verify,
            cache_size=cache_size, disable=disable,
        )  # fmt: skip
    if disable:
        return model
    if not callable(model):
        raise GradwireTypeError(f"compile() takes a function or a module, but got {type(model).__name__}")
    for name, number in (("repeat", repeat), ("batch_size", batch_size)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise GradwireValueError(f"compile(): {name} must be a whole number from 1 on, not {number!r}")
    return Compiled(model, repeat, batch_size, sliced, stacked, verify, cache_size)


class Compiled:
    """What compile() returns: called like the function, whose attributes it shows."""

    def __init__(
        self,
        function: Callable[..., Any],
        repeat: int | None,
        batch_size: int | None,
        sliced: Sequence[int | str] | None,
        stacked: bool,
        verify: bool,
        cache_size: int,
    ) -> None:
        self._function = function
        self._repeat = repeat
        self._batch_size = batch_size
        self._sliced = sliced
        self._stacked = stacked
        self._verify = verify
        self._cache_size = cache_size
        self._recordings: dict[tuple[Any, ...], list[_Recording]] = {}
        self._fruitless = 0
        #: Why it is no longer recorded.
        self.given_up: str | None = None
        if hasattr(function, "__name__"):
            functools.update_wrapper(self, function, updated=())

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # not set yet: a copy is being made
            raise AttributeError(name)
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __guard__(self) -> Any:
        """What a function that calls this one depends on."""
        return self._function

    def __repr__(self) -> str:
        return f"<compiled {self._function!r}>"

    def describe(self) -> list[str]:
        """What was recorded and how the server runs it, in sentences; a round trip for each recording."""
        recordings = [one for held in self._recordings.values() for one in held]
        title = f"{self._name()}: a compiled function with {_counted(len(recordings), 'recording')}"
        lines = [f"{title} of {self._cache_size} that it may have."]
        lines += [f"- {recording.describe()}" for recording in recordings]
        if self.given_up is not None:
            lines.append(f"- From now on it runs as it is: {self.given_up}.")
        elif self._verify:
            lines.append("- verify=True: it runs as it is each time and is compared with what was recorded.")
        return lines

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, by its program where one fits."""
        if getattr(_here, "recording", False):
            return self._function(*args, **kwargs)
        call = _Call(self, args, kwargs)
        if self._repeat is None and self._batch_size is None:
            return self._once(call)
        return self._many(call)

    def _once(self, call: _Call) -> Any:
        recording = self._find(call, 0)
        return self._record(call, 0) if recording is None else recording.run(call, 1, 0, False)

    def _many(self, call: _Call) -> Any:
        """Run all repetitions: a first one or two are recorded, the rest is one command."""
        total = self._repeat or call.slices()
        done, answer, pieces = 0, None, []
        while done < total:
            recording = self._find(call, done)
            count = 1
            if recording is None:
                answer = self._record(call, done)
            else:
                count = total - done if recording.periodic else 1
                answer = recording.run(call, count, done, self._stacked)
            if self._stacked:
                pieces.append(
                    answer if recording is not None else map_tensors(answer, lambda tensor: tensor.detach()[None])
                )
            done += count
        if not self._stacked:
            return answer
        return pieces[0] if len(pieces) == 1 else join_pieces(pieces)

    def _find(self, call: _Call, done: int) -> _Recording | None:
        if self._verify:
            return None
        for recording in self._recordings.get(call.key(), ()):
            if recording.fits(call.feeds):
                return recording
        return None

    def _record(self, call: _Call, done: int) -> Any:
        """Call the function as it is, and note what it does if that may serve another call."""
        args, kwargs = call.arguments(done)
        count = sum(map(len, self._recordings.values()))
        if self.given_up is not None or (count >= self._cache_size and not self._verify):
            if self.given_up is None:
                self._give_up(f"it was recorded {count} times, each time for other arguments or surroundings")
            return self._function(*args, **kwargs)
        key = call.key()
        with RECORDING:
            noted = _Noted(call, args, kwargs)
        if noted.obstacle is not None:
            self._fruitless += 1
            if self._fruitless >= _PATIENCE:
                self._give_up(noted.obstacle)
            return noted.answer
        self._fruitless = 0
        recording = _Recording(noted)
        held = self._recordings.setdefault(key, [])
        same = next((one for one in held if one.entry == recording.entry), None)
        if same is None:
            held.append(recording)
        elif self._verify:
            same.compare(recording)
        return noted.answer

    def _name(self) -> str:
        return str(getattr(self._function, "__qualname__", type(self._function).__name__))

    def _give_up(self, why: str) -> None:
        self.given_up = why
        warnings.warn(f"compile({self._name()}): from now on it runs as it is: {why}", UserWarning, stacklevel=5)


class _Call:
    """One call: its tensors, which become inputs, and all else that a recording depends on."""

    def __init__(self, owner: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.owner = owner
        self.args = args
        self.kwargs = kwargs
        self.feeds: list[Handle] = []
        self.batch = owner._batch_size
        self.sliced: list[int] = []
        self._surroundings: Walk | None = None
        self._parts: list[Any] = []
        for name, value in [*enumerate(args), *kwargs.items()]:
            self._add(value, self.batch is not None and _is_named(owner, name))
        if self.batch is not None and not self.sliced:
            raise GradwireValueError("compile(batch_size=…): the call has no tensor argument that is sliced")

    def _add(self, value: Any, sliced: bool) -> None:
        if isinstance(value, Handle):
            spec: Spec = value._fresh()  # type: ignore[attr-defined]
            if sliced:
                self._check_sliced(spec)
                self.sliced.append(len(self.feeds))
            self.feeds.append(value)
        elif type(value) in (list, tuple):
            for item in value:
                self._add(item, sliced)
        elif type(value) is dict:
            for item in value.values():
                self._add(item, sliced)

    def _check_sliced(self, spec: Spec) -> None:
        assert self.batch is not None
        if not spec.shape or spec.shape[0] < self.batch:
            raise GradwireValueError(
                f"compile(batch_size={self.batch}): a sliced argument of shape {tuple(spec.shape)} has fewer rows"
            )
        if spec.requires_grad:
            raise GradwireValueError("compile(batch_size=…): a sliced argument may not require a gradient")

    def slices(self) -> int:
        """How many slices all sliced arguments have."""
        return min(self.feeds[place]._spec.shape[0] // (self.batch or 1) for place in self.sliced)

    def shape(self, place: int) -> tuple[int, ...]:
        """The shape that the function sees."""
        shape = tuple(self.feeds[place]._spec.shape)
        return (self.batch or 0, *shape[1:]) if place in self.sliced else shape

    def arguments(self, repetition: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one repetition, and from then on its slices among the feeds."""
        if not self.sliced:
            return self.args, self.kwargs
        places = iter(range(len(self.feeds)))

        def cut(tensor: Any) -> Any:
            place = next(places)
            if place not in self.sliced:
                return tensor
            assert self.batch is not None
            return _ops.narrow(tensor, 0, repetition * self.batch, self.batch)

        args, kwargs = map_tensors((self.args, self.kwargs), cut)
        return args, kwargs

    def walk(self) -> Walk:
        """A look at the function and at the arguments that are no tensors."""
        walk = Walk()
        for value in (*self.args, *self.kwargs.values()):
            _walk_argument(walk, value)
        walk.parts.append(tuple(self.kwargs))
        walk.add(self.owner._function)
        for place, feed in enumerate(self.feeds):
            spec = feed._spec
            walk.parts.extend((spec.dtype, self.shape(place), spec.device_name, spec.requires_grad, spec.is_leaf))
            # One that is given twice, or is closed over besides, is recorded as the one tensor it is.
            first = next(number for number, other in enumerate(self.feeds) if other._id == feed._id)
            walk.parts.append(first if feed._id not in walk.handles else ("outside", feed._id))
        walk.parts.append((GRAD_ENABLED.get(), get_default_dtype(), tuple(self.sliced), self.session(walk).session_id))
        return walk

    def key(self) -> tuple[Any, ...]:
        """What a recording is found by. Looks anew each time."""
        return self.walk().key()

    def session(self, walk: Walk | None = None) -> Session:
        """The session of the tensors. Raises GradwireValueError if there are two."""
        handles = [*self.feeds, *(walk or self.walk()).handles.values()]
        found: Session | None = None
        for handle in handles:
            if found is not None and handle._session is not found:
                raise two_sessions("compile", found, handle._session)
            found = handle._session
        return current_session() if found is None else found


def _walk_argument(walk: Walk, value: Any) -> None:
    """Look at an argument; a tensor in it is a feed and told apart by its place only."""
    if isinstance(value, Handle):
        walk.parts.append(Handle)
    elif type(value) in (list, tuple):
        walk.parts.append((type(value), len(value)))
        for item in value:
            _walk_argument(walk, item)
    elif type(value) is dict:
        walk.parts.append(tuple(value))
        for item in value.values():
            _walk_argument(walk, item)
    else:
        walk.add(value)


def _is_named(owner: Compiled, name: Any) -> bool:
    if owner._sliced is None or name in owner._sliced:
        return True
    code = getattr(owner._function, "__code__", None)
    return (
        isinstance(name, int)
        and code is not None
        and code.co_varnames[name : name + 1] in [(one,) for one in owner._sliced]
    )


class _Noted:
    """A call that was run as it is: its answer and commands, and the obstacle to repeating it, if there is one."""

    def __init__(self, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.call = call
        before = call.walk()
        self.session = session = call.session(before)
        session.sync()
        feeds: list[Handle] = []
        map_tensors((args, kwargs), feeds.append)
        self.recorder = recorder = Recorder(session)
        recorder.handles.update((feed._id, feed) for feed in feeds)
        recorder.handles.update(before.handles)
        grads = Gradients(session)
        try:
            self.answer = run_recorded(call.owner._function, args, kwargs, session, recorder)
        finally:
            self.entry_of = grads.leave(recorder)
        if recorder.refused is not None:
            raise recorder.refused
        self.results: list[Handle] = []
        self.plain = is_plain(self.answer)
        map_tensors(self.answer, self.results.append)
        self.obstacle = self._find_obstacle(before, call.walk())
        self.trace = Trace(recorder, feeds, self.results)
        if self.obstacle is None and recorder.has("backward", "gradients"):
            for handle in (*feeds, *self.trace.captures):
                if handle._spec.requires_grad and not handle._spec.is_leaf:
                    self.obstacle = "it differentiates through a tensor from outside that is no leaf"

    def _find_obstacle(self, before: Walk, after: Walk) -> str | None:
        if before.key() != after.key() or before.rates != after.rates:
            return "it changes what it closes over (a number, a list, a state that it creates), which no program does"
        if not self.plain:
            return "it returns an object that is no tensor, number or container of these"
        known = {id(handle) for handle in self.results}
        known.update(id(leaf._grad) for leaf in self.session.watched.values())
        if any(id(handle) not in known for handle in self.recorder.living()):
            return "it keeps a tensor that it makes elsewhere than in what it returns"
        return None


def run_recorded(function: Callable[..., Any], args: Any, kwargs: Any, session: Session, recorder: Recorder) -> Any:
    """Call the function with every command waiting and noted."""
    memo, waits = session.memo, session.every_call_waits
    session.memo, session.every_call_waits = {}, True
    session.recorder = recorder
    _here.recording = True
    try:
        with session:
            return function(*args, **kwargs)
    finally:
        _here.recording = False
        session.recorder = None
        session.every_call_waits = waits
        if session._unusable is None:
            session.memo = memo


class Gradients:
    """The gradients of a session's leaves around a recorded call.

    Inside it nobody has asked for them by name yet, so that the program asks for those it uses itself; afterwards
    those that are still the same tensors have their proxies back.
    """

    def __init__(self, session: Session) -> None:
        self.before: dict[int, tuple[Handle, Any]] = {}
        for leaf in list(session.watched.values()):
            if leaf._grad is UNKNOWN:
                _ = leaf.grad
            self.before[leaf._id] = (leaf, leaf._grad)
            if isinstance(leaf._grad, Handle):
                leaf._grad = PRESENT

    def leave(self, recorder: Recorder) -> Callable[[Handle], bool]:
        """Put proxies back; the answer tells of a tensor whether it had no gradient before."""
        replaced = {
            command.set_grad.tensor for command, _ in recorder.steps if command.WhichOneof("command") == "set_grad"
        }
        for tensor_id, (leaf, grad) in self.before.items():
            if isinstance(grad, Handle) and tensor_id not in replaced and leaf._grad is not None:
                leaf._grad = grad if leaf._grad is not UNKNOWN else UNKNOWN
        had_none = {tensor_id for tensor_id, (_, grad) in self.before.items() if grad is None}
        known = set(self.before)
        return lambda handle: handle._id in had_none or handle._id not in known


class _Recording:
    """A program, and what the client does around a run of it."""

    def __init__(self, noted: _Noted) -> None:
        self.trace = trace = noted.trace
        self.session = noted.session
        self.captures = trace.captures
        self.specs = [handle._spec for handle in trace.captures]
        self.counters = list(noted.recorder.counters.values())
        self.numbers = noted.recorder.numbers
        self.results = trace.results
        self.template = map_tensors(noted.answer, Places(noted.results).place)
        self._reads = bool(len(trace.program.outputs))
        replaced = {
            trace.slots[command.set_grad.tensor]
            for command, _ in noted.recorder.steps
            if command.WhichOneof("command") == "set_grad"
        }
        #: Per input that has a gradient: its place, whether it had none, what it has then, and whether a new one.
        self.leaves: list[tuple[int, bool, Any, bool]] = []
        for place, handle in enumerate((*trace.feeds, *trace.captures)):
            if handle._spec.requires_grad:
                state = handle._grad if handle._grad is None or handle._grad is UNKNOWN else PRESENT
                self.leaves.append((place, noted.entry_of(handle), state, place + 1 in replaced))
        self.entry = tuple((place, none) for place, none, _, _ in self.leaves)
        #: Of outputs with a gradient of their own: their number, whether by retain_grad, and whether it is there.
        self.keeping = {
            number: (handle._retained is not None, handle._grad is not None)
            for number, handle in zip(trace.results, noted.results, strict=True)
            if isinstance(number, int) and (handle._retained is not None or handle._grad is not None)
        }
        #: Whether it leaves the gradients as it found them, so that it may be repeated as it is.
        self.periodic = all(none == (state is None) for _, none, state, _ in self.leaves)

    def fits(self, feeds: Sequence[Handle]) -> bool:
        """Whether the tensors from outside are as they were, and have gradients where they had."""
        for handle, spec in zip(self.captures, self.specs, strict=True):
            if handle._spec is not spec:
                return False
        for place, none, _, _ in self.leaves:
            handle = self._input(feeds, place)
            if handle._grad is UNKNOWN:
                _ = handle.grad  # type: ignore[attr-defined]
            if (handle._grad is None) is not none:
                return False
        return True

    def describe(self) -> str:
        """What it is for and how the server runs it."""
        specs = [f"{handle._spec.dtype.name}{list(handle._spec.shape)}" for handle in self.trace.feeds]
        given = f"arguments {', '.join(specs)}" if specs else "no tensors as arguments"
        told = _register(self.session, self.trace)
        planned, stepwise = told.planned_runs, told.stepwise_runs
        text = f"For {given}: {_counted(len(self.trace.program.steps), 'command')} as one, run "
        ran = [f"{_counted(planned, 'time')} as a plan"] if planned or not stepwise else []
        ran += [f"{_counted(stepwise, 'time')} step by step"] if stepwise else []
        text += " and ".join(ran)
        if told.stepwise_because:
            return f"{text}, since {told.stepwise_because}."
        return f"{text}, of which the plan was made." if stepwise else f"{text}."

    def _input(self, feeds: Sequence[Handle], place: int) -> Handle:
        return feeds[place] if place < len(feeds) else self.captures[place - len(feeds)]

    def run(self, call: _Call, repeat: int, first: int, stacked: bool) -> Any:
        """Run the program so often, from a slice on; what the function would answer."""
        session, trace = self.session, self.trace
        feeds = [feed._id for feed in call.feeds]
        numbers = self._count(repeat)
        outputs = [next(session.ids) for _ in trace.program.outputs]
        captures = [handle._id for handle in self.captures]
        sliced = call.sliced
        sets = len(feeds) + len(numbers)

        def build(values: Sequence[Value]) -> service_pb2.Command:
            request = programs_pb2.RunProgramRequest(
                hash=trace.hash,
                inputs=[*(int(value) for value in values[: len(feeds)]), *captures],
                numbers=values[len(feeds) : sets],
                repeat=repeat,
                sliced=sliced,
                first=first if sliced else 0,
                stacked=stacked,
                outputs=[int(value) for value in values[sets:]],
            )
            return service_pb2.Command(run_program=request)

        key = (trace.hash, repeat, stacked, tuple(sliced), first if sliced else 0, len(numbers), *captures)
        specs = self._run(key, [*feeds, *numbers, *outputs], build)
        for place, _, state, replaced in self.leaves:
            handle = self._input(call.feeds, place)
            if state is not PRESENT or replaced or handle._grad is None:
                handle._grad = state
        made = [new_proxy(session, one, spec) for one, spec in zip(outputs, specs, strict=True)]
        if not stacked:
            for number, (retains, has_grad) in self.keeping.items():
                if retains:
                    watch_retained(made[number])
                if has_grad:
                    made[number]._grad = UNKNOWN
        session.urge()
        return map_tensors(self.template, lambda place: self._result(call, made, place), Place)

    def _result(self, call: _Call, made: Sequence[Handle], place: Place) -> Any:
        result = self.results[place.number]
        if isinstance(result, int):
            return made[result]
        for feed, recorded in zip(call.feeds, self.trace.feeds, strict=True):
            if recorded is result:
                return feed
        return result

    def _count(self, repeat: int) -> list[float]:
        """The numbers of the run, and the counters moved on."""
        for count in self.counters:
            count(1)
        sets = [[float(now(ahead)) for now in self.numbers] for ahead in range(repeat)]
        for count in self.counters:
            count(repeat - 1)
        if all(one == sets[0] for one in sets):
            del sets[1:]
        return [number for one in sets for number in one]

    def _run(self, key: tuple[Any, ...], values: list[Value], build: Callable[[Sequence[Value]], Any]) -> Any:
        session = self.session
        read = _read_outputs if self._reads else None
        return run_program(session, self.trace, lambda: _commands.run(session, "run_program", key, values, build, read))

    def compare(self, other: _Recording) -> None:
        """Raise RuntimeError if another recording under the same key does something else."""
        if self.trace.hash == other.trace.hash:
            return
        mine, theirs = self.trace.program.steps, other.trace.program.steps
        place = next(
            (number for number, (one, two) in enumerate(zip(mine, theirs, strict=False)) if one != two),
            min(len(mine), len(theirs)),
        )
        where = other.trace.recorder.places[place : place + 1] or other.trace.recorder.places[-1:]
        at = describe_place(*where[0]) if where else "after its last command"
        raise make_error(
            errors_pb2.REASON_RUNTIME,
            f"compile(verify=True): this call does something else than the one recorded, from command {place} on, "
            f"though its arguments and surroundings look the same:\n  {at}",
            9,
        )


def run_program(session: Session, trace: Trace, send: Callable[[], Any]) -> Any:
    """Send the command that runs a program; the server is told the program before, unless it knows it."""
    if trace.hash in session.programs:
        session.programs.move_to_end(trace.hash)
    else:
        _register(session, trace)
    try:
        return send()
    except GradwireError as error:
        if error.reason != "PROGRAM_UNKNOWN":
            raise
    _register(session, trace)
    return send()


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _register(session: Session, trace: Trace) -> programs_pb2.RegisterProgramResponse:
    request = programs_pb2.RegisterProgramRequest(hash=trace.hash, program=trace.data)
    told = session.wait(service_pb2.Command(register_program=request)).register_program
    session.programs[trace.hash] = None
    while len(session.programs) > session.limits.max_programs:
        session.programs.popitem(last=False)
    return told


def _read_outputs(result: service_pb2.Result) -> tuple[Spec, ...]:
    return tuple([read_spec(output) for output in result.run_program.outputs])
