"""Repeated calls and backwards of the ops of the parity tables, and of random chains of them: the same bits as without.

Each repetition gets other values: fresh ones, zeros, ties, infinities, nan, permuted or other labels. Floats and
numbers among the arguments vary too. GRADWIRE_REPEATED_RUNS says how often each op is drawn for: with more than once,
all its samples are. GRADWIRE_REPEATED_SEED says what is drawn.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tests.parity.test_ops  # noqa: F401 - fills the table
from gradwire_engine import REGISTRY, Account, Context, EngineError, Tensor, activate, backward, tensor
from gradwire_engine.autograd.repeated_backward import PassMemo
from tests.engine.op.test_repeated import described
from tests.engine.repeating import repeated_call
from tests.parity import harness
from tests.parity.harness import TABLE, Case, Sample, T

RUNS = int(os.environ.get("GRADWIRE_REPEATED_RUNS", "1"))
SEED = int(os.environ.get("GRADWIRE_REPEATED_SEED", "1"))
NAMES = [name for name in TABLE if name in REGISTRY and not REGISTRY[name].draws and "dropout" not in name]
CHAINS = 100
#: Repetitions: three until a pass is noted and run, the others with other kinds of values.
REPETITIONS = 9
DTYPES = ("float16", "bfloat16")
FLOATS = (0.5, 1.0, 2.0, 0.0, -0.0, -1.0, 3.0, 1e-30)
LARGE = (1e300, float("inf"), float("nan"))
DECOMPOSITIONS = frozenset((
    "cholesky", "cholesky_inverse", "cholesky_solve", "det", "geqrf", "inverse", "logdet", "lstsq", "lu", "lu_solve",
    "matrix_exp", "matrix_power", "norm", "nuclear_norm", "orgqr", "ormqr", "pinverse", "qr", "slogdet", "svd",
    "triangular_solve",
))  # fmt: skip
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e30)
Make = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context(account=Account(limit=1 << 30))
    with activate(made):
        yield made


KINDS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "the same": lambda rng, array: array,
    "fresh": lambda rng, array: (array * rng.uniform(0.5, 1.5, array.shape)).astype(array.dtype),
    "permuted": lambda rng, array: rng.permutation(array.reshape(-1)).reshape(array.shape),
    "some zeros": lambda rng, array: np.where(rng.random(array.shape) < 0.4, array.dtype.type(0), array),
    "zeros": lambda rng, array: np.zeros_like(array),
    "ones": lambda rng, array: np.ones_like(array),
    "ties": lambda rng, array: np.round(array.astype(np.complex128)).astype(array.dtype),
    "negative": lambda rng, array: -array,
    "large": lambda rng, array: (array * 1000).astype(array.dtype),
    "special": lambda rng, array: np.where(
        rng.random(array.shape) < 0.3, np.array(rng.choice(SPECIAL)).astype(array.dtype), array
    ),
}


def varied(rng: np.random.Generator, array: np.ndarray, kind: str) -> np.ndarray:
    """Other values of the same shape and dtype. Whole numbers stay within their range, as labels and indices must."""
    if array.dtype.kind in "biu":
        if not array.size or kind == "the same":
            return array
        low, high = int(array.min()), int(array.max()) + 1
        drawn = rng.integers(low, max(high, low + 1), array.shape).astype(array.dtype)
        return drawn if rng.random() < 0.5 else np.asarray(KINDS["permuted"](rng, array))
    return np.asarray(KINDS[kind](rng, array)).astype(array.dtype).reshape(array.shape)


def with_other_numbers(rng: np.random.Generator, args: tuple[Any, ...], floats: tuple[float, ...]) -> tuple[Any, ...]:
    """The arguments with other floats, and now and then another number or bool."""

    def other(value: Any) -> Any:
        if type(value) is float and rng.random() < 0.6:
            return float(rng.choice([*floats, value, value]))
        if type(value) in (int, bool) and rng.random() < 0.03:
            return not value if type(value) is bool else rng.choice([value + 1, value - 1, 0, 1]).item()
        return value

    return tuple([other(value) for value in args])


class Calls:
    """Calls ops at places of a program, each as in a prepared call: repeated where an earlier call at the place may be.

    `repeated`: how many calls were.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[int, Any] = {}
        self._place = self.repeated = 0

    def start(self) -> None:
        """Go to the first place."""
        self._place = 0

    def __call__(self, name: str, args: tuple[Any, ...]) -> Any:
        self._place += 1
        op, known = REGISTRY[name], self._known.get(self._place)
        made = None if known is None else known(args, self._context)
        if made is not None:
            self.repeated += 1
            return made
        made, again = repeated_call(op, args, self._context)
        if known is None:
            self._known[self._place] = again
        return made


def apply(name: str, args: tuple[Any, ...]) -> Any:
    """Call an op in the ordinary way."""
    return REGISTRY[name].apply(args)


def loss_of(call: Make, made: Any, consumers: int) -> Tensor | None:
    """A number that depends on each element otherwise; the result has one consumer or several."""
    found = made if isinstance(made, Tensor) else next((each for each in made if isinstance(each, Tensor)), None)
    if found is None or found.node is None or found.array.dtype.kind not in "fV":
        return None
    weights = np.random.default_rng(5).standard_normal(found.array.shape).astype(found.array.dtype)
    loss = call("mul", (found, tensor(weights)))
    if consumers > 1:
        loss = call("add", (loss, call("mul", (found, found)), 1))
    if consumers > 2:
        loss = call("sub", (call("neg", (found,)), loss, 0.5))
    return call("sum", (loss, None, False, None))  # type: ignore[no-any-return]


Program = Callable[[Make, list[Tensor]], Any]


def outcome(call: Make, run: Program, leaves: list[Tensor], consumers: int, memo: PassMemo | None) -> tuple[Any, bool]:
    """Everything that a program and its backward make, or what they raise; whether its pass was repeated."""
    try:
        made = run(call, leaves)
        loss = loss_of(call, made, consumers)
        found = [described_or_not(each) for each in (made if isinstance(made, (tuple, list)) else [made])]
        if loss is None:
            return found, False
        found.append(described(loss))
        was = memo is not None and memo.run(loss) is not None
        if not was:
            backward([loss])
        arrays = [None if each.grad is None else each.grad.array for each in leaves]
        return found + [each if each is None else (each.tobytes(), each.dtype, each.strides) for each in arrays], was
    except (EngineError, ArithmeticError, ValueError, TypeError, IndexError) as error:
        return (type(error), str(error)), False


def described_or_not(made: Any) -> Any:
    """A result without what differs between calls at different times."""
    if not isinstance(made, Tensor):
        return made
    array, held, steps = made.array, made.view, []
    step = None if held is None else held.last
    while step is not None:
        steps.append((step.op.name, step.shape))
        step = step.before
    shown = held and (held.origin, held.base.shape, held.base.requires_grad, held.base.storage is made.storage, steps)
    node = made.node and made.node.name
    return array.tobytes(), array.dtype, array.shape, array.strides, made.requires_grad, node, shown


def leaves_of(arrays: list[np.ndarray], specs: list[T]) -> list[Tensor]:
    """Leaves with these values, in the layouts of their specifications."""
    return [
        tensor(harness._laid_out(array.copy(), spec.layout, np.ascontiguousarray), spec.differentiable)
        for array, spec in zip(arrays, specs, strict=True)
    ]


def repeat(
    rng: np.random.Generator, context: Context, calls_of: list[tuple[str, harness._Call]], program_of: Make
) -> tuple[int, int]:
    """Run a program over and over with other values, repeated and in the ordinary way; returns what was repeated.

    program_of: makes the program of a repetition; it is told whether its numbers vary.
    """
    arrays = [array for _, call in calls_of for array in call.arrays]
    specs = [spec for _, call in calls_of for spec in call.specs]
    finite = any(is_slow(name) for name, _ in calls_of)
    calls, memo, passes = Calls(context), PassMemo(), 0
    consumers = int(rng.integers(1, 4))
    kinds = list(
        rng.permutation(
            [kind for kind in KINDS if kind != "the same" and not (finite and kind in ("special", "large"))]
        )
    )[: REPETITIONS - 2]
    first = ["fresh", "fresh"] if rng.random() < 0.6 else [str(rng.choice(kinds)) for _ in range(2)]
    for number, kind in enumerate(first + kinds):
        values = [varied(rng, array, kind if rng.random() < 0.8 else "fresh") for array in arrays]
        program = program_of(number > 1 or rng.random() < 0.5)
        calls.start()
        found, was = outcome(calls, program, leaves_of(values, specs), consumers, memo)
        passes += was
        wanted, _ = outcome(apply, program, leaves_of(values, specs), consumers, None)
        assert found == wanted, f"repetition {number}: {kind} values, {consumers} consumers, repeated pass: {was}"
    return calls.repeated, passes


def is_slow(name: str) -> bool:
    """Whether an op may take very long over large values: LAPACK, and recurrences of a large degree."""
    return name.startswith("linalg.") or "polynomial" in name or name in DECOMPOSITIONS


def samples_of(name: str) -> Iterator[tuple[Case, Sample, str]]:
    """The samples of an op, each in its dtypes; half types at the first."""
    for made in TABLE[name]:
        for number, sample in enumerate(made.samples):
            for dtype in sample.dtypes + (DTYPES if made.half and not number else ()):
                yield made, sample, dtype


def bound(name: str, call: harness._Call, tensors: list[Tensor]) -> tuple[Any, ...]:
    """The complete arguments of an op."""
    args, kwargs = call.with_tensors(tensors, harness._engine_value)
    return REGISTRY[name].bind(args, kwargs)


def program_of_one(name: str, call: harness._Call, numbers: Callable[[Any], Any], shared: bool) -> Program:
    """A program of one op; `shared`: one leaf for the operands that are alike."""

    def run(make: Make, leaves: list[Tensor]) -> Any:
        given = list(leaves)
        if shared and len(given) > 1 and described_alike(given[0], given[1]):
            given[1] = given[0]
        return make(name, numbers(bound(name, call, given)))

    return run


def described_alike(one: Tensor, other: Tensor) -> bool:
    """Whether two leaves may stand for each other."""
    return bool(one.array.shape == other.array.shape and one.array.dtype == other.array.dtype)


def numbers_of(rng: np.random.Generator, vary: bool, *names: str) -> Callable[[Any], Any]:
    """How the arguments of a repetition vary, alike in both ways of running it."""
    seed = int(rng.integers(1 << 32))
    if not vary:
        return lambda args: args
    floats = FLOATS if any(map(is_slow, names)) else FLOATS + LARGE
    return lambda args: with_other_numbers(np.random.default_rng(seed), args, floats)


@pytest.mark.parametrize("name", NAMES)
def test_an_op_repeated_makes_the_same(name: str, context: Context) -> None:
    for run in range(RUNS):
        rng = np.random.default_rng([SEED, run, zlib.crc32(name.encode())])
        samples = list(samples_of(name))
        chosen = range(len(samples)) if RUNS > 1 else rng.permutation(len(samples))[:4]
        for number in chosen:
            call = harness._Call(*samples[number])
            shared = bool(rng.random() < 0.2)
            repeat(
                rng, context, [(name, call)],
                lambda vary, rng=rng, call=call, shared=shared: program_of_one(
                    name, call, numbers_of(rng, vary, name), shared
                ),
            )  # fmt: skip


def chainable() -> dict[tuple[tuple[int, ...], str], list[tuple[str, Case, Sample]]]:
    """The samples whose first argument is a float tensor, by its shape and the run's dtype."""
    found: dict[Any, list[Any]] = {}
    for name in NAMES:
        for made, sample, dtype in samples_of(name):
            first = sample.args[0] if sample.args else None
            if isinstance(first, T) and first.differentiable and first.dtype is None and first.layout == "C":
                found.setdefault((first.shape, dtype), []).append((name, made, sample))
    return found


CHAINABLE = chainable()


def draw_chain(rng: np.random.Generator) -> list[tuple[str, harness._Call]]:
    """Two or three ops, each of the result of the one before."""
    shape, dtype = [(3, 4), (3,), (), (2, 3, 4), (4,)][int(rng.integers(5))], str(rng.choice(["float32", "float64"]))
    chain: list[tuple[str, harness._Call]] = []
    wanted = int(rng.integers(2, 4))
    for _ in range(100):
        given = CHAINABLE.get((shape, dtype), [])
        if len(chain) == wanted or not given:
            break
        name, made, sample = given[int(rng.integers(len(given)))]
        call = harness._Call(made, sample, dtype)
        try:
            result = REGISTRY[name].apply(bound(name, call, leaves_of(call.arrays, call.specs)))
        except EngineError:
            continue
        if isinstance(result, Tensor) and result.node is not None and result.array.dtype.name == dtype:
            chain.append((name, call))
            shape = result.array.shape
    return chain


def program_of_chain(chain: list[tuple[str, harness._Call]], numbers: Callable[[Any], Any], used: bool) -> Program:
    """A program of a chain; `used`: each result has a second consumer."""

    def run(make: Make, leaves: list[Tensor]) -> Any:
        rest, made, others = list(leaves), None, []
        for name, call in chain:
            given, rest = rest[: len(call.specs)], rest[len(call.specs) :]
            if made is not None:
                given[0] = made
            made = make(name, numbers(bound(name, call, given)))
            others.append(make("sum", (made, None, False, None)))
        if used:
            for each in others:
                made = make("mul", (made, each))
        return made

    return run


@pytest.mark.parametrize("number", range(CHAINS))
def test_a_chain_repeated_makes_the_same(number: int, context: Context) -> None:
    for run in range(RUNS):
        rng = np.random.default_rng([SEED, run, number])
        chain = draw_chain(rng)
        used = bool(rng.random() < 0.5)
        if chain:
            repeat(
                rng,
                context,
                chain,
                lambda vary, rng=rng, c=chain, u=used: program_of_chain(
                    c, numbers_of(rng, vary, *[name for name, _ in c]), u
                ),
            )


def test_calls_and_passes_are_repeated(context: Context) -> None:
    for name in ("mul", "mm", "exp", "log_softmax"):
        call = harness._Call(*next(samples_of(name)))
        calls, passes = repeat(
            np.random.default_rng(0), context, [(name, call)],
            lambda vary, name=name, call=call: program_of_one(name, call, lambda args: args, False),
        )  # fmt: skip
        assert calls > REPETITIONS
        assert passes == REPETITIONS
