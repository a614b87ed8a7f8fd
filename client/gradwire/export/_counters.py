"""Counters: optimizers' and schedulers' numbers that become state of an exported program.

While a function is recorded, learning rates, step counts and epochs are symbolic (`_compile.symbolic`). What the
function leaves in their places tells the counters' rules. A number that changes without a rule is refused: a program
would keep the value of the example.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from gradwire._base.errors import make_error
from gradwire._compile.symbolic import Formula, SymbolicNumber, formula_of
from gradwire.export._names import Reached, parameters_of
from gradwire.v1 import errors_pb2, programs_pb2

# Numbers in a parameter's state that count steps.
_STATE_NUMBERS = ("step", "mu_product", "eta", "mu")
_MOST_TERMS = 256
#: Where a number is: the dictionary and its key.
Place = tuple[dict[str, Any], str]


def refusal(message: str) -> Exception:
    """The error for a function that cannot be exported."""
    return make_error(errors_pb2.REASON_NOT_SUPPORTED, f"export: {message}", 12)


class Counters:
    """Replaces numbers by symbolic ones in a `with` block, and then puts the plain ones back."""

    def __init__(self, reached: Reached, stepped: set[int]) -> None:
        """`stepped` has the ids of the states whose numbers the function changes."""
        self.names: list[str] = []
        self.values: list[float] = []
        #: Per counter: its formula after the function, once the block is left.
        self.formulas: list[Formula] = []
        self._places: list[list[Place]] = []
        self._dicts: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        for name, optimizer in reached.optimizers.items():
            self._add_optimizer(name, optimizer, stepped)
        for name, scheduler in reached.schedulers.items():
            held = scheduler.__dict__
            self._keep(name, held)
            for counter in scheduler._counters_here():
                self._add(f"{name}.{counter}", [(held, counter)])

    def _add_optimizer(self, name: str, optimizer: Any, stepped: set[int]) -> None:
        groups = optimizer.param_groups
        for number, group in enumerate(groups):
            at = name if len(groups) == 1 else f"{name}.param_groups.{number}"
            self._keep(at, group)
            self._add(f"{at}.lr", [(group, "lr")])
        shared: dict[tuple[str, Any], list[Place]] = {}
        for number, group in enumerate(groups):
            for param in group["params"]:
                state = optimizer.state.get(param, {})
                self._keep(name, state)
                for key in _STATE_NUMBERS:
                    if id(state) in stepped and key in state:
                        # Step counts are the same for parameters that are equally far, the others for those of a group.
                        of = number if key != "step" else None
                        shared.setdefault((key, (state[key], of)), []).append((state, key))
        for (key, _), places in shared.items():
            self._add(f"{name}.{key}", places)

    def _keep(self, name: str, held: dict[str, Any]) -> None:
        self._dicts.append((name, held, dict(held)))

    def _add(self, name: str, places: list[Place]) -> None:
        held, key = places[0]
        if not isinstance(held[key], (int, float)):
            raise refusal(f"{name} is a {type(held[key]).__name__}, not a number")
        count = sum(each == name or each.startswith(f"{name}.") for each in self.names)
        self.names.append(f"{name}.{count + 1}" if count else name)
        self.values.append(float(held[key]))
        self._places.append(places)

    def source(self, number: int) -> Any:
        """What identifies a counter in other programs of a file."""
        held, key = self._places[number][0]
        return id(held), key

    def __enter__(self) -> Counters:
        for number, places in enumerate(self._places):
            for held, key in places:
                held[key] = SymbolicNumber(held[key], ("counter", number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        ends = [[held[key] for held, key in places] for places in self._places]
        changed = self._find_unruled() if error is None else None
        for _, held, before in self._dicts:
            held.clear()
            held.update(before)
        if error is not None:
            return
        if changed is not None:
            raise refusal(f"the function changes {changed}, for which there is no rule; it would keep its value")
        for name, end in zip(self.names, ends, strict=True):
            found = {formula_of(each) for each in end}
            if len(found) > 1:
                raise refusal(f"the function changes {name} for some parameters only")
            self.formulas.append(found.pop())

    def _find_unruled(self) -> str | None:
        """Name of an option that the function changed and that is no counter."""
        counted = {(id(held), key) for places in self._places for held, key in places}
        for name, held, before in self._dicts:
            for key, value in held.items():
                was = before.get(key)
                if key.startswith("_") or (id(held), key) in counted or value is was or isinstance(value, list):
                    continue
                parts = value if isinstance(value, tuple) else (value,)
                if any(isinstance(part, SymbolicNumber) for part in parts) or (
                    isinstance(value, (int, float, tuple)) and value != was
                ):
                    return f"{name}.{key}"
        return None


class Rules:
    """The rules of a program, and the counters that it needs."""

    def __init__(self, counters: Counters, numbers: Sequence[Formula]) -> None:
        """`numbers` are the formulas of the program's numbers. Raises GradwireError for one without a counter."""
        used: set[int] = set()
        for formula in numbers:
            found = _counters_in(formula)
            if not found:
                raise refusal(
                    "an optimizer is not found from the function: make it a variable that the function names, or an "
                    "attribute of its object"
                )
            used |= found
        changed = [number for number, end in enumerate(counters.formulas) if end != ("counter", number)]
        used.update(changed)
        for number in changed:
            used |= _counters_in(counters.formulas[number])
        self.counters = sorted(used)
        self.changed = set(changed)
        self._ends = counters.formulas
        self._numbers = numbers

    def fill(self, program: programs_pb2.Program, first: int) -> None:
        """Add the rules to a program, whose inputs from `first` on are the counters."""
        places = {number: first + place for place, number in enumerate(self.counters)}
        for number, formula in enumerate(self._numbers):
            _write(program.rules.add(number=number), formula, places)
        for number in self.counters:
            if number in self.changed:
                _write(program.rules.add(input=places[number]), self._ends[number], places)


def _counters_in(formula: Formula) -> set[int]:
    if formula[0] == "counter":
        return {formula[1]}
    if formula[0] == "constant":
        return set()
    return set().union(*map(_counters_in, formula[1:]))


def _write(rule: programs_pb2.NumberRule, formula: Formula, places: dict[int, int]) -> None:
    kind = formula[0]
    if len(rule.terms) >= _MOST_TERMS:
        raise refusal(f"a rule has more than {_MOST_TERMS} terms: export fewer schedulers in one function")
    if kind == "constant":
        rule.terms.add(constant=formula[1])
    elif kind == "counter":
        rule.terms.add(input=places[formula[1]])
    else:
        for operand in formula[1:]:
            _write(rule, operand, places)
        rule.terms.add(operator=programs_pb2.RuleOperator.Value(f"RULE_OPERATOR_{kind}"))


def step_numbers(reached: Reached) -> dict[tuple[int, str], Any]:
    """The numbers in all parameters' states, by (id of the state, key)."""
    return {
        (id(state), key): state[key]
        for optimizer in reached.optimizers.values()
        for _, _, state in parameters_of(optimizer)
        for key in _STATE_NUMBERS
        if key in state
    }
