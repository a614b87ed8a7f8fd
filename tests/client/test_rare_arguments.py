"""Rare arguments of everyday functions: no tensors, None, tensors for sizes, extreme numbers, beside PyTorch."""

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch, warn

pytestmark = pytest.mark.usefixtures("session")
RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test
LARGEST = float(np.finfo(np.float64).max)


def test_block_diag_of_nothing_is_an_empty_row():
    agree(lambda t: t.block_diag())


@pytest.mark.parametrize("shifts", [1, -2, (3,)])
def test_roll_without_dimensions_takes_none(shifts):
    values = RNG.normal(size=(2, 3))
    agree(lambda t: t.tensor(values).roll(shifts, None))


@pytest.mark.parametrize("name", ["tensor_split", "hsplit"])
@pytest.mark.parametrize("indices", [2, [1, 3]])
def test_indices_to_split_at_are_a_tensor_of_long(name, indices):
    agree(lambda t: getattr(t, name)(t.arange(6.0), indices))
    agree(lambda t: t.tensor_split(t.arange(6.0), t.tensor(indices)))


def test_other_tensors_of_indices_are_refused():
    for dtype, title in (("float32", "Float"), ("int32", "Int")):
        refuse(
            lambda t, dtype=dtype: t.tensor_split(t.ones(3), t.tensor(1, dtype=getattr(t, dtype))),
            RuntimeError,
            f"to have dtype of long, but got {title}",
        )
    refuse(
        lambda t: t.tensor_split(t.ones(3), t.ones(1, 1, dtype=t.int64)),
        RuntimeError,
        "zero-dimensional or one-dimensional tensor, but got a tensor with 2 dims",
    )


def test_lengths_of_packed_sequences_are_a_vector():
    refuse(lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(3, 1, 2), t.ones(2, 2).long()), RuntimeError, "2D")


@pytest.mark.parametrize("size", [(1 << 61,), (1 << 31, 1 << 31, 1 << 31)])
def test_sizes_that_overflow_are_refused(size):
    refuse(lambda t: t.empty(size), RuntimeError, "Storage size calculation overflowed")


@pytest.mark.parametrize(
    "name", ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d"]
)
def test_a_gradient_without_elements_is_refused_by_adaptive_pools(name):
    sizes = (1, 4, 5) if name.endswith("1d") else (1, 4, 5, 6)

    def backward(t):
        getattr(t.nn.functional, name)(t.ones(sizes, requires_grad=True), 0).sum().backward()

    refuse(backward, RuntimeError, "Expected grad_output to have non-zero size for non-batch dimensions")


@pytest.mark.parametrize("span", [(-LARGEST, 0.0), (-LARGEST, 42.0), (-LARGEST / 2, LARGEST / 2), (0.0, LARGEST)])
def test_the_widest_ranges_have_pytorchs_numbers(span):
    def drawn(t):
        t.manual_seed(4)
        return t.empty(500, dtype=t.float64).uniform_(*span)

    agree(drawn)


@pytest.mark.parametrize("length", [(1 << 16) + 3, 1 << 17])
def test_iteration_over_a_long_tensor_gives_each_element(length):
    x = gradwire.arange(length)
    total = sum(one.item() for one in list(x)[-3:])
    assert total == 3 * length - 6
    rows = list(torch.zeros(length, 0))
    assert len(list(gradwire.zeros(length, 0))) == len(rows)


def test_flags_of_other_devices_are_false_for_sparse_tensors():
    for flag in ("is_mps", "is_xpu", "is_xla", "is_vulkan"):
        agree(lambda t, flag=flag: getattr(t.eye(2).to_sparse(), flag))


@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put_needs_an_index(accumulate):
    refuse(lambda t: t.ones(3).index_put([], t.tensor(1.0), accumulate), RuntimeError, "at least one index")


def test_index_put_by_bytes_warns():
    def put(t):
        mask = t.tensor([1, 0, 1], dtype=t.uint8)
        x = t.zeros(3)
        x.index_put_((mask,), t.tensor([2.0, 3.0]), accumulate=True)
        return x

    agree(put)
    warn(put, "indexing with dtype torch.uint8 is now deprecated")


def test_lbfgs_without_a_gradient_steps():
    def step(t):
        optimizer = t.optim.LBFGS([t.ones(3)], 0.01, tolerance_grad=-float("inf"))
        return optimizer.step(lambda: t.tensor([10.0]))

    agree(step)


def test_sharing_the_memory_of_a_module_without_sizes_is_refused():
    refuse(lambda t: t.nn.LazyLinear(2).share_memory(), RuntimeError, "share memory on an uninitialized")
    with pytest.raises(NotImplementedError, match="share_memory"):
        gradwire.nn.Linear(2, 2).share_memory()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_losses_refuse_dtypes_that_pytorchs_kernels_lack(dtype):
    def rows(t):
        return t.ones(1, 3).to(getattr(t, dtype))

    losses = {
        "multi_margin_loss_cpu_kernel": lambda t: t.nn.functional.multi_margin_loss(rows(t), t.tensor([1])),
        "multilabel_margin_loss_forward_out_frame": lambda t: t.nn.functional.multilabel_margin_loss(
            rows(t), t.tensor([[1, 0, -1]])
        ),
        "ctc_loss_cpu": lambda t: t.nn.functional.ctc_loss(
            rows(t).reshape(1, 1, 3), t.tensor([[1]]), t.tensor([1]), t.tensor([1])
        ),
    }
    for kernel, loss in losses.items():
        refuse(loss, NotImplementedError, f'"{kernel}" not implemented')
