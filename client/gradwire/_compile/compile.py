"""compile: records a function once, then runs each call as one command (torch.compile).

The first call runs uncompiled and is recorded (recorder.py). A command waits for its answer, unless it is known from an
equal one of this call or of an earlier recorded call. A later call whose guards hold (guards.py) sends one command that
runs the program on the server. That command does not wait, so calls pipeline. A call whose guards fail is recorded
again. A function that cannot be recorded is sent in parts, each of which is a program (segments.py).
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base.errors import GradwireTypeError, GradwireValueError
from gradwire._base.refused import refusal
from gradwire._compile.calls import FunctionCall, is_transformed
from gradwire._compile.data_parallel import DataParallel
from gradwire._compile.recorded_run import RECORDING, is_recording
from gradwire._compile.recorder import KnownAnswers
from gradwire._compile.recordings import RecordedCall, Recording, counted
from gradwire._compile.result_structure import join_pieces, map_tensors
from gradwire._compile.segments import SegmentedFunction
from gradwire._compile.usage_tracker import CallUsage
from gradwire._dispatch.modes import MODES

# Number of consecutive calls that cannot be replayed, after which a function is no longer recorded.
_MOST_FAILURES = 4


def compile(
    model: Any = None,
    *,
    repeat: int | None = None,
    batch_size: int | None = None,
    sliced: Sequence[int | str] | None = None,
    stacked: bool = False,
    verify: bool = False,
    cache_size: int = 8,
    data_parallel: int | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """Compile a function or module, so that each call is one command (torch.compile).

    Usable as a decorator, with or without brackets. The first call with arguments of a kind runs uncompiled and is
    recorded. Later calls run the recording on the given tensors and the tensors that the function closes over. The
    function may change them in place, differentiate them and set their `.grad`. It is recorded again when argument
    shapes, dtypes, numbers or closed-over objects change, at most `cache_size` times.

    repeat: number of repetitions per call. The call returns the last repetition's answer, or with `stacked` all of
    them along a new first dimension.
    batch_size: slice tensor arguments along their first dimension; repetition k gets the rows from k * batch_size on.
    `sliced` selects the arguments by position or name (default: all). Without `repeat`, every slice is run.
    verify: run uncompiled each time. Raises RuntimeError where the commands differ from the recording.

    data_parallel: divide each call of a training step over so many sessions, each on a worker of the server or on a
    node of the cluster. Each gets an equal part of the rows of the `sliced` arguments; the average of their gradients
    is used (see data_parallel.py). Not with the options above, except `cache_size`.

    fullgraph: raise an error where the call cannot become one program: a value is read inside, a shape follows from
    values. By default one warning for each place names the line. After a few such calls in a row, the function's Python
    runs at each call, and the commands before and after such a place (a graph break) run as programs.

    The other options are PyTorch's and have no effect, except `disable`, which returns the function itself.
    """
    if model is None:
        return functools.partial(
            compile, repeat=repeat, batch_size=batch_size, sliced=sliced, stacked=stacked, verify=verify,
            cache_size=cache_size, data_parallel=data_parallel, fullgraph=fullgraph, disable=disable,
        )  # fmt: skip
    if disable:
        return model
    if not callable(model):
        raise GradwireTypeError(f"compile() takes a function or a module, but got {type(model).__name__}")
    for name, number in (("repeat", repeat), ("batch_size", batch_size), ("data_parallel", data_parallel)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise GradwireValueError(f"compile(): {name} must be a whole number from 1 on, not {number!r}")
    if data_parallel is not None:
        if repeat is not None or batch_size is not None or stacked or verify:
            raise GradwireValueError(
                "compile(): data_parallel is not combined with repeat, batch_size, stacked or verify"
            )
        return DataParallel(model, data_parallel, sliced, cache_size)
    return Compiled(model, repeat, batch_size, sliced, stacked, verify, cache_size, fullgraph)


class Compiled:
    """Compiled function, returned by compile(). It is called like the function and forwards its attributes."""

    def __init__(
        self,
        function: Callable[..., Any],
        repeat: int | None,
        batch_size: int | None,
        sliced: Sequence[int | str] | None,
        stacked: bool,
        verify: bool,
        cache_size: int,
        fullgraph: bool,
    ) -> None:
        self._function = function
        self._repeat = repeat
        self._batch_size = batch_size
        self._sliced = sliced
        self._stacked = stacked
        self._verify = verify
        self._cache_size = cache_size
        self._fullgraph = fullgraph
        self._recordings: dict[tuple[Any, ...], list[Recording]] = {}
        self._failures = 0
        self._learned: list[CallUsage] = []
        #: What the ops of recorded calls have had answered.
        self._known: KnownAnswers | None = None
        self._segmented = SegmentedFunction(function)
        #: Reasons why calls ran uncompiled, each once.
        self.reasons: dict[str, str] = {}
        #: Reason why the function is no longer recorded; None while it is.
        self.given_up: str | None = None
        if hasattr(function, "__name__"):
            functools.update_wrapper(self, function, updated=())

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # not yet set while an object is being copied
            raise AttributeError(name)
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        """Of a copy or pickle: the function and the options. Recordings are made anew."""
        return Compiled, (
            self._function, self._repeat, self._batch_size, self._sliced, self._stacked, self._verify,
            self._cache_size, self._fullgraph,
        )  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        make, options = self.__reduce__()
        made: Compiled = make(*copy.deepcopy(options, memo))
        return made

    def __guard__(self) -> Any:
        """Object that a caller's guard depends on."""
        return self._function

    def __repr__(self) -> str:
        return f"<compiled {self._function!r}>"

    def describe(self) -> list[str]:
        """Describe the recordings and how the server runs them, in sentences. Costs one round trip per recording."""
        recordings = [one for held in self._recordings.values() for one in held]
        title = f"{self._name()}: a compiled function with {counted(len(recordings), 'recording')}"
        lines = [f"{title} of {self._cache_size} that it may have."]
        lines += [f"- {recording.describe()}" for recording in recordings]
        lines += [f"- Some calls ran uncompiled: {why}." for why in self.reasons if why != self.given_up]
        if self.given_up is not None:
            lines.append(f"- From now on its Python runs uncompiled, and its commands in parts: {self.given_up}.")
            lines += self._segmented.describe()
        elif self._verify:
            lines.append("- verify=True: each call runs uncompiled and is compared with the recording.")
        return lines

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; run a recorded program if one fits."""
        uncompiled = self.given_up is not None and not self._recordings
        if is_recording() or is_transformed():
            return self._function(*args, **kwargs)
        if MODES.get():  # which see each op
            if self._repeat is not None or self._batch_size is not None:
                raise refusal("utils._python_dispatch.TorchDispatchMode", "no compiled loop in a dispatch mode")
            return self._function(*args, **kwargs)
        if uncompiled and self._repeat is None and self._batch_size is None:
            return self._segmented(*args, **kwargs)
        call = FunctionCall(self._function, self._batch_size, self._sliced, args, kwargs)
        if self._repeat is None and self._batch_size is None:
            return self._once(call)
        return self._many(call)

    def _once(self, call: FunctionCall) -> Any:
        recording = self._find(call, 0)
        if recording is None:
            return self._record(call, 0)
        session = recording.session
        first = session.next_command()
        answer = recording.run(call, 1, 0, False)
        session.note_module_call(first, None, self._name().rpartition(".")[2])
        return answer

    def _many(self, call: FunctionCall) -> Any:
        """Run all repetitions: record until a periodic recording exists, then send the rest as one command."""
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

    def _find(self, call: FunctionCall, done: int) -> Recording | None:
        """Find a recording that fits: first compare by identity, then by value."""
        if self._verify:
            return None
        held = self._recordings.get(call.key)
        for recording in held or ():
            if recording.fits(call) and recording.guard.holds_quickly(call.roots):
                return recording
        for recording in held or ():
            if recording.fits(call) and recording.guard.holds(call.roots):
                return recording
        return None

    def _record(self, call: FunctionCall, done: int) -> Any:
        """Call the function uncompiled, and record the call unless recording was given up."""
        args, kwargs = call.arguments(done)
        count = sum(map(len, self._recordings.values()))
        if self.given_up is not None or (count >= self._cache_size and not self._verify):
            if self.given_up is None:
                self._give_up(f"it was recorded {count} times, each time for other arguments or another ambient state")
            return self._segmented(*args, **kwargs)
        known, self._known = self._known, None  # dropped if the call raises: one of them may be why
        with RECORDING:
            recorded = RecordedCall(call, args, kwargs, self._learned, self._verify, not self._fullgraph, known, True)
        self._known = None if self._verify else recorded.recorder.known
        self._segmented.use_session(recorded.session)
        self._learned = [*self._learned[-_MOST_FAILURES:], recorded.usage]
        recording = recorded.recording
        if recording is None:
            assert recorded.obstacle is not None
            self._failures += 1
            if recorded.permanent:
                for why in recorded.obstacles():
                    self._warn(why, why in recorded.recorder.breaks)
            if self._failures >= _MOST_FAILURES:
                self._give_up(recorded.obstacle)
            return recorded.answer
        self._failures = 0
        held = self._recordings.setdefault(call.key, [])
        same = next((one for one in held if one.entry == recording.entry), None) if self._verify else None
        if same is None:
            held.insert(0, recording)
        else:
            same.compare(recording)
        return recorded.answer

    def _name(self) -> str:
        return str(getattr(self._function, "__qualname__", type(self._function).__name__))

    def _give_up(self, why: str) -> None:
        self.given_up = why
        if why not in self.reasons:
            self.reasons[why] = why
            text = f"compile({self._name()}): from now on its Python runs uncompiled, and its commands in parts: {why}"
            warnings.warn(text, UserWarning, stacklevel=5)

    def _warn(self, why: str, is_break: bool) -> None:
        """Warn that a call ran uncompiled, once per reason."""
        if why not in self.reasons:
            self.reasons[why] = why
            what = "this call runs uncompiled"
            what = f"a graph break: {what}, later ones in parts before and after it" if is_break else what
            warnings.warn(f"compile({self._name()}): {what}: {why}", UserWarning, stacklevel=5)
