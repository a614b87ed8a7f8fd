"""Steps: prepared calls, the backward of a result and what follows it, as a loop repeats them with other ids.

Most results of the calls before the backward are released with it, so nobody can see them. Then the engine computes
the step as one list of forwards (autograd/repeated_step.py), and makes the tensors of results that stay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeAlias

from gradwire_engine import Context, Tensor
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_engine.autograd.repeated_step import Ran, RepeatedStep, Running
from gradwire_engine.autograd.step_join import Call, Cleared, Named, make
from gradwire_engine.op.repeated import Listing
from gradwire_server.common.protocol import CLIENT_IDS
from gradwire_server.session.prepared.ops import Prepared, Words
from gradwire_server.session.prepared.repeats import Description, describe, described_gradient

_MOST_COMMANDS = 1024  # of a step
_MOST_KNOWN = 1 << 13  # commands of all steps that are known
_MOST_PATTERNS = 16  # of the ids of one step
_ALWAYS = 2  # runs of a step at each of which it may be noted; after them only at powers of two, and from `_REPAID` on
#: Runs of a step from which its pass may be noted for it, which costs what many joined steps save; how often in a row.
_REPAID, _IN_A_ROW = 12, 4
#: The same for steps with more than so many calls: a client sends them whole only if they have come before.
_REPAID_LONG, LONG = 4, 64
_FEW = 8  # results that stay, of which each is looked for
_PATIENCE = 16  # steps in a row that a list could not run, until it is made anew
_TRIED = 64  # runs of calls until they are collected at one of so many only
#: Runs from which a step is noted; and one that the end of a batch may have cut.
_OFTEN, _OFTEN_CUT = 2, 4
#: Commands of a step that are no calls.
BACKWARD, NAME, CLEAR, CREATE = "backward", "grad", "set_grad", "create"
_Kind: TypeAlias = "Prepared | str"


class StepScope(Protocol):
    """The session in which steps run."""

    store: dict[int, Tensor]
    max_tensors: int
    grad_context: Context
    passes: PassMemo | None

    def enter(self, context: Context) -> None:
        """Activate a context."""

    def bind(self, tensor_id: int, tensor: Tensor) -> int:
        """Name a tensor by an id."""


class Commands:
    """The commands of a step, as they are collected from a batch.

    kinds: of each command. ids: of all commands, in order: a call's operands and result; the backward's tensor; the
    leaf and the name of its gradient; the leaf of a dropped one; a created tensor. ops: the numbers of the calls' ops.
    words, numbers: the numbers among the calls' operands, as bits and as floats. places: for each command, the command
    of the batch that has it, and its place among the calls there. cut: the end of the batch may have cut the step.
    """

    __slots__ = ("cut", "first", "ids", "kinds", "numbers", "ops", "places", "words")

    def __init__(self, first: int) -> None:
        self.first = first
        self.kinds: list[_Kind] = []
        self.ids: list[int] = []
        self.ops: list[int] = []
        self.words: list[int] = []
        self.numbers: list[float] = []
        self.places: list[tuple[int, int]] = []
        self.cut = False

    def add(self, kind: str, at: int, *ids: int) -> None:
        """Add a command that is no call."""
        self.kinds.append(kind)
        self.ids += ids
        self.places.append((at, 0))

    def drop(self, count: int) -> None:
        """Drop the last commands but for the first `count`; those that are dropped are calls."""
        for kind in reversed(self.kinds[count:]):
            assert isinstance(kind, Prepared)
            if numbers := len(kind.numbers):
                del self.words[-numbers:], self.numbers[-numbers:]
            del self.ids[len(self.ids) - _width(kind) :]
        del self.ops[len(self.ops) - len(self.kinds) + count :], self.kinds[count:], self.places[count:]

    def add_calls(self, plan: Sequence[tuple[Prepared, int]], ids: Words, numbers: Sequence[float], at: int) -> bool:
        """Add calls; False, with nothing added, if they cannot be joined."""
        for op, _ in plan:
            if not op.plainly:
                return False
        for number, (op, word) in enumerate(plan):
            self.kinds.append(op)
            self.ops.append(ids[word])
            self.places.append((at, number))
            for _, offset in op.tensors:
                self.ids.append(ids[word + offset])
            if op.outputs:
                self.ids.append(ids[word + op.width - 1])
            for _, offset in op.numbers:
                self.words.append(ids[word + offset])
                self.numbers.append(numbers[word + offset])
        return True


class StepMemo:
    """The steps of a session by their commands; the longest unused are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[_Kind, ...], dict[tuple[int, ...], Known]] = OrderedDict()
        self._commands = 0
        #: By the outline of calls before a backward: how often in a row no step ran. The last outline that was asked.
        self._missed: dict[object, int] = {}
        self._asked: object = None

    def is_worth(self, outline: object) -> bool:
        """Whether calls are worth collecting: each time at first, then at a few of the times."""
        missed = self._missed.get(outline, 0)
        if len(self._missed) >= _MOST_KNOWN:
            self._missed.clear()
        self._missed[outline], self._asked = missed + 1, outline
        return missed < _TRIED or not missed % _TRIED

    def has_run(self) -> None:
        """Note that the step that was asked for has run."""
        self._missed.pop(self._asked, None)

    def find(self, commands: Commands) -> Step | None:
        """The step that these commands are; None if they cannot be joined."""
        kinds = tuple(commands.kinds)
        patterns = self._known.get(kinds)
        if patterns is None:
            if len(kinds) > _MOST_COMMANDS:
                return None
            patterns = self._known[kinds] = {}
        else:
            self._known.move_to_end(kinds)
        places: dict[int, int] = {}
        pattern = tuple([places.setdefault(each, len(places)) for each in commands.ids])
        known = patterns.get(pattern)
        if known is None:
            if len(patterns) >= _MOST_PATTERNS:
                self._commands -= len(kinds) * len(patterns)
                patterns.clear()
            known = patterns[pattern] = Known(kinds, pattern)
            self._commands += len(kinds)
            while self._commands > _MOST_KNOWN:
                oldest, forgotten = self._known.popitem(last=False)
                self._commands -= len(oldest) * len(forgotten)
        return None if known.made is None else Step(known, commands, list(places))


class _Made(NamedTuple):
    """Places of the results of a step's commands: before the backward, and after it by the number of the command."""

    before: tuple[int, ...]
    after: tuple[tuple[int, int], ...]


class Known:
    """What is known of steps with these commands and one pattern of ids: how often they ran, and their list."""

    __slots__ = (
        "_before", "calls", "draws", "fixed", "given", "kinds", "list", "made", "misses", "named", "noted", "patience",
        "pattern", "runs", "template_tries", "varying",
    )  # fmt: skip

    def __init__(self, kinds: Sequence[_Kind], pattern: tuple[int, ...]) -> None:
        self.kinds, self.pattern = kinds, pattern
        self.calls = kinds.index(BACKWARD)
        #: Whether a call may draw. Such a step has no list, and a call that is retried would draw other numbers.
        self.draws = any(isinstance(kind, Prepared) and kind.call.op.draws for kind in kinds)
        self.made = self._made(kinds)
        #: What takes from ids those of the results before the backward, and those of all results.
        before = () if self.made is None else self.made.before
        self._before, self.named = taking(before), taking(self.results)
        #: The list, once it is confirmed; until then in `noted`.
        self.list: RepeatedStep | None = None
        self.noted: RepeatedStep | None = None
        self.runs = 0
        self.template_tries = 0  # at making a template (templates.py)
        #: Steps in a row that the list could not run, and from how many it is noted anew.
        self.misses, self.patience = 0, _PATIENCE
        #: Places of the tensors that the list takes, numbers that may vary, and the bits of other numbers.
        self.given: list[int] = []
        self.varying: list[int] = []
        self.fixed: list[tuple[int, int]] = []

    def _made(self, kinds: Sequence[_Kind]) -> _Made | None:
        """The results, if each has an id that no command before has."""
        before: list[int] = []
        after: list[tuple[int, int]] = []
        at, seen = 0, 0  # places are numbered in order
        for number, kind in enumerate(kinds):
            width = _width(kind)
            used = self.pattern[at : at + width - (1 if _makes(kind) else 0)]
            seen = max(seen, *[each + 1 for each in used], 0) if used else seen
            at += width
            if not _makes(kind):
                continue
            made = self.pattern[at - 1]
            if made != seen:
                return None
            seen += 1
            if number < self.calls:
                before.append(made)
            else:
                after.append((number - self.calls - 1, made))
        return _Made(tuple(before), tuple(after))

    @property
    def results(self) -> Sequence[int]:
        """The places of all results."""
        return () if self.made is None else (*self.made.before, *[place for _, place in self.made.after])

    @property
    def repaid(self) -> int:
        """Runs from which a pass may be noted for this step."""
        return _REPAID_LONG if self.calls > LONG else _REPAID

    def may_be_noted(self) -> bool:
        """Whether there is no list, or none that runs; called when a step's commands have run."""
        if self.list is None:
            return True
        self.misses += 1
        if self.misses < self.patience:
            return False
        self.misses, self.patience = 0, min(2 * self.patience, _MOST_KNOWN)
        self.list, self.runs, self.template_tries = None, 0, 0
        return True

    def run(
        self, scope: StepScope, ids: Sequence[int], numbers: Sequence[float], gone: set[int], first: int
    ) -> Running:
        """Run a step; None, with nothing changed, if its commands must run. `bind` must follow. Yields in pauses.

        ids: by place. numbers: those that may vary. gone: ids that are released by the end of the step. first: number
        of the first command.
        """
        step, store = self.list, scope.store
        if step is None or self.made is None:
            return None
        calls = self._before(ids)
        made = {*calls, *[ids[place] for _, place in self.made.after]}
        if max(made) >= CLIENT_IDS or 0 in made or len(store) + len(made) > scope.max_tensors:
            return None
        if not (made.isdisjoint(store) if len(store) < len(made) else store.keys().isdisjoint(made)):
            return None
        kept = self._kept(calls, gone)
        tensors = [store.get(ids[place]) for place in self.given]
        if None in tensors:
            return None
        ran = yield from step.run(tensors, numbers, scope.grad_context, scope.enter, kept, first)  # type: ignore[arg-type]
        if ran is not None:
            self.misses = 0
        return ran

    def _kept(self, made: tuple[int, ...], gone: set[int]) -> tuple[int, ...]:
        """The places of results before the backward that stay. made: their ids."""
        assert self.made is not None
        left, before = {*made}.difference(gone), self.made.before
        if len(left) < _FEW:
            return tuple(sorted([before[made.index(each)] for each in left]))
        return tuple([place for place, each in zip(before, made, strict=True) if each in left])

    def bind(self, scope: StepScope, ids: Sequence[int], ran: Ran, gone: Collection[int], whole: bool) -> None:
        """Name the results of a step that has run, except those that are gone.

        gone: as for `run`. whole: whether all commands ran; else what follows releases the results.
        """
        assert self.made is not None
        for place, tensor in ran.kept.items():
            scope.bind(ids[place], tensor)
        gone = gone if whole else ()
        for number, place in self.made.after:
            if number < ran.done and ids[place] not in gone:
                scope.bind(ids[place], ran.tensor(place))


def taking(places: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """What takes the items at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda ids: tuple([ids[place] for place in places])


def _width(kind: _Kind) -> int:
    """Number of a command's ids."""
    if isinstance(kind, str):
        return 2 if kind == NAME else 1
    return len(kind.tensors) + kind.outputs


def _makes(kind: _Kind) -> bool:
    """Whether a command's last id is of a new tensor."""
    return kind == NAME if isinstance(kind, str) else bool(kind.outputs)


class Step:
    """A step that is about to run. ids: by place."""

    __slots__ = ("commands", "ids", "known")

    def __init__(self, known: Known, commands: Commands, ids: list[int]) -> None:
        self.known, self.commands, self.ids = known, commands, ids

    @property
    def first(self) -> int:
        """The first command of the batch that belongs to the step."""
        return self.commands.first

    @property
    def last_calls(self) -> int:
        """The last command of the batch before the backward that has calls."""
        number = max(at for at, kind in enumerate(self.known.kinds[: self.known.calls]) if not isinstance(kind, str))
        return self.commands.places[number][0]

    @property
    def created(self) -> list[int]:
        """The commands of the batch that create tensors of the step."""
        before = zip(self.known.kinds[: self.known.calls], self.commands.places, strict=False)
        return [place[0] for kind, place in before if kind == CREATE]

    @property
    def end(self) -> int:
        """The last command of the batch that belongs to the step."""
        return self.commands.places[-1][0]

    @property
    def numbers(self) -> list[float] | None:
        """The numbers that may vary; None if others are not as they were, or nothing is known."""
        known, commands = self.known, self.commands
        if known.list is None or any(commands.words[at] != word for at, word in known.fixed):
            return None
        return [commands.numbers[place] for place in known.varying]

    @property
    def is_due(self) -> bool:
        """Whether `note` would note it now, so that its tensors must stay until then."""
        return self.known.list is None and not self.known.draws and self._is_due(self.known.runs + 1)

    def has_room(self, scope: StepScope) -> bool:
        """Whether there may be as many tensors as there are if none is released before the step is noted."""
        return len(scope.store) + len(self.known.results) <= scope.max_tensors

    def _is_due(self, runs: int) -> bool:
        if runs < (_OFTEN_CUT if self.commands.cut else _OFTEN):
            return False
        return runs <= _ALWAYS or 0 <= runs - self.known.repaid < _IN_A_ROW or not runs & (runs - 1)

    def note(self, scope: StepScope) -> Generator[None, None, bool]:
        """Note the step, when its calls have run and its backward has not, and no result was released.

        Whether `confirm` must be called when all its commands have run. Yields in pauses.
        """
        known = self.known
        if scope.passes is None or not known.may_be_noted():
            return False
        known.runs += 1
        if not self._is_due(known.runs):
            return False
        listings = list(self._listings(scope.store))
        if None in listings:
            return False
        varying: list[int] = []
        told = list(self._told(iter([each for each in listings if each is not None]), varying))
        scope.enter(scope.grad_context)
        tensors = [scope.store.get(each) for each in self.ids]
        numbers = [self.commands.numbers[place] for place in varying]
        calls, following = told[: known.calls], [each for each in told[known.calls :] if each is not None]
        before = [each for each in calls if isinstance(each, Call)]
        cleared = [each for each in calls if isinstance(each, Cleared)]
        loss = known.pattern[sum(map(_width, self.commands.kinds[: known.calls]))]
        known.noted = made = yield from make(
            before, following, tensors, numbers, loss, scope.passes, cleared, known.runs >= known.repaid
        )
        if made is None:
            return False
        known.given = [place for place, _, _ in made.given]
        known.varying = varying
        known.fixed = [(at, word) for at, word in enumerate(self.commands.words) if at not in varying]
        return True

    def confirm(self, scope: StepScope) -> None:
        """Compare what a noted step has computed with what its commands have changed, and use it if that is equal."""
        known = self.known
        noted, known.noted = known.noted, None
        if noted is not None and noted.confirm([scope.store.get(each) for each in self.ids]):
            known.list = noted

    def _listings(self, store: Mapping[int, Tensor]) -> Iterator[Listing | None]:
        """What each call computes, as far as it is known. Tensors that are still to be made are foretold."""
        pattern, numbers = iter(self.known.pattern), iter(self.commands.numbers)
        known: dict[int, Description] = {}
        for place, each in enumerate(self.ids):
            if each in store:
                known[place] = describe(store[each])
        for kind in self.commands.kinds:
            if isinstance(kind, str):
                places = [next(pattern) for _ in range(_width(kind))]
                if kind == NAME and places[0] in known:
                    known[places[1]] = described_gradient(known[places[0]])
                continue
            operands = [known.get(next(pattern)) for _ in kind.tensors]
            given = [next(numbers) for _ in kind.numbers]
            listing = None if None in operands else kind.listing_for(operands, given)  # type: ignore[arg-type]
            if kind.outputs:
                place = next(pattern)
                if listing is not None and listing.result is not None:
                    result = listing.result
                    known[place] = (result.shape, result.strides, result.dtype, result.requires_grad)
            yield listing

    def _told(self, listings: Iterator[Listing], varying: list[int]) -> Iterator[Call | Named | Cleared | None]:
        """The commands as the engine joins them, or None. Adds numbers that may vary to `varying`."""
        pattern = iter(self.known.pattern)
        number = 0
        for command, kind in enumerate(self.commands.kinds):
            if isinstance(kind, str):
                places = [next(pattern) for _ in range(_width(kind))]
                if kind == NAME:
                    yield Named(*places)
                else:
                    yield Cleared(*places) if kind == CLEAR else None
                continue
            listing = next(listings)
            arguments: list[int | None] = [None] * len(listing.operands)
            for position, _ in kind.tensors:
                arguments[position] = next(pattern)
            for position, _ in kind.numbers:
                if listing.operands[position].kind == "float":
                    arguments[position] = ~len(varying)
                    varying.append(number)
                number += 1
            yield Call(kind.context, listing, tuple(arguments), next(pattern) if kind.outputs else -1, command)
