"""What layers do besides computing a value: running statistics, random masks, changes of their parameters."""

from __future__ import annotations

import numpy as np
import pytest

from gradwire_engine import Context, EngineError, Reason, Tensor, backward, call, grad_mode, gradients, tensor

RNG = np.random.default_rng(7)


def leaf(*shape: int) -> Tensor:
    """A leaf that requires grad."""
    return tensor(RNG.standard_normal(shape), True)


def constant(*shape: int) -> Tensor:
    """A tensor without grad."""
    return tensor(RNG.standard_normal(shape) ** 2 + 0.1)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 5), (2, 3, 2, 4)])
@pytest.mark.parametrize("momentum", [0.1, 0.7])
def test_batch_norm_mixes_the_batch_into_its_running_statistics(shape: tuple[int, ...], momentum: float) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")
    x, mean, var = leaf(*shape), constant(3), constant(3)
    its_mean, its_var = torch.from_numpy(mean.array.copy()), torch.from_numpy(var.array.copy())
    call("batch_norm", [x, mean, var], {"training": True, "momentum": momentum})
    torch.nn.functional.batch_norm(torch.from_numpy(x.array), its_mean, its_var, training=True, momentum=momentum)
    np.testing.assert_allclose(mean.array, its_mean.numpy(), rtol=1e-12)
    np.testing.assert_allclose(var.array, its_var.numpy(), rtol=1e-12)


def test_batch_norm_changes_nothing_when_it_does_not_train() -> None:
    mean, var = constant(3), constant(3)
    before = mean.array.copy(), var.array.copy()
    call("batch_norm", [leaf(4, 3), mean, var])
    assert (mean.array == before[0]).all()
    assert (var.array == before[1]).all()
    assert mean.storage.version == 0


def test_backward_of_evaluation_uses_the_statistics_of_its_forward() -> None:
    x, mean, var = leaf(4, 3), constant(3), constant(3)
    out = call("batch_norm", [x, mean, var])
    expected = np.broadcast_to(1 / np.sqrt(var.array + 1e-5), (4, 3))
    call("batch_norm", [constant(4, 3), mean, var], {"training": True})
    backward([call("sum", [out])])
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.array, expected)


def test_two_training_steps_through_one_batch_norm_go_backward() -> None:
    x, mean, var = leaf(4, 3), constant(3), constant(3)
    outs = [call("batch_norm", [x, mean, var, leaf(3), leaf(3)], {"training": True}) for _ in range(2)]
    backward([call("sum", [outs[0] * outs[1]])])
    assert x.grad is not None


def test_dropout_scales_what_it_keeps_and_sends_gradients_only_there() -> None:
    x = tensor(np.ones(2000), True)
    out = call("dropout", [x, 0.25])
    assert set(out.array.tolist()) == {0.0, 1 / 0.75}
    assert 0.7 < np.count_nonzero(out.array) / 2000 < 0.8
    assert out.grad_fn is not None
    assert out.grad_fn.name == "MulBackward0"
    backward([call("sum", [out])])
    assert x.grad is not None
    assert (x.grad.array == out.array).all()


def test_dropout_follows_the_seed(context: Context) -> None:
    x = tensor(np.ones(100))
    context.generator.manual_seed(3)
    first = call("dropout", [x]).array
    second = call("dropout", [x]).array
    context.generator.manual_seed(3)
    assert (call("dropout", [x]).array == first).all()
    assert (first != second).any()


def test_dropout_is_the_input_itself_where_nothing_is_dropped() -> None:
    x = leaf(3)
    assert call("dropout", [x, 0.5, False]) is x
    assert call("dropout", [x, 0.0]) is x
    assert (call("dropout", [x, 1.0]).array == 0).all()


def test_embedding_shortens_long_rows_in_place() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")
    table, wanted = tensor(RNG.standard_normal((7, 3)) * 3), tensor(np.array([1, 2, 1, 5]))
    its_table = torch.from_numpy(table.array.copy())
    out = call("embedding", [wanted, table], {"max_norm": 1.0})
    expected = torch.nn.functional.embedding(torch.from_numpy(wanted.array), its_table, max_norm=1.0)
    np.testing.assert_allclose(out.array, expected.numpy())
    np.testing.assert_allclose(table.array, its_table.numpy())
    assert table.storage.version == 1


def test_conv_differentiates_three_times() -> None:
    x, w = leaf(1, 1, 4, 4), leaf(1, 1, 2, 2)
    value = call("sum", [call("conv2d", [x, w]) * call("conv2d", [x, w]) * call("conv2d", [x, w])])
    for _ in range(3):
        (by_w,), _ = gradients([value], [w], create_graph=True)
        assert by_w is not None
        value = call("sum", [by_w])
    assert value.requires_grad is False or np.isfinite(value.array)
    # The third derivative of sum((x * w)**3) along ones is 6 sum((x * ones)**3).
    ones = tensor(np.ones((1, 1, 2, 2)))
    along = call("conv2d", [x, ones]).array
    np.testing.assert_allclose(value.array, 6 * (along**3).sum())


def test_a_convolution_beyond_the_byte_limit_is_refused_before_it_allocates(context: Context) -> None:
    x, w = constant(1, 1, 64, 64), constant(256, 1, 3, 3)
    context.account.limit = context.account.bytes + 1_000_000
    with pytest.raises(EngineError) as raised:
        call("conv2d", [x, w], {"padding": 1})
    assert raised.value.reason is Reason.MEMORY_LIMIT


def test_relu_passes_gradients_of_infinity_only_where_it_is_active() -> None:
    x = tensor(np.array([-1.0, 0.0, 2.0], np.float32), True)
    out = call("relu", [x])
    found, _ = gradients([out], [x], [tensor(np.full(3, np.inf, np.float32))])
    assert found[0] is not None
    assert found[0].array.tolist() == [0.0, 0.0, np.inf]


def test_products_record_nothing_without_grad_mode() -> None:
    with grad_mode(False):
        out = call("matmul", [leaf(2, 3), leaf(3, 4)])
    assert out.grad_fn is None
    assert not out.requires_grad


def test_linear_shows_the_nodes_of_pytorch() -> None:
    x, w, b = leaf(2, 3), leaf(4, 3), leaf(4)
    node = call("linear", [x, w, b]).grad_fn
    assert node is not None
    names = [edge[0].name for edge in node.edges if edge is not None]
    assert [node.name, *names] == ["AddmmBackward0", "AccumulateGrad", "AccumulateGrad", "TBackward0"]
