"""Rules: a program's numbers and counters as formulas, such as Adam's bias corrections.

A formula is a list of terms in postfix order. Registration checks it and composes it from closures, so a run neither
parses nor decides anything. The operators are a closed set on float64, with Python's results: the client's optimizers
compute the same formulas, and both must agree to the last bit.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from gradwire.v1 import programs_pb2
from gradwire_server.common.errors import Refusal

MAX_TERMS = 256  # composed closures call each other this deep at most
MAX_ALL_TERMS = 1 << 16  # of a program, so that a repetition takes milliseconds
#: Computes a value from those of counters and numbers, in which a counter's key is its input and a number's ~index.
Formula: TypeAlias = Callable[[dict[int, float]], float]


def _modulo(a: float, b: float) -> float:
    return a % b


def _round_to_float32(a: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(a))


def _power(a: float, b: float) -> float:
    if a < 0 and not b.is_integer():
        raise ValueError("a root of a negative number")
    return float(a**b)


_UNARY: dict[int, Callable[[float], float]] = {
    programs_pb2.RULE_OPERATOR_NEGATE: lambda a: -a,
    programs_pb2.RULE_OPERATOR_FLOOR: lambda a: float(math.floor(a)),
    programs_pb2.RULE_OPERATOR_COSINE: math.cos,
    programs_pb2.RULE_OPERATOR_EXPONENTIAL: math.exp,
    programs_pb2.RULE_OPERATOR_ROUND_TO_FLOAT32: _round_to_float32,
}
_BINARY: dict[int, Callable[[float, float], float]] = {
    programs_pb2.RULE_OPERATOR_ADD: lambda a, b: a + b,
    programs_pb2.RULE_OPERATOR_SUBTRACT: lambda a, b: a - b,
    programs_pb2.RULE_OPERATOR_MULTIPLY: lambda a, b: a * b,
    programs_pb2.RULE_OPERATOR_DIVIDE: lambda a, b: a / b,
    programs_pb2.RULE_OPERATOR_POWER: _power,
    programs_pb2.RULE_OPERATOR_MODULO: _modulo,
    programs_pb2.RULE_OPERATOR_MINIMUM: min,
    programs_pb2.RULE_OPERATOR_MAXIMUM: max,
    programs_pb2.RULE_OPERATOR_LESS: lambda a, b: float(a < b),
    programs_pb2.RULE_OPERATOR_LESS_OR_EQUAL: lambda a, b: float(a <= b),
    programs_pb2.RULE_OPERATOR_EQUAL: lambda a, b: float(a == b),
}


class Rules:
    """A program's rules in order."""

    def __init__(self, rules: Sequence[programs_pb2.NumberRule], numbers: int, counters: Collection[int]) -> None:
        """Check the rules; `counters` are the inputs that they may use. Raises Refusal: MALFORMED."""
        #: Inputs that rules read or set.
        self.counters: list[int] = []
        self._set: dict[int, None] = {}
        self._formulas: list[tuple[int, Formula]] = []
        self._numbers = numbers
        self._allowed = counters
        total = sum(len(rule.terms) for rule in rules)
        if total > MAX_ALL_TERMS:
            raise _malformed(f"a program's rules have at most {MAX_ALL_TERMS} terms in all, not {total}")
        for place, rule in enumerate(rules):
            try:
                self._add(rule)
            except Refusal as refusal:
                refusal.metadata["rule"] = str(place)
                raise
        #: Numbers without a rule, which a run gives.
        self.given = [index for index in range(numbers) if ~index not in self._set]
        self._ruled = [index for index in range(numbers) if ~index in self._set]

    def _add(self, rule: programs_pb2.NumberRule) -> None:
        target = rule.WhichOneof("target")
        if target is None:
            raise _malformed("a rule sets neither a number nor a counter")
        if target == "number":
            if rule.number >= self._numbers:
                raise _malformed(f"the program has {self._numbers} numbers and none of index {rule.number}")
            key = ~rule.number
            if key in self._set:
                raise _malformed(f"number {rule.number} has two rules")
        else:
            key = self._counter(rule.input)
            if key in self._set:
                raise _malformed(f"input {key} has two rules")
        if len(rule.terms) > MAX_TERMS:
            raise _malformed(f"a rule has at most {MAX_TERMS} terms, not {len(rule.terms)}")
        self._formulas.append((key, self._formula(rule.terms)))
        self._set[key] = None

    def _counter(self, index: int) -> int:
        if index not in self._allowed:
            raise _malformed(
                f"input {index} is no counter: float64, without dimensions, on the CPU, without a gradient"
            )
        if index not in self.counters:
            self.counters.append(index)
        return index

    def _formula(self, terms: Iterable[programs_pb2.RuleTerm]) -> Formula:
        held: list[Formula] = []
        for term in terms:
            which = term.WhichOneof("term")
            if which == "constant":
                held.append(_constant(term.constant))
            elif which == "input":
                held.append(_value(self._counter(term.input)))
            elif which == "number":
                if ~term.number not in self._set:
                    raise _malformed(f"number {term.number} is used before a rule sets it")
                held.append(_value(~term.number))
            elif which == "operator":
                _apply(term.operator, held)
            else:
                raise _malformed("an empty term, or one that this server does not support")
        if len(held) != 1:
            raise _malformed(f"a rule's terms leave {len(held)} values, not one")
        return held[0]

    def evaluate(self, counters: Sequence[float], given: Sequence[float]) -> tuple[list[float], dict[int, float]]:
        """Return all numbers of a repetition, and new values of counters by input.

        `counters` are their values in the order of `self.counters`, `given` the numbers without a rule. Raises
        Refusal: ARGUMENT_VALUE if a rule fails.
        """
        values = dict(zip(self.counters, counters, strict=True))
        changed: dict[int, float] = {}
        for place, (key, formula) in enumerate(self._formulas):
            try:
                (changed if key >= 0 else values)[key] = formula(values)
            except (ZeroDivisionError, OverflowError, ValueError) as error:
                raise Refusal(
                    "ARGUMENT_VALUE", f"rule {place} of the program failed: {error}", argument="rules", rule=place
                ) from None
        numbers = [0.0] * self._numbers
        for index, number in zip(self.given, given, strict=True):
            numbers[index] = number
        for index in self._ruled:
            numbers[index] = values[~index]
        return numbers, changed


def _constant(value: float) -> Formula:
    return lambda values: value


def _value(key: int) -> Formula:
    return lambda values: values[key]


def _apply(operator: int, held: list[Formula]) -> None:
    """Replace an operator's operands, the last formulas, by its result. Raises Refusal: MALFORMED."""
    if operator in _UNARY:
        unary = _UNARY[operator]
        (a,) = _take(held, 1)
        held.append(lambda values: unary(a(values)))
    elif operator in _BINARY:
        binary = _BINARY[operator]
        a, b = _take(held, 2)
        held.append(lambda values: binary(a(values), b(values)))
    elif operator == programs_pb2.RULE_OPERATOR_SELECT:
        condition, a, b = _take(held, 3)
        held.append(lambda values: a(values) if condition(values) else b(values))
    else:
        allowed = ", ".join(programs_pb2.RuleOperator.keys()[1:])
        raise _malformed(f"there is no rule operator {operator}; the server has {allowed}")


def _take(held: list[Formula], count: int) -> list[Formula]:
    if len(held) < count:
        raise _malformed("a rule's operator has too few operands")
    taken = held[-count:]
    del held[-count:]
    return taken


def _malformed(message: str) -> Refusal:
    return Refusal("MALFORMED", message, argument="rules")
