"""Repeated calls of every op: made with some values, they compute with others what the op computes, bit for bit."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Account, Context, EngineError, Tensor, activate, lookup
from gradwire_engine.graph.graph import AccumulateGrad, Meta
from gradwire_engine.graph.saved import Saved
from tests.engine.repeating import repeated_call, repeated_change
from tests.parity import harness
from tests.parity.harness import Case, Sample
from tests.parity.test_ops import CASES

SAMPLES = 6  # of each case


class Call(harness._Call):
    """A sample's call with values of a seed."""

    def __init__(self, made: Case, sample: Sample, dtype: str, seed: int) -> None:
        super().__init__(made, sample, dtype)
        self.rng = np.random.default_rng(zlib.crc32(f"{made.op} {sample} {dtype}".encode()) + seed)
        self.arrays = [spec.build(self.rng, dtype) for spec in self.specs]

    def bound(self) -> tuple[Any, tuple[Any, ...]]:
        """The op and its complete arguments. Raises EngineError."""
        args, kwargs = self.with_tensors(self.ours(), harness._engine_value)
        op, _ = lookup(self.case.op)
        return op, op.bind(tuple(args), kwargs)


def node_of(node: Any) -> Any:
    """A node and those before it."""
    if type(node) is AccumulateGrad:
        return "leaf", node.variable.array.tobytes()
    saved = [saved_of(each) for each in node.saved]
    edges = [None if edge is None else (node_of(edge[0]), edge[1]) for edge in node.edges]
    return node.name, node.op, node.saving_plan, node.work, node.metas, node.command, saved, edges, outputs_of(node)


def outputs_of(node: Any) -> Any:
    return node.outputs and [each and (each.shape, each.dtype) for each in node.outputs]


def saved_of(value: Any) -> Any:
    if type(value) is Saved:
        return value.array.tobytes(), value.array.strides, value.version, value.output, value.requires_grad
    if type(value) is Meta:
        return value.shape, value.dtype
    if isinstance(value, np.ndarray):
        return value.tobytes(), value.dtype, value.shape
    return [saved_of(each) for each in value] if type(value) in (list, tuple) else repr(value)


def described(made: Any) -> Any:
    """All of a result that can be seen, and how its memory is laid out."""
    if type(made) in (list, tuple):
        return type(made), [described(each) for each in made]
    if type(made) is not Tensor:
        return repr(made)
    view = made.view and (made.view.origin, made.view.flagged, made.view.last.op, made.view.base.array.tobytes())
    array = made.array
    return (
        array.tobytes(), array.dtype, array.shape, array.strides, array.flags.writeable, made.requires_grad, made.index,
        made.storage.nbytes, type(made.storage), view, made.node and node_of(made.node),
    )  # fmt: skip


def outcome(context: Context, state: bytes, compute: Any) -> Any:
    """What a call gives, the nodes that it takes and the state of the generator after it."""
    context.generator.set_state(state)
    before = context.nodes.next
    try:
        made = compute()
    except EngineError as error:
        return "refused", str(error), context.generator.get_state()
    return None if made is None else (described(made), context.nodes.next - before, context.generator.get_state())


def check(made: Case, sample: Sample, dtype: str) -> bool:
    """Compare a sample's calls; whether one was repeated."""
    context = Context(account=Account(limit=1 << 40))
    with activate(context):
        try:
            op, args = Call(made, sample, dtype, 0).bound()
            _, repeated = repeated_call(op, args, context)
        except EngineError:
            return False
        if repeated is None:
            return False
        found = False
        for seed in (0, 1, 2):
            state = context.generator.get_state()
            again = outcome(
                context, state, lambda seed=seed: repeated(Call(made, sample, dtype, seed).bound()[1], context)
            )
            expected = outcome(context, state, lambda seed=seed: op.apply(Call(made, sample, dtype, seed).bound()[1]))
            if again is not None:
                found = True
                assert again == expected
            else:
                assert seed or made.op == "none"
        return found


@pytest.mark.parametrize("made", CASES, ids=str)
def test_a_repeated_call_computes_what_the_op_computes(made: Case) -> None:
    for sample in made.samples[:SAMPLES]:
        check(made, sample, sample.dtypes[0])


IN_PLACE = [made for made in CASES if lookup(made.op)[0].has_in_place]


def changed(context: Context, op: Any, args: tuple[Any, ...], compute: Any) -> Any:
    """What an in-place call leaves."""
    target = args[0]
    try:
        made = compute()
    except EngineError as error:
        return "refused", str(error), described(target), target.storage.version
    if made is None:
        return None
    assert made is target
    return described(target), target.storage.version, target.storage.history, [described(each) for each in args[1:]]


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("made", IN_PLACE, ids=str)
def test_a_repeated_change_in_place_leaves_what_the_op_leaves(made: Case, view: bool) -> None:
    context = Context(account=Account(limit=1 << 40), grad_enabled=False)
    with activate(context):
        for sample in made.samples[:SAMPLES]:
            compare_changes(context, made, sample, view)


def compare_changes(context: Context, made: Case, sample: Sample, view: bool) -> None:
    """Compare in-place calls of a sample, of a view of the first operand's values if `view`."""

    def args_of(seed: int) -> tuple[Any, tuple[Any, ...]]:
        op, args = Call(made, sample, sample.dtypes[0], seed).bound()
        if view and type(args[0]) is Tensor:
            args = (lookup("alias")[0].apply((args[0],)), *args[1:])
        return op, args

    try:
        op, args = args_of(0)
    except EngineError:
        return
    repeated = repeated_change(op, args, context) if type(args[0]) is Tensor else None
    for seed in (0, 1) if repeated is not None else ():
        _, one = args_of(seed)
        _, other = args_of(seed)
        again = changed(context, op, one, lambda one=one: repeated(one, context))
        if again is not None:
            assert again == changed(context, op, other, lambda other=other: op.in_place(other))
