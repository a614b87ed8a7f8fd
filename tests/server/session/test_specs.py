"""Descriptions of tensors: dtype, sizes, strides, graph and view, the same whether they were told before or not."""

from dataclasses import replace

import numpy as np
import pytest

from gradwire.v1 import types_pb2
from gradwire_engine import Context, Tensor, activate, call, retain_grad, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.index.index import getitem
from gradwire_server.session import specs


@pytest.fixture(autouse=True)
def _no_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "_MEMO", {})


def told(item: Tensor, number: int = 7, **more: bool) -> types_pb2.TensorSpec:
    spec = types_pb2.TensorSpec()
    specs.fill_spec(spec, item, number, **more)
    return spec


def test_a_plain_tensor_is_a_leaf_of_its_dtype_and_shape() -> None:
    spec = told(tensor(np.zeros((2, 3), np.float32)))
    assert (spec.id, list(spec.shape), spec.dtype, spec.device) == (7, [2, 3], types_pb2.DTYPE_FLOAT32, "cpu")
    assert (spec.is_leaf, spec.requires_grad, spec.is_view, list(spec.strides)) == (True, False, False, [])


def test_a_result_tells_its_node_and_which_output_it_is() -> None:
    x = tensor(np.arange(6.0).reshape(2, 3), True)
    spec = told(call("unbind", (x,))[1])
    assert (spec.grad_fn, spec.output_nr, spec.is_leaf, spec.requires_grad) == ("UnbindBackward0", 1, False, True)
    assert (spec.is_view, spec.view_origin) == (True, types_pb2.VIEW_ORIGIN_MULTIPLE)


MADE = {
    "leaf": lambda: tensor(np.zeros(3), True),
    "result": lambda: tensor(np.zeros(3), True) * 2.0,
    "other result": lambda: call("exp", (tensor(np.zeros(3), True),)),
    "view": lambda: getitem(tensor(np.zeros((3, 4)), True) * 1.0, (slice(None), 1)),
    "transposed": lambda: call("t", (tensor(np.zeros((3, 4))),)),
    "whole numbers": lambda: tensor(np.zeros(3, np.int64)),
    "scalar": lambda: tensor(np.array(2.0)),
    "half": lambda: tensor(np.zeros(3, dtypes.bfloat16)),
}


@pytest.mark.parametrize("name", MADE)
def test_a_description_is_the_same_the_second_time(name: str) -> None:
    first, second = told(MADE[name]()), told(MADE[name](), 9)
    assert second.id == 9
    second.id = 7
    assert first == second


def test_tensors_that_differ_are_not_described_alike() -> None:
    shown = {name: told(make()).SerializeToString() for name, make in MADE.items()}
    assert len(set(shown.values())) == len(MADE)


def test_results_of_one_node_are_told_apart_by_their_number() -> None:
    results = call("linalg.slogdet", (tensor(np.eye(2), True),))
    assert [told(each).output_nr for each in (*results, *results)] == [0, 1, 0, 1]


def test_a_memo_of_results_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specs, "_MAX_MEMO", 2)
    for size in range(5):
        assert list(told(tensor(np.zeros(size))).shape) == [size]
    assert len(specs._MEMO) == 2


@pytest.mark.parametrize(
    ("array", "strides"),
    [
        (np.zeros((2, 3)).T, [1, 3]),
        (np.zeros((4, 4))[::2, 1:], [8, 1]),
        (np.broadcast_to(np.zeros(3), (2, 3)), [0, 1]),
        (np.zeros((2, 0)).T, []),
        (np.zeros((5, 3))[:, :1], [3, 1]),
    ],
)
def test_strides_are_told_in_elements_where_they_are_not_those_of_row_order(array: np.ndarray, strides: list) -> None:
    assert list(told(Tensor(array)).strides) == strides


def test_a_changed_tensor_tells_its_version_and_never_from_the_memo() -> None:
    x = tensor(np.zeros(2))
    assert told(x).version == 0
    call("add_", (x, 1.0))
    assert told(x).version == 1


def test_retained_gradients_inference_and_dependence_on_data_are_told() -> None:
    kept = tensor(np.zeros(2), True) * 2.0
    assert not told(kept).retains_grad
    retain_grad(kept)
    assert told(kept).retains_grad
    with activate(replace(Context(), grad_enabled=False, inference=True)):
        assert told(tensor(np.zeros(2))).inference
    assert told(tensor(np.zeros(2)), data_dependent=True).data_dependent
    assert not told(tensor(np.zeros(2))).data_dependent


def test_a_views_base_is_told_if_the_session_knows_it() -> None:
    base = tensor(np.zeros((2, 2)))
    view, spec = getitem(base, 0), types_pb2.TensorSpec()
    specs.tell_base(spec, view, lambda found: 0)
    assert spec.base == 0
    specs.tell_base(spec, view, {base: 4}.__getitem__)
    assert spec.base == 4
    other = types_pb2.TensorSpec()
    specs.tell_base(other, base, {base: 4}.__getitem__)
    assert other.base == 0


def test_a_dual_tells_its_tangents() -> None:
    """Also one of an ordinary kind, whose description is remembered."""
    plain = told(tensor(np.zeros(3)))
    with activate(Context()):
        token, tangent = tensor(np.zeros(())), tensor(np.ones(3), True) * 2.0
        dual = call("make_dual", (tensor(np.zeros(3)), tangent, token, 1))
        spec = told(call("exp", (dual,)))
        assert [(each.depth, each.tangent.grad_fn) for each in spec.tangents] == [(1, "MulBackward0")]
        assert list(spec.tangents[0].tangent.shape) == [3]
        call("exit_dual_level", (token,))
        assert not told(dual).tangents
    assert told(tensor(np.zeros(3))) == plain
