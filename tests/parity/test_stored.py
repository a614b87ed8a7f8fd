"""The graph of every op of the tables is data: stored and made again it gives the same derivatives, bit for bit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire.v1 import snapshots_pb2
from gradwire_engine import EngineError, activate
from gradwire_engine.autograd import checkpoints
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_engine.core.index_bounds import UNKNOWABLE
from gradwire_engine.graph import graph, hooks, saved
from gradwire_engine.graph.tensor import data
from gradwire_engine.op import rebase
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.session.session import Session
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.storage.byte_view import byte_view
from gradwire_server.storage.instructions import LATER
from gradwire_server.storage.snapshot_decoder import SnapshotDecoder, reserve
from gradwire_server.storage.snapshot_encoder import SnapshotEncoder
from tests.parity.harness import FLOAT64, Case, Sample, T, _Call
from tests.parity.test_ops import CASES

OPS = sorted({made.op for made in CASES})
GROUPS = 12
SAMPLES = 2  # of each case; in place the first


@contextmanager
def session() -> Iterator[Session]:
    made = Session(1, Limits().resolved(), CancelToken())
    made.account.limit = 0
    made.attach(1)
    with activate(made.grad_context):
        yield made


def through_storage(old: Session, new: Session) -> None:
    """All of a session, by way of bytes."""
    encoder = SnapshotEncoder(old)
    for _ in encoder.steps():
        pass
    state = snapshots_pb2.SessionState.FromString(encoder.state.SerializeToString())
    memories = [reserve(each) for each in state.memories]
    for source, target in zip(encoder.memories, memories, strict=True):
        byte_view(target)[:] = byte_view(source)
    for _ in SnapshotDecoder(new, state, memories).fill():
        pass


def derivatives(leaves: list[Any], outputs: list[Any]) -> list[bytes]:
    """Of a sum over the outputs by the leaves."""
    roots = [each for each in outputs if each.requires_grad]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    seeds = [engine.tensor(np.ones(each.shape, each.dtype)) for each in roots]
    found, _ = engine.gradients(roots, wanted, seeds, allow_unused=True, retain_graph=True)
    return [b"" if each is None else each.array.tobytes() for each in found]


def test_a_session_with_an_open_level_is_stored_later() -> None:
    """Tangents are not stored."""
    with session() as held:
        token = engine.tensor(np.zeros(()))
        dual = engine.call("make_dual", (engine.tensor(np.ones(2)), engine.tensor(np.ones(2)), token, 1))
        with pytest.raises(Refusal, match="a level of forward-mode differentiation is open") as refusal:
            through_storage(held, held)
        assert LATER in refusal.value.metadata
        engine.call("exit_dual_level", (token,))
        assert dual.array.tolist() == [1, 1]
        for _ in SnapshotEncoder(held).steps():
            pass


def test_memory_that_two_storages_change_has_no_known_bounds_when_restored() -> None:
    with session() as old:
        held = engine.tensor(np.arange(3))
        old.bind(1, held)
        old.bind(2, data(held))
        with session() as new:
            through_storage(old, new)
            assert [new.store[number].storage.bounds for number in (1, 2)] == [UNKNOWABLE, UNKNOWABLE]
            assert new.store[2].storage.owner is new.store[1].storage
            new.drop()
        old.drop()


def test_a_restored_graph_has_a_backward_pass_as_any_other() -> None:
    with session() as old:
        leaf = engine.tensor(np.arange(3.0), True)
        old.bind(1, leaf)
        old.bind(2, engine.call("sum", (engine.call("mul", (leaf, leaf)),)))
        with session() as new:
            through_storage(old, new)
            assert PassMemo().run(new.store[2]) == [new.store[1]]  # which notes it
            assert new.store[1].grad.array.tolist() == [0, 2, 4]
            new.drop()
        old.drop()


def check(made: Case, sample: Sample, in_place: bool) -> bool:
    """Whether there was a derivative to compare."""
    call = _Call(made, sample, FLOAT64 if FLOAT64 in sample.dtypes else sample.dtypes[0])
    with session() as old:
        leaves = call.ours()
        try:
            if in_place:
                leaves = [engine.call("mul", [leaf, 1.0]) if leaf.requires_grad else leaf for leaf in leaves]
            outputs = [each for each in call.call_ours(leaves, made.op + "_" * in_place) if type(each) is engine.Tensor]
            seeds = [engine.tensor(np.ones(each.shape, each.dtype)) for each in outputs if each.requires_grad]
            roots = [each for each in outputs if each.requires_grad]
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            if not roots or not wanted:
                return False
            if made.order > 1 and sample.order > 1 and not in_place:
                first, _ = engine.gradients(roots, wanted, seeds, allow_unused=True, create_graph=True)
                outputs += [each for each in first if each is not None]
            before = derivatives(leaves, outputs)
        except EngineError:
            return False
        for number, item in enumerate((*leaves, *outputs), 1):
            old.bind(number, item)
        with session() as new:
            through_storage(old, new)
            stored = [new.store[number] for number in range(1, len(leaves) + len(outputs) + 1)]
            after = derivatives(stored[: len(leaves)], stored[len(leaves) :])
            new.drop()
        old.drop()
    assert after == before, f"{made.op} {sample}"
    return True


def test_what_a_graph_is_made_of_is_known() -> None:
    """What is new in one of these is stored, too: snapshot_encoder.py, snapshot_decoder.py, snapshots.proto."""
    tensor = importlib.import_module("gradwire_engine.graph.tensor")  # the package has a function of that name
    known = {
        tensor.Storage: "account bounds history nbytes owner version",
        tensor.ViewStep: "args before dtype op shape",
        tensor.ViewOf: "base flagged last origin seen source version written",
        tensor.GradState: "accumulator grad hooks retains_grad",
        tensor.Tensor: "__weakref__ array index node requires_grad state storage view",
        graph.Meta: "device dtype shape",
        saved.Saved: "array index leaf node output requires_grad storage tangents version",
        graph.Node: "__weakref__ command edges freed hooks metas name op outputs part "
        "retained saved saving_plan seq work",
        graph.FunctionNode: "differentiable materializes",
        graph.AccumulateGrad: "__weakref__ hooks variable",
        hooks.ExternalCallback: "__weakref__ gone holder number",
        hooks.Hooks: "__weakref__ accumulated after again before formula tensor",
        rebase.ViewRoute: "device geometry steps",
        checkpoints.Region: "__weakref__ behind callback kinds nodes offsets random saving",
    }
    for kind, slots in known.items():
        assert " ".join(sorted(kind.__slots__)) == slots, kind  # type: ignore[attr-defined]


@pytest.mark.parametrize("group", range(GROUPS))
def test_derivatives_of_a_stored_graph_are_those_of_the_graph(group: int) -> None:
    compared = 0
    for made in CASES:
        if OPS.index(made.op) % GROUPS == group and made.order:
            found = engine.REGISTRY[made.op]
            for place, sample in enumerate(made.samples[:SAMPLES]):
                twice = found.has_in_place and not place and bool(sample.args) and type(sample.args[0]) is T
                for in_place in (False, True) if twice else (False,):
                    compared += check(made, sample, in_place)
    assert compared > 20
