"""What an op takes is foretold: of each primitive op, over all samples of the tables, at least what it then makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import Account, Context, activate
from gradwire_engine.op import admission
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.op import Op
from tests.parity.harness import Case, _Call
from tests.parity.test_ops import CASES

# Numbers and flags are made of nothing worth asking for.
_FREE = 64
PACKAGE = "gradwire_engine.ops."


@dataclass(slots=True)
class Asked(Account):
    """An account that remembers what it was asked for."""

    asked: int = 0

    def admit(self, size: int) -> None:
        self.asked += size


@dataclass
class Watch:
    """What each op was asked to make, what it foretold and what it made, where that was too little."""

    account: Asked
    foretold: int
    seen: set[Op]
    short: list[str]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Every application of an op is looked at; those inside formulas are on arrays, and are looked at too."""
    account = Asked(limit=1 << 62)
    found = Watch(account, 0, set(), [])
    apply, compute, compose = Op.apply, Op.compute, Composite.apply

    def checked(op: Op | Composite, args: Any, run: Any) -> Any:
        arrays = [_array(value) for value in args]
        before = account.asked + found.foretold
        if isinstance(op, Op):
            found.seen.add(op)
            found.foretold += admission.result_bytes(op, arrays)
        result = run(op, args)
        made = sum(_new_bytes(one, arrays) for one in (result if isinstance(result, tuple | list) else (result,)))
        expected = account.asked + found.foretold - before
        if made > max(expected, _FREE):
            shapes = [getattr(value, "shape", value) for value in arrays]
            found.short.append(f"{op.name}{tuple(shapes)} foretold {expected} bytes and made {made}")
        return result

    monkeypatch.setattr(Op, "apply", lambda op, args: checked(op, args, apply))
    monkeypatch.setattr(Op, "compute", lambda op, args: checked(op, args, compute))
    monkeypatch.setattr(Composite, "apply", lambda op, args: checked(op, args, compose))
    with activate(Context(account=account)):
        yield found


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(item) for item in value]
    return value.array if isinstance(value, engine.Tensor) else value


def _new_bytes(result: Any, arrays: list[Any]) -> int:
    """The bytes behind a result, unless they are an argument's."""
    array = _array(result)
    given = [item for value in arrays for item in _flat(value) if isinstance(item, np.ndarray)]
    if not isinstance(array, np.ndarray) or not array.size or any(np.may_share_memory(array, item) for item in given):
        return 0
    return int(_owner(array).nbytes)


def _flat(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _owner(array: Any) -> Any:
    while getattr(array, "base", None) is not None and hasattr(array.base, "nbytes"):
        array = array.base
    return array


def _try(made: Case) -> None:
    for sample in made.samples:
        for dtype in sample.dtypes:
            call = _Call(made, sample, dtype)
            tensors = call.ours()
            outs = [out for out in call.call_ours(tensors) if out.requires_grad]
            if outs and made.order:
                seeds = [engine.tensor(out.array.copy()) for out in outs]
                inputs = [tensor for tensor in tensors if tensor.requires_grad]
                engine.gradients(outs, inputs, seeds, retain_graph=True, allow_unused=True)
                with suppress(engine.EngineError):  # those that have no second derivative say so
                    _differentiate_again(outs, inputs, seeds)


def _try_the_rest() -> None:
    """What no table holds: drawing, which PyTorch does otherwise, and gradients that leaves keep."""
    values = engine.tensor(np.full((6, 5), 0.5), True)
    plain = engine.tensor(np.full((6, 5), 0.5))
    for name in ("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "random_"):
        engine.call(name, [engine.call("clone", [plain])])
    engine.call("geometric_", [engine.call("clone", [plain]), 0.5])
    for name in ("bernoulli", "poisson", "linalg.eig"):
        engine.call(name, [plain if name != "linalg.eig" else engine.call("narrow", [plain, 0, 0, 5])])
    engine.call("multinomial", [plain, 3])
    engine.call("binomial", [engine.tensor(np.full((6, 5), 9.0)), plain])
    for name in ("dropout", "alpha_dropout"):
        engine.call(name, [values, 0.5, True])
    engine.call("sum", [engine.call("rrelu", [values, 0.1, 0.3, True])])
    engine.backward([engine.call("sum", [engine.call("mul", [values, values])])], create_graph=True)
    images = engine.tensor(np.ones((2, 3, 5)))
    engine.call("instance_norm", [images, engine.tensor(np.zeros(3)), engine.tensor(np.ones(3))])
    _try_gammas(values)
    _try_views(values)
    _try_those_inside()


def _try_gammas(values: engine.Tensor) -> None:
    """Numbers of these concentrations, and their derivatives."""
    for name in ("standard_gamma", "sample_dirichlet"):
        engine.backward([engine.call("sum", [engine.call(name, [values])])])
    half = engine.tensor(np.full((6, 5), 0.5, np.float16))
    for name in ("standard_gamma", "sample_dirichlet"):
        engine.call(name, [half])


def _try_views(values: engine.Tensor) -> None:
    """Changes of views, whose nodes write into copies of bases; and other changes of copies."""
    base = engine.call("mul", [values, 2.0])
    engine.call("mul_", [engine.call("select", [base, 0, 1]), 3.0])
    engine.call("mul_", [engine.call("narrow", [base, 1, 1, 2]), engine.call("narrow", [values, 1, 0, 2])])
    found, _ = engine.gradients([engine.call("sum", [base])], [values], create_graph=True)
    engine.backward([engine.call("sum", found)])
    engine.call("contiguous", [engine.tensor(np.ones((2, 3, 4, 5))), "channels_last"])
    engine.call("bernoulli_", [engine.call("clone", [values]), 0.5])
    engine.call("linalg.householder_product", [engine.tensor(np.ones((5, 3))), engine.tensor(np.ones(0))])


def _try_those_inside() -> None:
    """Ops that others call by their forwards or on a GPU alone, and one that stands for nodes alone."""
    OPS["_max_indices"].compute((np.zeros((2, 3, 2, 2), np.int8), [2, 2], [2, 2], [0, 0], [1, 1], [4, 4]))
    for dtype in (np.float16, np.float32, np.float64):
        query, value = np.ones((2, 7, 4), dtype), np.ones((2, 5, 6), dtype)
        OPS["_fused_attention"].compute(([query, np.ones((2, 5, 4), dtype), value], None, False, 0.5))
    OPS["_as_before"].compute((np.ones((2, 3)),))


def _differentiate_again(outs: list[Any], inputs: list[Any], seeds: list[Any]) -> None:
    for seed in seeds:
        seed.requires_grad = True
    found, _ = engine.gradients(outs, inputs, seeds, create_graph=True, allow_unused=True)
    roots = [one for one in found if one is not None and one.requires_grad]
    if roots:
        engine.gradients(
            roots, [*inputs, *seeds], [engine.tensor(one.array.copy()) for one in roots], allow_unused=True
        )


def test_every_op_foretells_at_least_what_it_makes(watch: Watch) -> None:
    for made in CASES:
        _try(made)
    _try_the_rest()
    assert sorted(set(watch.short)) == []
    ops = {each for each in OPS.values() if type(each) is Op and each.function.__module__.startswith(PACKAGE)}
    assert {op.name for op in ops - watch.seen} == {"_to_device"}  # which needs another device
