"""Known bounds: ops on indices that the program gave do not wait if these fit; others are refused in the call."""

import numpy as np
import pytest

import gradwire
from gradwire.v1 import commands_pb2, service_pb2

pytestmark = pytest.mark.usefixtures("deferring")
functional = gradwire.nn.functional


@pytest.fixture
def waits(deferring, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ops that waited."""
    counted: list[str] = []
    wait = deferring.wait

    def watched(command, *args, **kwargs):
        if command.WhichOneof("command") == "op":
            counted.append(command.op.op)
        return wait(command, *args, **kwargs)

    monkeypatch.setattr(deferring, "wait", watched)
    return counted


def given(values, dtype=gradwire.int64):
    return gradwire.tensor(np.array(values), dtype=dtype)


def table(rows=10, dtype=gradwire.float32):
    return gradwire.zeros(rows, 4, dtype=dtype, requires_grad=True)


CALLS = {
    "embedding": lambda: functional.embedding(given([[1, 2], [9, 0]]), table()),
    "embedding of int32": lambda: functional.embedding(given([1, 9], gradwire.int32), table(dtype=gradwire.float64)),
    "embedding without history": lambda: functional.embedding(given([1, 9]), table().detach()),
    "embedding by a view": lambda: functional.embedding(given([[1, 2], [9, 0]])[1:].flatten(), table()),
    "cross_entropy": lambda: functional.cross_entropy(table(3), given([0, 3, 1])),
    "cross_entropy, a sum": lambda: functional.cross_entropy(table(3), given([0, 3, 1]), reduction="sum"),
    "cross_entropy of a view": lambda: functional.cross_entropy(table(4), given([[0, 3], [1, 1]]).view(-1)),
    "nll_loss": lambda: functional.nll_loss(table(3), given([0, 3, 1])),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_indices_in_range_does_not_wait_and_is_as_the_server_describes_it(name, deferring, waits) -> None:
    made = CALLS[name]()
    assert not {"embedding", "cross_entropy", "nll_loss"} & {*waits}
    request = commands_pb2.DescribeRequest(tensors=[made._id])
    told = deferring.wait(service_pb2.Command(describe=request)).describe.tensors[0]
    spec = made._spec
    node = "" if made.grad_fn is None else made.grad_fn.name()
    assert (tuple(told.shape), told.dtype, told.requires_grad, told.grad_fn) == (
        tuple(spec.shape), spec.dtype.code, spec.requires_grad, node,
    )  # fmt: skip


def written_below():
    indices = given([0, 9])
    indices.add_(1)
    return indices


def written_by_a_view():
    indices = given([0, 9])
    indices[1:].add_(1)
    return indices


def with_other_data():
    indices = given([0, 9])
    indices.data = given([0, 10])
    return indices


OUTSIDE = {
    "too large": lambda: given([0, 10]),
    "below zero": lambda: given([-1, 3]),
    "a view of such": lambda: given([[0, 1], [2, 10]])[1],
    "written": written_below,
    "written by a view": written_by_a_view,
    "other data": with_other_data,
    "another dtype's view": lambda: given([0, 9 << 32 | 10]).view(gradwire.int32),
    "computed": lambda: given([0, 9]) + 1,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_out_of_range_is_refused_in_the_call(name) -> None:
    indices = OUTSIDE[name]()
    with pytest.raises(IndexError):
        functional.embedding(indices, table())


@pytest.mark.parametrize("kind", [gradwire.int64, gradwire.int32])
def test_a_class_out_of_range_is_refused_in_the_call(kind) -> None:
    with pytest.raises((IndexError, RuntimeError)):
        functional.cross_entropy(table(3), given([0, 4, 1], kind))


@pytest.mark.parametrize("smoothing", [0.1, 1])
def test_smoothed_labels_are_described_by_the_server(smoothing) -> None:
    loss = functional.cross_entropy(table(3), given([0, 3, 1]), label_smoothing=smoothing)
    assert loss.grad_fn.name() == "AddBackward0"


@pytest.mark.parametrize("smoothing", [-0.5, 2.0, 2, float("nan")])
def test_a_smoothing_out_of_range_is_refused_in_the_call(smoothing) -> None:
    with pytest.raises(RuntimeError, match="label_smoothing must be between"):
        functional.cross_entropy(table(3).detach(), given([0, 3, 1]), label_smoothing=smoothing)


def test_a_recorded_step_waits_for_no_index_in_range(waits) -> None:
    layer = gradwire.nn.Embedding(10, 4)
    tokens, classes = given([[1, 2], [9, 0]]), given([0, 3, 1, 2])
    waits.clear()
    compiled = gradwire.compile(lambda: functional.cross_entropy(layer(tokens).flatten(0, 1), classes))
    answers = [compiled() for _ in range(3)]
    assert not {"embedding", "cross_entropy"} & {*waits}
    plain = functional.cross_entropy(layer(tokens).flatten(0, 1), classes)
    assert [each.item() for each in answers] == [plain.item()] * 3


@pytest.mark.filterwarnings("ignore:compile")
def test_a_recorded_index_out_of_range_is_refused_in_the_call() -> None:
    layer = gradwire.nn.Embedding(10, 4)
    tokens, places = given([1, 10]), []

    def called():
        try:
            layer(tokens)
        except IndexError:
            places.append("embedding")
        return tokens + 0

    gradwire.compile(called)()
    assert places == ["embedding"]
