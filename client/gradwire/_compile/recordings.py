"""Recordings: turns one call of a function into a program and updates client state around its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gradwire._base.call_site import describe_call_site, find_call_site
from gradwire._base.errors import GradwireError, make_error, two_sessions
from gradwire._compile.aliases import TensorAliases
from gradwire._compile.calls import FunctionCall, ambient_state, attributes_of
from gradwire._compile.guards import Guard
from gradwire._compile.reachable_state import TOO_MUCH, ReachableState
from gradwire._compile.recorded_run import LeafGradients, run_recorded
from gradwire._compile.recorder import KnownAnswers, RecordedProgram, Recorder
from gradwire._compile.result_structure import TensorPlaceholder, find_obstacle, map_tensors, tensors_of
from gradwire._compile.usage_tracker import CallUsage, UsageTracker
from gradwire._graph import commands
from gradwire._graph.sparse_gradients import sparse_part
from gradwire._proxy.handle import PRESENT, UNKNOWN, Handle
from gradwire._proxy.memo import MemoEntry, Spec, read_spec
from gradwire._proxy.results import (
    TENSOR_CLASS,
    is_like_its_tensor,
    new_proxy,
    note_accumulated,
    unnamed_gradient,
    watch_retained,
)
from gradwire._session.sessions import current_session
from gradwire._transport.wire import Value, framed
from gradwire.v1 import errors_pb2, programs_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol


class RecordedCall:
    """A call that ran uncompiled: its answer, its commands, and the obstacle to replaying it, if any.

    `permanent` tells that the obstacle lies in what the function reads or calls. With `verify` such obstacles do not
    count, since every call runs uncompiled. With `fallback`, what no program can hold is an obstacle and no error.
    `answers` are those of an earlier call, used if it had the same session. `recording` is made with `keeps`, if there
    is no obstacle.
    """

    def __init__(
        self,
        call: FunctionCall,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        learned: Sequence[CallUsage],
        verify: bool,
        fallback: bool,
        answers: KnownAnswers | None = None,
        keeps: bool = False,
    ) -> None:
        self.call = call
        self.recording: Recording | None = None
        before = ReachableState(learned=learned).walk(call.roots)
        self.session = session = _session_of(call, before)
        session.sync()
        self.feeds = feeds = tensors_of((args, kwargs))
        self.recorder = recorder = Recorder(session, fallback, becomes_program=not verify)
        recorder.known = answers if answers is not None and answers.are_of(session) else None
        recorder.handles.update((feed._id, feed) for feed in feeds)
        recorder.handles.update(before.handles)
        ambient, contents = ambient_state(), [list(_items(each)) for each in call.containers]
        known = {handle._id: handle for handle in (*session.watched.values(), *before.handles.values(), *feeds)}
        self._had = {tensor_id: grad_state(handle) for tensor_id, handle in known.items()}
        self.aliases = TensorAliases(known.values())
        specs, attributes = [feed._spec for feed in feeds], [attributes_of(feed) for feed in feeds]
        grads = LeafGradients(session, before.handles)
        try:
            with UsageTracker() as tracker:
                self.answer = run_recorded(call.function, args, kwargs, session, recorder, settles=False)
        finally:
            grads.leave(recorder)
        self._shared = grads.shared
        self._kept = grads.kept()
        self.usage = tracker.usage

        def is_unchanged() -> bool:
            unchanged = ambient == ambient_state() and specs == [feed._fresh() for feed in feeds]
            same = all(map(_same_objects, contents, map(_items, call.containers)))
            was, now = map(_items, attributes), (_items(attributes_of(feed)) for feed in feeds)
            return unchanged and same and all(map(_same_objects, was, now))

        try:
            self._examine(before, is_unchanged, verify, fallback)
            if keeps and self.obstacle is None:
                self.recording = Recording(self)
        finally:
            if recorder.pipelined:  # meanwhile the server has computed
                session.sync()

    def _examine(self, before: ReachableState, is_unchanged: Callable[[], bool], verify: bool, fallback: bool) -> None:
        """Find the obstacle to a replay; if there is none, make the program."""
        call, recorder = self.call, self.recorder
        if recorder.refused is not None:
            raise recorder.refused
        self._exceeded = before.exceeded
        self.after = ReachableState(self.usage).walk(call.roots)
        self.results = _unique(tensors_of(self.answer))
        self.permanent = True
        self.obstacle = recorder.obstacle or (None if verify else self._find_unseen())
        if self.obstacle is None:
            self.permanent = False
            self.obstacle = self._find_change(before, is_unchanged()) or self._find_kept(call)
        if self.obstacle is None:
            self.obstacle = self._make_program(fallback)

    def _make_program(self, fallback: bool) -> str | None:
        """Make the program of the call's commands; return the obstacle to it, if any."""
        try:
            self.trace = RecordedProgram(self.recorder, self.feeds, self.results)
        except GradwireError as error:
            if not fallback:
                raise
            return str(error)
        return self._find_history()

    def obstacles(self) -> list[str]:
        """Everything to warn of: the obstacle, and each place that no program can hold."""
        assert self.obstacle is not None
        return [self.obstacle, *(each for each in self.recorder.breaks if each != self.obstacle)]

    def had(self, handle: Handle) -> Any:
        """State of a tensor's gradient before the call: None without one, else whether it had a graph."""
        return self._had.get(handle._id)

    def new_state(self, handle: Handle) -> Any:
        """State that runs of the program give a tensor's gradient; PRESENT if they let it be the same tensor."""
        return PRESENT if handle._id in self._kept else unnamed_gradient(handle, handle._grad)

    def _find_unseen(self) -> str | None:
        usage = self.usage
        if usage.obstacle is not None:
            return usage.obstacle
        if self.after.opaque is not None:
            return self.after.opaque
        if self._exceeded:  # changes made by the call could not be detected
            return TOO_MUCH
        if self._shared & self.after.handles.keys():
            return "it holds a gradient that is also reached by its tensor"
        code = self.after.missing_code()
        if code is not None:
            return (
                f"it runs {code.co_name}(), which is not found from its arguments, what it closes over or names\n  "
                + describe_call_site(code, 0)
            )
        return None

    def _find_change(self, before: ReachableState, unchanged: bool) -> str | None:
        name = self.after.changed_since(before)
        # Learning rates may differ between calls but not change within one.
        rates = self.after.rates
        if name is None and unchanged and all(before.rates.get(group) == rates[group] for group in rates):
            return None
        what = "its arguments or modes" if name is None else repr(name)
        return (
            f"it changes what it closes over ({what}: a number, a list, a state that it creates), which no program does"
        )

    def _find_kept(self, call: FunctionCall) -> str | None:
        outside = {id(each) for each in call.containers} | set(self.after.numbers)
        found = find_obstacle(self.answer, outside)
        if found is not None:
            return found
        made = {id(handle) for handle in self.recorder.live_handles()}
        for handle in self.results:
            if id(handle) in made and (handle.__dict__.keys() - {"_view"} or type(handle) is not TENSOR_CLASS[0]):
                return "it returns a tensor of another class or with added attributes"
        known = {id(handle) for handle in self.results}
        known.update(id(leaf._grad) for leaf in self.session.watched.values())
        for handle in list(self.results):
            view = handle.__dict__.get("_view")
            if view is not None and id(view.base) in made and id(view.base) not in known:
                known.add(id(view.base))
                self.results.append(view.base)
        if any(id(handle) not in known for handle in self.recorder.live_handles()):
            return "it keeps a tensor outside its results"
        return None

    def _find_history(self) -> str | None:
        if self.recorder.differentiates():
            for handle in (*self.feeds, *self.trace.captures):
                if handle._spec.requires_grad and not handle._spec.is_leaf:
                    return "it differentiates through a non-leaf from outside"
        return None


def grad_state(handle: Handle) -> Any:
    """State of a tensor's gradient: None without one, else whether it is known to have a graph.

    A gradient of other sizes, another dtype or order than backward makes is like no other, so no recording fits it. So
    is a sparse one, whose indices and values a program would hold as constants.
    """
    if sparse_part(handle) is not None:
        return object()
    grad = handle._grad
    if grad is UNKNOWN:
        _ = handle.grad  # type: ignore[attr-defined]
        grad = handle._grad
    if grad is None:
        return None
    if isinstance(grad, Handle) and not is_like_its_tensor(handle, grad):
        return object()
    return isinstance(grad, Handle) and grad._spec.requires_grad


def _session_of(call: FunctionCall, reachable: ReachableState) -> SessionProtocol:
    """Session of the call's tensors. Raises GradwireValueError if there are two."""
    found: SessionProtocol | None = None
    for handle in (*call.feeds, *reachable.handles.values()):
        if found is not None and handle._session is not found:
            raise two_sessions("compile", found, handle._session)
        found = handle._session
    return current_session() if found is None else found


def _items(container: Any) -> list[Any]:
    return [*container.keys(), *container.values()] if isinstance(container, dict) else list(container)


def _same_objects(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _unique(handles: Sequence[Handle]) -> list[Handle]:
    return list({id(handle): handle for handle in handles}.values())


class Recording:
    """A program, and the client state to update around its runs."""

    def __init__(self, recorded: RecordedCall) -> None:
        self.trace = trace = recorded.trace
        self.session = session = recorded.session
        self.captures = trace.captures
        self.counters = list(recorded.recorder.counters.values())
        #: Dicts with the numbers that the counters advance.
        self.counted = list(recorded.recorder.counted.values())
        self.numbers = recorded.recorder.numbers
        placeholders = {id(feed): TensorPlaceholder(number) for number, feed in enumerate(trace.feeds)}
        #: Per result: the index of an output, the placeholder of an argument, or the handle of an outside tensor.
        self.results = [each if isinstance(each, int) else placeholders.get(id(each), each) for each in trace.results]
        numbers = {id(handle): number for number, handle in enumerate(recorded.results)}
        self.template = map_tensors(recorded.answer, lambda handle: TensorPlaceholder(numbers[id(handle)]))
        self.guard = Guard(recorded.call.roots, recorded.usage, recorded.after, trace.captures)
        self._hooks = tuple(session.hooks)
        self._aliases = recorded.aliases.finish(trace, recorded.results)
        reached = recorded.after.handles
        #: Per argument: the handle if it is also reached another way, else None.
        self._outside = [reached.get(feed._id) for feed in trace.feeds]
        self._reached = frozenset(reached).union(handle._id for handle in trace.captures)
        #: Tensors besides the inputs whose gradients the call may have read, with their gradient state.
        inputs = {handle._id for handle in (*trace.feeds, *trace.captures)}
        others = [handle for tensor_id, handle in reached.items() if tensor_id not in inputs]
        self._others = [(handle, recorded.had(handle)) for handle in others]
        self._reads = bool(len(trace.program.outputs))
        replaced = {
            trace.slots[command.set_grad.tensor]
            for command in recorded.recorder.commands
            if command.WhichOneof("command") == "set_grad"
        }
        #: Per input: its index, its gradient state before, its gradient after, and whether the call assigned a new one.
        self.leaves: list[tuple[int, Any, Any, bool]] = []
        for place, handle in enumerate((*trace.feeds, *trace.captures)):
            state = recorded.new_state(handle)
            self.leaves.append((place, recorded.had(handle), state, place + 1 in replaced))
        self.entry = tuple((place, had) for place, had, _, _ in self.leaves)
        #: Outputs that have a gradient: number -> (whether by retain_grad, whether the gradient is set).
        self.keeping = {
            number: (handle._retained is not None, handle._grad is not None)
            for number, handle in zip(trace.results, recorded.results, strict=True)
            if isinstance(number, int) and (handle._retained is not None or handle._grad is not None)
        }
        self._given = [f"{feed._spec.dtype.name}{list(feed._spec.shape)}" for feed in trace.feeds]
        trace.release_handles()
        #: Whether the call leaves each gradient as present or absent as before, so it may be repeated.
        self.periodic = all((had is None) == (state is None) for _, had, state, _ in self.leaves)

    def fits(self, call: FunctionCall) -> bool:
        """Whether tensors and the presence of their gradients match the recording. The guard checks the rest."""
        session, feeds = self.session, call.feeds
        if tuple(session.hooks) != self._hooks or (
            not self._reached and not feeds and current_session() is not session
        ):
            return False
        for feed, known in zip(feeds, self._outside, strict=True):
            if feed._session is not session or (feed._id in self._reached if known is None else feed._id != known._id):
                return False
        for place, had, _, _ in self.leaves:
            if grad_state(feeds[place] if place < len(feeds) else self.captures[place - len(feeds)]) is not had:
                return False
        return not any(grad_state(handle) is not had for handle, had in self._others)

    def describe(self) -> str:
        """Describe the arguments it fits and how the server runs it. Costs one round trip."""
        given = f"arguments {', '.join(self._given)}" if self._given else "no tensors as arguments"
        registered = _register(self.session, self.trace)
        planned, stepwise = registered.planned_runs, registered.stepwise_runs
        text = f"For {given}: {counted(len(self.trace.program.steps), 'command')} as one, run "
        ran = [f"{counted(planned, 'time')} as a plan"] if planned or not stepwise else []
        ran += [f"{counted(stepwise, 'time')} step by step"] if stepwise else []
        text += " and ".join(ran)
        if planned and registered.not_captured_because:
            text += f", which is no CUDA graph since {registered.not_captured_because}"
        if registered.stepwise_because:
            return f"{text}, since {registered.stepwise_because}."
        return f"{text}, of which the plan was made." if stepwise else f"{text}."

    def changed_captures(self) -> list[Handle]:
        """The captures that the call changed in place, among those whose storage counted changes before it."""
        return self._aliases.changed_captures()

    def copies_results(self) -> None:
        """Note that results are copies: they share no storage, and have no gradients."""
        self._aliases.forget_results()
        self.keeping = {}

    def _input(self, feeds: Sequence[Handle], place: int) -> Handle:
        return feeds[place] if place < len(feeds) else self.captures[place - len(feeds)]

    def run(
        self,
        call: FunctionCall,
        repeat: int,
        first: int,
        stacked: bool,
        numbers: list[float] | None = None,
        further: Sequence[Handle] = (),
    ) -> Any:
        """Run the program `repeat` times, from slice `first` on; return the function's answer.

        `numbers` are those of `count_runs`, if it was called for this run. `further` are inputs behind the captures.
        """
        session, trace = self.session, self.trace
        feeds = [feed._id for feed in call.feeds]
        numbers = self.count_runs(repeat) if numbers is None else numbers
        outputs = [next(session.ids) for _ in trace.program.outputs]
        captures = [handle._id for handle in self.captures]
        sliced = call.sliced
        bound = [*feeds, *(handle._id for handle in further)]
        sets = len(bound) + len(numbers)

        def build(values: Sequence[Value]) -> service_pb2.Command:
            request = programs_pb2.RunProgramRequest(
                hash=trace.hash,
                inputs=[
                    *(int(value) for value in values[: len(feeds)]),
                    *captures,
                    *(int(value) for value in values[len(feeds) : len(bound)]),
                ],
                numbers=values[len(bound) : sets],
                repeat=repeat,
                sliced=sliced,
                first=first if sliced else 0,
                stacked=stacked,
                outputs=[int(value) for value in values[sets:]],
            )
            return service_pb2.Command(run_program=request)

        key = (trace.hash, repeat, stacked, tuple(sliced), first if sliced else 0, len(numbers), *captures)
        specs = self._run(key, [*bound, *numbers, *outputs], build)
        for place, _, state, replaced in self.leaves:
            handle = self._input(call.feeds, place)
            if state is not PRESENT or replaced or handle._grad is None:
                handle._grad = state
            else:
                note_accumulated(handle._grad)
        made = [new_proxy(session, one, spec) for one, spec in zip(outputs, specs, strict=True)]
        self._aliases.moved(call.feeds, repeat)
        if not stacked:
            self._aliases.share_storage(call.feeds, made)
            for number, (retains, has_grad) in self.keeping.items():
                if retains:
                    watch_retained(made[number])
                if has_grad:
                    made[number]._grad = UNKNOWN
        session.flush_early()
        return map_tensors(self.template, lambda placeholder: self._result(call, made, placeholder), TensorPlaceholder)

    def _result(self, call: FunctionCall, made: Sequence[Handle], placeholder: TensorPlaceholder) -> Any:
        result = self.results[placeholder.number]
        if isinstance(result, int):
            return made[result]
        return call.feeds[result.number] if isinstance(result, TensorPlaceholder) else result

    def count_runs(self, repeat: int) -> list[float]:
        """Advance the counters by `repeat`; return the numbers of the run, one set if all sets are equal."""
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
        read = read_outputs if self._reads else None
        return run_program(session, self.trace, lambda: commands.run(session, "run_program", key, values, build, read))

    def compare(self, other: Recording) -> None:
        """Raise RuntimeError if another recording under the same key has different commands."""
        if self.trace.hash == other.trace.hash:
            return
        mine, theirs = self.trace.program.steps, other.trace.program.steps
        place = next(
            (number for number, (one, two) in enumerate(zip(mine, theirs, strict=False)) if one != two),
            min(len(mine), len(theirs)),
        )
        where = other.trace.recorder.call_sites[place : place + 1] or other.trace.recorder.call_sites[-1:]
        at = describe_call_site(*where[0]) if where else "after its last command"
        raise make_error(
            errors_pb2.REASON_RUNTIME,
            f"compile(verify=True): this call differs from the recorded one from command {place} on, although "
            f"its arguments and ambient state are the same:\n  {at}",
            9,
        )


class ProgramBytes(Protocol):
    """A serialized program and its hash."""

    @property
    def data(self) -> bytes:
        """Its serialized bytes."""

    @property
    def hash(self) -> bytes:
        """Their SHA-256."""


def run_program(
    session: SessionProtocol,
    trace: ProgramBytes,
    send: Callable[[], Any],
    of_optimizer: bool = False,
    certain: bool = False,
) -> Any:
    """Send the command that runs a program; register the program first unless the server knows it.

    A run that waits is sent with the registration. If the server refuses that, the run finds no program.
    of_optimizer: whether it draws no random numbers and writes to floating tensors alone. certain: whether the client
    knows that the server registers the program, and need not wait for it.
    """
    registered: Callable[[], Any] | None = None
    if trace.hash in session.programs:
        session.programs.move_to_end(trace.hash)
    elif certain and session.segments is None:
        _post_registration(session, trace)
    elif session.segments is None:
        registered = session.issue(_registration(trace))
    else:  # which sort the commands of the buffer
        _register(session, trace)
    if of_optimizer:
        session.float_writes += 1
    else:
        session.hidden_writes += 1
        session.draws.begin()
    try:
        result = send()
    except BaseException as error:
        if not isinstance(error, GradwireError) or error.reason != "PROGRAM_UNKNOWN":
            if registered is not None:  # the server's cache has the program, and may have dropped another one for it
                session.note_program(trace.hash, trace.data)
            raise
    else:
        if registered is not None:
            registered()
            session.note_program(trace.hash, trace.data)
        return result
    _register(session, trace)
    return send()


def register_program(session: SessionProtocol, trace: ProgramBytes) -> None:
    """Register a program unless the server knows it."""
    if trace.hash in session.programs:
        session.programs.move_to_end(trace.hash)
    else:
        _register(session, trace)


def counted(count: int, what: str) -> str:
    """Readable count with the noun in singular or plural."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _register(session: SessionProtocol, trace: ProgramBytes) -> programs_pb2.RegisterProgramResponse:
    registered = session.wait(_registration(trace)).register_program
    session.note_program(trace.hash, trace.data)
    return registered


def _post_registration(session: SessionProtocol, trace: ProgramBytes) -> None:
    """Register a program without a wait."""
    session.raise_if_unusable()
    command = _registration(trace)
    command.quiet = True
    entry = MemoEntry((), "register_program", find_call_site(), None, ())
    session.post_large(framed(command.SerializeToString()), entry)
    session.note_program(trace.hash, trace.data)


def _registration(trace: ProgramBytes) -> service_pb2.Command:
    request = programs_pb2.RegisterProgramRequest(hash=trace.hash, program=trace.data)
    return service_pb2.Command(register_program=request)


def read_outputs(result: service_pb2.Result) -> tuple[Spec, ...]:
    """Descriptions of a run's outputs."""
    return tuple([read_spec(output) for output in result.run_program.outputs])
