"""Data-parallel steps: compile(step, data_parallel=N) splits each call's arguments over N sessions (torch's DDP, in one
program).

The first calls run undivided and are recorded. The next one divides: it records the step on a part of the rows, with an
average of the gradients after each backward, and compares it with the undivided step. Later calls send the same command
to every session. Each session then makes the same update, so the copies of the parameters stay equal, bit for bit.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradwire._base.dtypes import finfo
from gradwire._base.errors import GradwireError, GradwireValueError, make_error
from gradwire._base.modes import no_grad
from gradwire._compile.calls import FunctionCall, is_transformed
from gradwire._compile.divided_programs import Exchanges, Kind, divide
from gradwire._compile.recorded_run import RECORDING, is_recording
from gradwire._compile.recorder import RecordedProgram
from gradwire._compile.recordings import RecordedCall, Recording, register_program
from gradwire._compile.result_structure import map_tensors, tensors_of
from gradwire._compile.workers import TIMEOUT_MS, Workers
from gradwire._functions.backward import call_after_backward
from gradwire._functions.random import get_rng_state, set_rng_state
from gradwire._proxy.results import share_storage
from gradwire._tensor import ops
from gradwire.v1 import collectives_pb2 as pb
from gradwire.v1 import errors_pb2, programs_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._compile.usage_tracker import CallUsage

# Number of calls in a row that cannot be recorded, after which the step is refused.
_MOST_FAILURES = 4
# Bytes of gradients that one collective averages at most; a rank's shared memory is twice as large.
_BUCKET_BYTES = 64 << 20
_LOCK_SECONDS = 60.0  # that a call waits for another thread's, whose collectives may wait for half an hour
_BATCH_STATISTICS = frozenset(("batch_norm", "native_batch_norm", "instance_norm"))


class DataParallel:
    """A data-parallel step, returned by compile(step, data_parallel=N). It is called like the step."""

    def __init__(
        self, function: Callable[..., Any], count: int, sliced: Sequence[int | str] | None, cache_size: int
    ) -> None:
        self._function = function
        self._count = count
        self._sliced = sliced
        self._cache_size = cache_size
        self._workers: Workers | None = None
        self._whole: dict[tuple[Any, ...], _Whole] = {}
        self._divided: dict[tuple[Any, ...], list[_Divided]] = {}
        self._learned: list[CallUsage] = []
        self._failures = 0
        self._calls = threading.RLock()
        self._averages: Workers | None = None  # while the divided step is recorded
        self._averaged: list[Kind] = []  # what it has averaged since
        if hasattr(function, "__name__"):
            functools.update_wrapper(self, function, updated=())
        call_after_backward(self)

    def __repr__(self) -> str:
        return f"<data-parallel {self._function!r} on {self._count} workers>"

    def describe(self) -> list[str]:
        """Describe the recordings, and where the workers are, in sentences. Costs one round trip per recording."""
        lines = [f"{self._name()}: a data-parallel step on {self._count} workers."]
        if self._workers is not None:
            lines += [f"- Worker {rank} is at {each.address}." for rank, each in enumerate(self._workers.sessions)]
        return lines + [f"- {each.recording.describe()}" for held in self._divided.values() for each in held]

    def close(self) -> None:
        """Wait for the steps issued so far, and end the other workers' sessions. The next call opens them again.

        Raises GradwireError if a step failed.
        """
        try:
            if self._workers is not None and self._workers.sessions[0]._unusable is None:
                self._workers.sessions[0].sync()
        finally:
            self._leave()

    def _leave(self) -> None:
        """End the other workers' sessions now. Steps that are under way fail."""
        workers, self._workers = self._workers, None
        self._divided.clear()
        if workers is not None:
            workers.close()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the step on all workers; the first calls make it in the caller's session alone.

        Calls of several threads are made one after the other. Raises TimeoutError after a minute's wait for another.
        """
        if is_recording() or is_transformed():
            return self._function(*args, **kwargs)
        # The workers' commands of two steps must not mix, and what is recorded is one step's.
        if not self._calls.acquire(timeout=_LOCK_SECONDS):
            raise make_error(
                errors_pb2.REASON_DEADLINE_EXCEEDED,
                f"{self._name()}: another thread has been making this step for {_LOCK_SECONDS:g} seconds",
                4,
            )
        try:
            return self._call(args, kwargs)
        finally:
            self._calls.release()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        cut = _Cut(self._function, self._count, self._sliced, args, kwargs)
        try:
            if any(each._spec.requires_grad for place, each in enumerate(cut.feeds) if place not in cut.sliced):
                raise _refused(
                    self._name(), "an argument that requires grad is not sliced. Let the function close over it"
                )
            if self._workers is not None:
                self._workers.check()
            for divided in self._divided.get(cut.key, ()):
                call = divided.call(cut)
                if divided.recording.fits(call) and _holds(divided.recording, call):
                    return divided.run(cut, call)
            return self._slow(cut)
        except BaseException:
            # Some workers may have the step's commands, and others not. The next call copies this session's tensors.
            self._leave()
            raise

    def _slow(self, cut: _Cut) -> Any:
        """Divide the step if it was recorded undivided, else record that."""
        whole = self._whole.get(cut.key)
        call = FunctionCall(self._function, None, None, cut.args, cut.kwargs)
        if whole is None or not whole.recording.fits(call) or not _holds(whole.recording, call):
            return self._record_whole(cut, call)
        if sum(map(len, self._divided.values())) >= self._cache_size:
            raise _refused(self._name(), f"it was divided {self._cache_size} times, each time for other arguments")
        return self._divide(cut, call, whole)

    def _record_whole(self, cut: _Cut, call: FunctionCall) -> Any:
        recorded, why = self._record(call)
        if recorded.obstacle is not None:
            self._failures += 1
            if recorded.permanent or self._failures >= _MOST_FAILURES:
                raise _refused(self._name(), recorded.obstacle)
            return recorded.answer
        self._failures = 0
        if why is not None:
            raise _refused(self._name(), why)
        self._whole[cut.key] = _Whole(recorded)
        return recorded.answer

    def _record(self, call: FunctionCall) -> tuple[RecordedCall, str | None]:
        """Record a call; also why it cannot be divided, if it cannot."""
        # A storage counts its changes.
        storages = [share_storage(each, each) if each._storage is None else each._storage for each in call.feeds]
        marks = [each.changes for each in storages]
        with RECORDING:
            recorded = RecordedCall(call, call.args, call.kwargs, self._learned, False, True)
        self._learned = [*self._learned[-_MOST_FAILURES:], recorded.usage]
        why = recorded.obstacle or _find_obstacle(recorded)
        if why is None and marks != [each.changes for each in storages]:
            why = "it changes an argument in place"
        return recorded, why

    def _divide(self, cut: _Cut, call: FunctionCall, whole: _Whole) -> Any:
        """Make the step undivided and divided from one state, and compare them. Keeps the divided step's effects."""
        session = whole.recording.session
        with session:
            before = _State(whole.recording)
            expected = whole.recording.run(call, 1, 0, False)
            reference = _Outcome(whole.recording, expected)
            draws = before.has_drawn()
            before.restore()
            if self._workers is None:
                self._workers = Workers(session, self._count)  # type: ignore[arg-type]
            workers = self._workers
            buffers = cut.buffers(workers)
            try:
                divided = self._record_divided(cut, buffers, workers, whole)
            finally:
                before.restore()
            try:
                sizes = _drawn_sizes(whole.recording, call, divided, cut, before) if draws else None
                before.restore()
                answer = divided.run(cut, divided.call(cut))
                why = divided.differs(answer, reference, sizes)
                if why is not None:
                    raise _refused(self._name(), why)
            except GradwireError:
                before.restore()
                raise
        self._divided.setdefault(cut.key, []).insert(0, divided)
        return answer

    def _record_divided(self, cut: _Cut, buffers: list[list[Any]], workers: Workers, whole: _Whole) -> _Divided:
        with no_grad():
            for place in cut.sliced:
                buffers[0][place].copy_(ops.narrow(cut.feeds[place], 0, 0, cut.rows[place]))
        for each in whole.recording.captures:
            share_storage(each, each)
        self._averages, self._averaged = workers, []
        try:
            recorded, why = self._record(cut.call(buffers[0]))
        finally:
            self._averages = None
        if why is not None:
            raise _refused(self._name(), why)
        return _Divided(recorded, workers, buffers, whole, cut, self._averaged, self._name())

    def after_backward(self, reached: Sequence[Any]) -> None:
        """Add the average of the gradients that a backward of the recorded step made; nothing outside a recording."""
        workers = self._averages
        leaves = [each for each in reached if each._spec.is_leaf]
        if workers is None or not leaves or not is_recording():
            return
        session = workers.sessions[0]
        for bucket in _buckets([each.grad for each in leaves]):
            request = pb.CollectiveRequest(
                kind=pb.COLLECTIVE_KIND_ALL_REDUCE, group=workers.group, op=pb.REDUCE_OP_AVG, timeout_ms=TIMEOUT_MS,
                inputs=[each._id for each in bucket],
            )  # fmt: skip
            # Not sent: only this rank records. The state of before is put back, and all ranks run the program.
            assert session.recorder is not None
            self._averaged.append((bucket[0].dtype, bucket[0].device))
            session.recorder.add_arguments(bucket, ())
            session.recorder.add_command(
                service_pb2.Command(collective=request), service_pb2.Result(collective=pb.CollectiveResponse())
            )

    def _name(self) -> str:
        return str(getattr(self._function, "__qualname__", type(self._function).__name__))


class _Cut:
    """One call and how its tensors are divided: those at `sliced` by rows, the others go whole to every worker."""

    def __init__(
        self,
        function: Callable[..., Any],
        count: int,
        sliced: Sequence[int | str] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        option = f"data_parallel={count}"
        call = FunctionCall(function, 1, sliced, args, kwargs, option)
        self.feeds: list[Any] = call.feeds
        self.sliced = frozenset(call.sliced)
        #: By place of a sliced tensor: the rows of each worker.
        self.rows: dict[int, int] = {}
        for place in call.sliced:
            total = call.feeds[place]._spec.shape[0]
            if total % count:
                raise GradwireValueError(
                    f"compile({option}): a sliced argument has {total} rows, which {count} workers cannot share equally"
                )
            self.rows[place] = total // count
        self.key = (call.key, *self.rows.items())

    def call(self, buffers: Sequence[Any]) -> FunctionCall:
        """The same call with these tensors in place of the sliced ones."""
        places = iter(range(len(self.feeds)))

        def change(tensor: Any) -> Any:
            place = next(places)
            return buffers[place] if place in self.sliced else tensor

        args, kwargs = map_tensors((self.args, self.kwargs), change)
        return FunctionCall(self.function, None, None, args, kwargs)

    def given(self) -> list[Any]:
        """The sliced arguments, of which the program takes rows as bytes."""
        with no_grad():
            return [self.feeds[place].detach().contiguous() for place in sorted(self.sliced)]

    def whole(self) -> dict[Kind, list[int]]:
        """The places of the arguments that are not sliced, those of one dtype and device together."""
        kinds: dict[Kind, list[int]] = {}
        for place, each in enumerate(self.feeds):
            if place not in self.sliced:
                kinds.setdefault((each.dtype, each.device), []).append(place)
        return kinds

    def buffers(self, workers: Workers) -> list[list[Any]]:
        """Per worker: a tensor for each argument. The caller's session needs none for those that go whole."""
        return [
            [
                feed if not rank and place not in self.sliced else workers.empty_like(rank, feed, self.rows.get(place))
                for place, feed in enumerate(self.feeds)
            ]
            for rank in range(len(workers.sessions))
        ]


class _State:
    """What a recorded step may change in the caller's session, as it was: values, gradients, numbers, generator."""

    def __init__(self, recording: Recording) -> None:
        self._counted = [(held, dict(held)) for held in recording.counted]
        self._generator = get_rng_state()
        captures: list[Any] = list(recording.captures)
        with no_grad():
            self._values = [(each, each.detach().clone()) for each in captures]
        self._gradients = [(each, each.grad) for each, _ in self._values if each._spec.requires_grad]

    def has_drawn(self) -> bool:
        """Whether the generator has drawn numbers since."""
        return not bool((get_rng_state() == self._generator).all())

    def restore(self, draws_again: bool = True) -> None:
        """Put everything back. draws_again: the generator, too, so that the same random numbers come."""
        for held, numbers in self._counted:
            held.update(numbers)
        if draws_again:
            set_rng_state(self._generator)
        with no_grad():
            for each, value in self._values:
                each.copy_(value)
        for each, gradient in self._gradients:
            each.grad = gradient


class _Outcome:
    """The undivided step's gradients and results, to compare the divided one's with."""

    def __init__(self, recording: Recording, answer: Any) -> None:
        self.results = [each.detach().clone() for each in tensors_of(answer)]
        captures: list[Any] = list(recording.captures)
        self.gradients = [
            (each, each.grad.clone()) for each in captures if each._spec.requires_grad and each.grad is not None
        ]


class _Whole:
    """The step recorded undivided, and the shapes of its results."""

    def __init__(self, recorded: RecordedCall) -> None:
        self.shapes = [each._spec.shape for each in tensors_of(recorded.answer)]
        self.recording = Recording(recorded)


@dataclass
class _Program:
    """A serialized program and its hash."""

    data: bytes
    hash: bytes


class _Divided:
    """The step recorded on one worker's rows, and its runs on all workers."""

    def __init__(
        self,
        recorded: RecordedCall,
        workers: Workers,
        buffers: list[list[Any]],
        whole: _Whole,
        cut: _Cut,
        averages: Sequence[Kind],
        name: str,
    ) -> None:
        self._workers = workers
        self._buffers = buffers
        self._runs = 0
        self._name = name
        numbers = {id(each): number for number, each in enumerate(recorded.results)}
        answers = tensors_of(recorded.answer)
        #: Per tensor of the answer: the number among the program's outputs; None for a tensor from outside.
        self._outputs: list[int | None] = [
            place if isinstance(place := recorded.trace.results[numbers[id(each)]], int) else None for each in answers
        ]
        given = [each._id for each in recorded.feeds]
        if any(each._id in given for each in answers):
            raise _refused(name, "it returns an argument")
        if len(answers) != len(whole.shapes):
            raise _refused(name, "it returns another number of tensors for fewer rows")
        self._kinds = [
            _kind_of(each._spec, shape, len(workers.sessions), name) if place is not None else ""
            for each, shape, place in zip(answers, whole.shapes, self._outputs, strict=True)
        ]
        exchanges = Exchanges(
            workers.group, len(workers.sessions), TIMEOUT_MS, cut.rows, cut.whole(), self._means(answers), averages
        )
        recorded.trace = RecordedProgram(recorded.recorder, recorded.feeds, recorded.results, len(cut.rows))
        program, other = divide(recorded.trace, exchanges)
        recorded.trace.replace(other)
        self._other = _Program(recorded.trace.data, recorded.trace.hash)
        recorded.trace.replace(program)
        self.recording = Recording(recorded)
        self.recording.copies_results()
        self.captures: list[Any] = list(self.recording.captures)
        self._changed = self.recording.changed_captures()
        first = len(given)
        #: Tensors whose gradient the step expects to be absent, and leaves behind.
        self._without_gradient = [
            self.captures[place - first]
            for place, had, state, _ in self.recording.leaves
            if place >= first and had is None and state is not None
        ]
        rows = (place for place, kind in zip(self._outputs, self._kinds, strict=True) if kind == "rows")
        self._rows = sorted({place for place in rows if place is not None})

    def _means(self, answers: Sequence[Any]) -> dict[Kind, list[int]]:
        """The outputs of which means are taken, those of one dtype and device together."""
        groups: dict[Kind, list[int]] = {}
        for place, kind, each in zip(self._outputs, self._kinds, answers, strict=True):
            if kind == "mean" and place is not None:
                held = groups.setdefault((each.dtype, each.device), [])
                if place not in held:
                    held.append(place)
        return groups

    def call(self, cut: _Cut) -> FunctionCall:
        """The call in the caller's session."""
        return cut.call(self._buffers[0])

    def run(self, cut: _Cut, call: FunctionCall) -> Any:
        """Make the step on all workers. Does not wait for it, except at the first run."""
        workers, recording = self._workers, self.recording
        workers.follow_seed()
        apart = workers.apart(self.captures)
        if apart:
            workers.replicate(apart)
        numbers = recording.count_runs(1)
        count = len(workers.sessions)
        for rank in range(1, count):
            self._run_beside(rank, numbers)
        answer = recording.run(call, 1, 0, False, numbers, cut.given())
        made = self._joined(tensors_of(answer))
        workers.flush()
        workers.note(self.captures)
        self._runs += 1
        if not self._runs & (self._runs - 1):
            self._check_equal()
        results = iter(made)
        return map_tensors(answer, lambda _: next(results))

    def _run_beside(self, rank: int, numbers: Sequence[float]) -> None:
        """Issue the step's commands at another worker."""
        workers, program = self._workers, self._other
        session = workers.sessions[rank]
        with workers.naming(rank):
            for each in self._without_gradient:
                workers.set_gradient_none(rank, each)
            register_program(session, program)  # may wait, so before any collective
            outputs = [next(session.ids) for _ in self.recording.trace.program.outputs]
            inputs = [*self._buffers[rank], *(workers.copy_of(rank, each) for each in self.captures)]
            request = programs_pb2.RunProgramRequest(
                hash=program.hash, inputs=[each._id for each in inputs], numbers=numbers, repeat=1, outputs=outputs
            )
            workers.post(rank, service_pb2.Command(run_program=request))
            for place in self._rows:
                workers.exchange(rank, pb.COLLECTIVE_KIND_GATHER, [outputs[place]], peer=0)
            session.released.extend(outputs)
            session.flush()

    def _joined(self, answers: Sequence[Any]) -> list[Any]:
        """The results of all workers: means, and rows one after another. `answers` are the caller's own."""
        workers = self._workers
        joined: dict[int, Any] = {}
        for place, kind, each in zip(self._outputs, self._kinds, answers, strict=True):
            if place is not None and kind == "rows" and place not in joined:
                with no_grad():
                    whole = workers.empty_like(0, each.detach(), each.shape[0] * len(workers.sessions))
                workers.exchange(0, pb.COLLECTIVE_KIND_GATHER, [each._id], [whole._id], peer=0)
                joined[place] = whole
        return [
            each if place is None else joined.get(place, each)
            for place, each in zip(self._outputs, answers, strict=True)
        ]

    def _check_equal(self) -> None:
        """Raise RuntimeError if the workers' tensors differ."""
        apart = self._workers.differing(self._changed)
        if apart:
            told = ", ".join(map(_described, apart))
            raise _refused(
                self._name,
                f"it gives tensors other values on each worker ({told}): statistics of the rows, random numbers or "
                "gradients that no backward() made",
            )

    def differs(self, answer: Any, reference: _Outcome, sizes: tuple[float, float] | None) -> str | None:
        """How gradients and results differ from those of the undivided step, if they do.

        sizes: norms of all gradients, divided and not, if random numbers make the gradients differ.
        """
        with no_grad():
            gradients = [(each.grad, known) for each, known in reference.gradients]
            if sizes is not None:
                if any(each is None or each.shape != known.shape for each, known in gradients):
                    return "a gradient is not as without division"
                return _differs_in_size(*sizes)
            scale = max((float(known.abs().max()) for _, known in gradients if known.numel()), default=0.0)
            checked = [("the gradient of", each, known, _scale(known, scale)) for each, known in gradients]
            for each, known in zip(tensors_of(answer), reference.results, strict=True):
                if known.is_floating_point() and known.numel():
                    checked.append(("a result,", each, known, float(known.abs().max())))
            for what, each, known, largest in checked:
                if each is None or each.shape != known.shape:
                    return f"{what} {_described(known)}, is not as without division"
                apart = float((each - known).abs().max()) if known.numel() else 0.0
                if math.isfinite(largest) and not apart <= _tolerance(known) * largest:
                    return (
                        f"{what} {_described(known)}, differs by {apart:.3g} from that without division. The loss must "
                        "be a mean over the rows, and no row may depend on others"
                    )
        return None


# A step with random numbers: by what factor its gradients' norm may differ. A sum halves it for two workers.
_LEAST_RATIO = 0.7
# The number of such steps, divided and not. In one step, the random numbers alone may change the norm by that factor.
_DRAWN_STEPS = 8


def _holds(recording: Recording, call: FunctionCall) -> bool:
    return recording.guard.holds_quickly(call.roots) or recording.guard.holds(call.roots)


def _refused(name: str, why: str) -> GradwireError:
    message = f"compile({name}, data_parallel=…): the step cannot be divided: {why}"
    return make_error(errors_pb2.REASON_NOT_SUPPORTED, message, 12)


def _described(tensor: Any) -> str:
    return f"{tensor._spec.dtype.name}{list(tensor._spec.shape)}"


def _tolerance(tensor: Any) -> float:
    """Largest difference by another order of sums, as a part of the largest value."""
    return min(0.1, float(4 * finfo(tensor.dtype).eps ** 0.4))


def _scale(known: Any, largest: float) -> float:
    """What a gradient's difference is compared with: its own size, but for what rounding makes of the largest one."""
    if not known.numel():
        return largest
    return max(float(known.abs().max()), min(1.0, 1000 * float(finfo(known.dtype).eps)) * largest)


def _drawn_sizes(
    whole: Recording, call: FunctionCall, divided: _Divided, cut: _Cut, before: _State
) -> tuple[float, float]:
    """The norms of all gradients of several divided and undivided steps, each with other random numbers.

    With random numbers only the size of all gradients together tells, for example, a sum from a mean.
    """
    one = other = 0.0
    for _ in range(_DRAWN_STEPS):
        before.restore(draws_again=False)
        divided.run(cut, divided.call(cut))
        one += _square_of_gradients(divided.recording)
        before.restore(draws_again=False)
        whole.run(call, 1, 0, False)
        other += _square_of_gradients(whole)
    return math.sqrt(one), math.sqrt(other)


def _square_of_gradients(recording: Recording) -> float:
    captures: list[Any] = list(recording.captures)
    with no_grad():
        gradients = [each.grad for each in captures if each._spec.requires_grad]
        return sum(float((each.detach().double() ** 2).sum()) for each in gradients if each is not None)


def _differs_in_size(one: float, other: float) -> str | None:
    """How the norm of all gradients differs from the undivided step's; a sum of rows gives 1 / N of it."""
    if math.isfinite(one) and math.isfinite(other) and not other / _LEAST_RATIO >= one >= other * _LEAST_RATIO:
        return (
            f"the norm of its gradients is {one:.3g}, and {other:.3g} without division. The loss must be a mean over "
            "the rows, and no row may depend on others"
        )
    return None


def _buckets(tensors: Sequence[Any]) -> list[list[Any]]:
    """The tensors in groups of one dtype and device, each of limited bytes."""
    made: list[list[Any]] = []
    open_groups: dict[Any, tuple[list[Any], int]] = {}
    for each in tensors:
        kind = (each.dtype, each.device)
        held, size = open_groups.get(kind, ([], 0))
        if not held or size + each.nbytes > _BUCKET_BYTES:
            held, size = [], 0
            made.append(held)
        held.append(each)
        open_groups[kind] = held, size + each.nbytes
    return made


def _kind_of(spec: Any, whole: Sequence[int], count: int, name: str) -> str:
    """How the workers' results make one: "mean", or "rows" one after another."""
    shape = tuple(spec.shape)
    if shape == tuple(whole):
        if spec.dtype.is_floating_point or spec.dtype.is_complex:
            return "mean"
        raise _refused(
            name, f"it returns {spec.dtype.name}{list(shape)} for any number of rows; only a floating mean is defined"
        )
    if shape and (shape[0] * count, *shape[1:]) == tuple(whole):
        return "rows"
    raise _refused(name, f"it returns a tensor of shape {list(whole)}, of which a part of the rows gives {list(shape)}")


def _find_obstacle(recorded: RecordedCall) -> str | None:
    """Why a recorded step cannot be divided, as far as its commands tell; None if it can."""
    captures: list[Any] = recorded.trace.captures
    seen: set[int] = set()
    for each in captures:
        if "_view" in each.__dict__:
            return f"it uses a view from outside, {_described(each)}; take the view in the step"
        if each._storage is not None and id(each._storage) in seen:
            return f"it uses tensors from outside that share memory, such as {_described(each)}"
        seen.add(id(each._storage))
    with_gradient = {each._id for each in captures if recorded.had(each) is not None}
    for command in recorded.recorder.commands:
        which = command.WhichOneof("command")
        if which == "gradients":
            return "it uses autograd.grad; only the gradients of backward() are averaged"
        if which == "manual_seed":
            return "it sets the random generator, or uses one of its own"
        if which == "collective" and not command.collective.group.startswith("data_parallel/"):
            return "it uses torch.distributed"
        if which == "set_grad":
            with_gradient.discard(command.set_grad.tensor)
        elif with_gradient and (which == "backward" or (which == "grad" and command.grad.tensor in with_gradient)):
            return "it uses gradients from before the call; begin with zero_grad(), which sets them to None"
        elif which == "op" and command.op.op in _BATCH_STATISTICS and _trains(command.op):
            return f"{command.op.op}() takes the statistics of the batch; call eval() on it, or normalize each row"
    return None


def _trains(op: Any) -> bool:
    return len(op.args) > 5 and op.args[5].boolean
