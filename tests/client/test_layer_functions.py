"""torch's own layer functions, whose arguments are ordered otherwise than those of nn.functional."""

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

pytestmark = pytest.mark.usefixtures("session")

# Calls of x and y (4, 6), which require gradients.
CALLS = {
    "constant_pad_nd": lambda t, x, y: t.constant_pad_nd(x, (1, 2, 0, 1), 0.5),
    "embedding": lambda t, x, y: t.embedding(x, t.tensor([[0, 3], [3, 1]])),
    "embedding padding": lambda t, x, y: t.embedding(x, t.tensor([0, 3, 3]), 3, True),
    "batch_norm": lambda t, x, y: t.batch_norm(x, y[0], y[1], None, None, True, 0.1, 1e-5, False),
    "batch_norm running": lambda t, x, y: t.batch_norm(
        x, None, None, y[0].detach(), y[1].detach() ** 2, False, 0.1, 1e-5, False
    ),
    "instance_norm": lambda t, x, y: t.instance_norm(
        x.reshape(2, 3, 4), y[0, :3], y[1, :3], None, None, True, 0.1, 1e-5, False
    ),
    "native_layer_norm": lambda t, x, y: [
        each.detach() if at else each for at, each in enumerate(t.native_layer_norm(x, (6,), y[0], y[1], 1e-5))
    ],
    "constant_pad_nd complex": lambda t, x, y: t.view_as_real(t.constant_pad_nd(t.complex(x, y), (1, -1), 2 + 3j)),
    "native_batch_norm": lambda t, x, y: t.native_batch_norm(x, y[0], y[1], None, None, True, 0.1, 1e-5),
    "native_batch_norm running": lambda t, x, y: t.native_batch_norm(
        x, None, None, y[0].detach(), y[1].detach() ** 2, False, 0.1, 1e-5
    ),
    "native_batch_norm of half types with weights of float32": lambda t, x, y: [
        x * y,
        *t.native_batch_norm(x.detach().bfloat16(), t.ones(6), None, None, None, True, 0.1, 1e-5)[1:],
    ],
    "native_group_norm": lambda t, x, y: t.native_group_norm(x.reshape(2, 4, 3), y[0, :4], None, 2, 4, 3, 2, 1e-5),
    "_native_batch_norm_legit": lambda t, x, y: t._native_batch_norm_legit(x, y[0], y[1], True, 0.1, 1e-5),
    "_batch_norm_with_update": lambda t, x, y: t.ops.aten._batch_norm_with_update(
        x, y[0], y[1], t.zeros(6).double(), t.ones(6).double(), 0.1, 1e-5
    )[0],
    "_softmax_backward_data": lambda t, x, y: [
        t._softmax_backward_data(x, y.detach().softmax(1), 1, t.float64).detach(),
        t._log_softmax_backward_data(x, y.detach().log_softmax(1), 1, t.float64).detach(),
        x * y,
    ],
    "_safe_softmax": lambda t, x, y: t._safe_softmax(t.cat((x, t.full((1, 6), float("-inf")))), 1),
    "native_dropout_backward": lambda t, x, y: t.ops.aten.native_dropout_backward(x, y > 0, 2.0),
    "native_dropout_backward of integers": lambda t, x, y: [
        x * y,
        t.ops.aten.native_dropout_backward(t.arange(-12, 12).reshape(4, 6), y.detach() > 0, 1 / 0.9),
        t.ops.aten.native_dropout_backward(x.detach().half(), y.detach() > 0, 1 / 0.9),
    ],
    "max_pool2d_with_indices_backward": lambda t, x, y: t.ops.aten.max_pool2d_with_indices_backward(
        y[None, :2, :3], x[None], [2, 2], [2, 2], [0, 0], [1, 1], False, t.tensor([[[0, 3, 5], [12, 14, 16]]])
    ),
    "_unsafe_masked_index": lambda t, x, y: t._unsafe_masked_index(
        x, t.tensor([True, False, True]), [t.tensor([3, 0, 2]), t.tensor([1, 9, -1])], 0.5
    ),
    "_unsafe_masked_index_put_accumulate": lambda t, x, y: t._unsafe_masked_index_put_accumulate(
        x, t.tensor([True, False, True]), [t.tensor([3, 0, 3]), t.tensor([1, 9, 1])], y[0, :3]
    ),
    "_chunk_cat": lambda t, x, y: [  # PyTorch has no derivative of it
        t._chunk_cat([x.detach(), y[:3].detach()], 0, 2),
        t._chunk_cat([x.detach(), y[:, :5].detach()], -1, 3),
        x * y,
    ],
    "_upsample_bilinear2d_aa": lambda t, x, y: t.ops.aten._upsample_bilinear2d_aa(x[None, None], (2, 4), False),
    "_upsample_bilinear2d_aa with scales": lambda t, x, y: t.ops.aten._upsample_bilinear2d_aa(
        x[None, None], (2, 4), False, scales_h=1.7, scales_w=0.9
    ),
    "hash_tensor": lambda t, x, y: [
        x * y,
        *[
            t.hash_tensor(each, **options).view(t.int64)
            for each in (x.detach(), t.arange(-12, 12).reshape(4, 6), x.detach() > 0, t.tensor(3))
            for options in ({}, {"dim": 0, "keepdim": True})
        ],
    ],
    "aten's slice": lambda t, x, y: t.ops.aten.slice(x, 1, -4, None, 2),
    "rnn_tanh_cell": lambda t, x, y: t.rnn_tanh_cell(x, y, x.T @ y, x.T @ x, x[0], y[0]),
    "rnn_relu_cell": lambda t, x, y: t.rnn_relu_cell(x, y, x.T @ y, x.T @ x),
    "gru_cell": lambda t, x, y: t.gru_cell(x, y, *[t.cat([x.T @ y, y.T @ x, x.T @ x])] * 2),
    "lstm_cell": lambda t, x, y: t.lstm_cell(x, (y, x), *[t.cat([x.T @ y, y.T @ x, x.T @ x, y.T @ y])] * 2),
    "segments": lambda t, x, y: [
        t.segment_reduce(each, how, lengths=t.tensor([1, 0, 3]), initial=start)
        for how, start in (("sum", None), ("mean", 2.0), ("max", 1.0), ("min", -1.0), ("prod", None))
        for each in (x, y[:, 0])
    ],
    "segments of columns": lambda t, x, y: t.segment_reduce(x, "sum", offsets=t.tensor([[0, 2, 6]] * 4), axis=1),
    "segments of a part": lambda t, x, y: [
        t.segment_reduce(x, how, offsets=t.tensor([1, 2, 2, 3])) for how in ("max", "sum", "prod")
    ],
    "segments without elements": lambda t, x, y: t.segment_reduce(x[:0], "sum", lengths=t.tensor([0, 0])),
    # Equal elements share a gradient, but not with `initial`.
    "segments with ties": lambda t, x, y: [
        t.segment_reduce(x.detach().round() * 0 + x - x.detach(), how, lengths=t.tensor([3, 1]), initial=0.0)
        for how in ("max", "min")
    ],
    "linear_cross_entropy": lambda t, x, y: [
        t.nn.functional.linear_cross_entropy(x, y, t.tensor([0, 3, 1, -100]), linear_bias=x[:, 0]),
        t.nn.functional.linear_cross_entropy(x, y, y @ y.T, reduction="sum", label_smoothing=0.1),
        t.nn.functional.linear_cross_entropy(x[:, :3], y.reshape(4, 2, 3), t.zeros(4, 2).long(), reduction="none"),
    ],
    "convolution": lambda t, x, y: t.convolution(
        x.reshape(2, 3, 4), y.reshape(2, 3, 4)[..., :2], None, (1,), (1,), (2,), False, (0,), 1
    ),
    "convolution transposed": lambda t, x, y: t.convolution(
        x.reshape(1, 2, 3, 4), y.reshape(2, 3, 2, 2), y[0, :3], (2,), (1,), (1,), True, (1,), 1
    ),
    "convolution groups": lambda t, x, y: t.convolution(
        x.reshape(1, 2, 3, 2, 2), y[:2, :2].reshape(2, 1, 2, 1, 1), None, [1], [0], [1], False, [0], 2
    ),
    "grid_sampler": lambda t, x, y: t.grid_sampler(x.reshape(1, 2, 3, 4), y.tanh().reshape(1, 3, 4, 2), 0, 1, False),
    "affine_grid_generator": lambda t, x, y: t.affine_grid_generator(x.reshape(4, 2, 3), (4, 1, 2, 3), True),
    "max_pool1d_with_indices": lambda t, x, y: t.max_pool1d_with_indices(x, 2),
    "adaptive_max_pool1d": lambda t, x, y: t.adaptive_max_pool1d(x, 3),
    "binary_cross_entropy_with_logits": lambda t, x, y: t.binary_cross_entropy_with_logits(
        x, y.sigmoid(), None, y[0].detach() ** 2
    ),
    "kl_div": lambda t, x, y: t.kl_div(x, y.softmax(1), 2) + t.kl_div(x, y, 1, log_target=True),
    "hinge_embedding_loss": lambda t, x, y: t.hinge_embedding_loss(x, y.detach().sign(), 0.5, 0),
    "cosine_embedding_loss": lambda t, x, y: t.cosine_embedding_loss(x, y, x[:, 0].detach().sign(), 0.1, 1),
    "margin_ranking_loss": lambda t, x, y: t.margin_ranking_loss(x, y, x.detach().sign(), 0.3, 2),
    "poisson_nll_loss": lambda t, x, y: t.poisson_nll_loss(x, y.exp(), True, True, 1e-8, 1),
    "triplet_margin_loss": lambda t, x, y: t.triplet_margin_loss(x, y, x.flip(0), 2.0, swap=True, reduction=0),
    "ctc_loss": lambda t, x, y: t.ctc_loss(
        x.reshape(4, 1, 6).log_softmax(2), t.tensor([[1, 2]]), (4,), (2,), 0, 2, True
    ),
    "losses by default": lambda t, x, y: [
        t.kl_div(x, y),
        t.hinge_embedding_loss(x, y.detach().sign()),
        t.cosine_embedding_loss(x, y, x[:, 0].detach().sign()),
        t.margin_ranking_loss(x, y, x.detach().sign()),
        t.triplet_margin_loss(x, y, x.flip(0)),
        t.ctc_loss(x.reshape(4, 1, 6).log_softmax(2), t.tensor([[1, 2]]), (4,), (2,)),
    ],
    "functionalize": lambda t, x, y: t.func.functionalize(lambda a: a.clone().mul_(2).add_(1))(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_layer_functions_and_their_gradients_are_pytorchs(name):
    random = RNG
    first, second = random.standard_normal((4, 6)), random.standard_normal((4, 6))

    def told(t):
        x, y = (t.tensor(values, requires_grad=True) for values in (first, second))
        made = CALLS[name](t, x, y)
        parts = list(made) if isinstance(made, (tuple, list)) else [made]
        loss = sum((part * part).sum() for part in parts if part.requires_grad)
        grads = t.autograd.grad(loss, (x, y), allow_unused=True)
        return *[part.detach() for part in parts], *[each for each in grads if each is not None]

    agree(told)


def test_bad_layer_functions_are_refused():
    refuse(lambda t: t.func.functionalize(abs, remove="x")(t.ones(2)), RuntimeError, "remove='mutations'")


def _half(t, dtype):
    values = t.linspace(-2, 3, 24).reshape(4, 6).to(getattr(t, dtype))
    return values, t.linspace(1, -1, 24).reshape(4, 6).to(getattr(t, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_half_types_as_functions_are_computed_in_float32(dtype):
    def case(t):
        x, g = _half(t, dtype)
        return [
            t._softmax_backward_data(g, x.softmax(1), 1, x.dtype),
            t._log_softmax_backward_data(g, x.float().log_softmax(1).to(x.dtype), 1, x.dtype),
            t.ops.aten.native_dropout_backward(g, x > 0, 1 / 0.9),
        ]

    agree(case)
    refuse(
        lambda t: t._softmax_backward_data(_half(t, dtype)[0], t.ones(4, 6), 1, t.float32),
        RuntimeError,
        "expected scalar type",
    )


def test_masked_indices_into_a_dimension_without_elements_give_the_fill():
    def case(t):
        at, hidden = t.tensor([0, 1]), t.tensor([False, False])
        put = t.ops.aten._unsafe_masked_index_put_accumulate
        return [
            t._unsafe_masked_index(t.zeros(3, 0), hidden, [at, at], 2.5),
            t._unsafe_masked_index(t.zeros(3, 0), hidden[:, None], [at], 2.5),
            put(t.zeros(3, 0), hidden, [at, at], t.ones(2)),
        ]

    agree(case)


WRONG = {
    "_chunk_cat of none": (lambda t: t._chunk_cat([], 0, 2), RuntimeError, "non-empty input tensor list"),
    "_chunk_cat of empty ones": (lambda t: t._chunk_cat([t.zeros(0, 3)], 0, 2), RuntimeError, "non-empty tensor"),
    "_chunk_cat of two dtypes": (
        lambda t: t._chunk_cat([t.zeros(3), t.zeros(3).long()], 0, 2), RuntimeError, "same dtype"
    ),
    "_chunk_cat of other sizes": (
        lambda t: t._chunk_cat([t.zeros(2, 3), t.zeros(3, 3)], 1, 2), RuntimeError, "expects same sizes"
    ),
    "_chunk_cat of another dim": (lambda t: t._chunk_cat([t.zeros(3)], 1, 2), IndexError, "Dimension out of range"),
    "hash of complex": (lambda t: t.hash_tensor(t.zeros(2).cfloat()), NotImplementedError, "xor_sum_cpu"),
    "hash of a dim": (lambda t: t.hash_tensor(t.zeros(2, 3), 2), IndexError, "Dimension out of range"),
    "hash of a dim twice": (lambda t: t.hash_tensor(t.zeros(2, 3), (0, -2)), RuntimeError, "appears multiple times"),
    "hash of an empty dim": (lambda t: t.hash_tensor(t.zeros(0, 3), 0), IndexError, "non-zero size"),
    "hash of complex, as a method": (lambda t: t.zeros(2).cfloat().hash_tensor(), NotImplementedError, "xor_sum_cpu"),
    "a matrix pooled": (lambda t: t.nn.functional.adaptive_max_pool2d(t.ones(2, 2), (1, 1)), ValueError, "at least 3"),
    "a vector averaged": (lambda t: t.nn.functional.adaptive_avg_pool2d(t.ones(2), (1, 1)), ValueError, "at least 3"),
    "vectors as ends": (lambda t: t.linspace(t.ones(1), t.ones(2, 2), 3), RuntimeError, "and end with 2 dimension"),
    "hash of a name": (lambda t: t.hash_tensor(t.zeros(2), "x"), TypeError, "must be tuple of ints"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_of_inner_functions_are_refused(name):
    refuse(*WRONG[name])


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("last", [False, True])
def test_bags_of_rows_tell_their_indices_and_sizes(mode, padding, last):
    def case(t):
        weight = (t.arange(15.0).view(5, 3) * 7 % 11).requires_grad_()
        offsets = t.tensor([0, 0, 3, 6] if last else [0, 0, 3])
        made = t.embedding_bag(weight, t.tensor([0, 2, 2, 1, 4, 3]), offsets, False, mode, False, None, last, padding)
        (made[0] ** 2).sum().backward()
        return [*[each.detach() for each in made], weight.grad]

    agree(case)


def test_bags_have_weights_and_three_modes():
    def case(t):
        weight, each = t.arange(12.0).view(4, 3).requires_grad_(), t.arange(4.0).requires_grad_()
        made = t.embedding_bag(weight, t.tensor([0, 2, 2, 1]), t.tensor([0, 2]), False, 0, False, each)
        made[0].sum().backward()
        return [made[0].detach(), *made[1:], weight.grad, each.grad]

    agree(case)
    with pytest.raises(RuntimeError, match="not a mode"):
        gradwire.embedding_bag(gradwire.ones(2, 2), gradwire.tensor([0]), gradwire.tensor([0]), mode=3)


def test_an_affine_grid_is_rounded_as_pytorchs_formula():
    """Under the identity its points are pixels, where the slope of grid_sample depends on the last digit."""
    for dtype in (gradwire.float32, gradwire.float64):
        theta = gradwire.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype=dtype)
        for align in (False, True):
            grid = gradwire.nn.functional.affine_grid(theta, (1, 1, 28, 11), align)
            for line, count in ((grid[0, :, 0, 1], 28), (grid[0, 0, :, 0], 11)):
                expected = gradwire.linspace(-1.0, 1.0, count, dtype=dtype)
                assert line.tolist() == (expected if align else expected * (count - 1) / count).tolist()


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_padding_row_has_no_gradient_even_of_what_is_not_finite(scaled, bad):
    def differentiated(t):
        weight = t.ones(4, 2, requires_grad=True)
        taken = t.nn.functional.embedding(t.tensor([[1, 2, 2], [0, 2, 1]]), weight, 2, scale_grad_by_freq=scaled)
        factors = t.ones(2, 3, 2)
        factors[:, 1] = bad
        factors.requires_grad_()
        (grad,) = t.autograd.grad((taken * factors).sum(), weight, create_graph=True)
        # The second derivative looks rows of a gradient up, of which the padding row's counts as zero.
        (second,) = t.autograd.grad(grad, factors, t.full((4, 2), bad))
        return grad.detach(), second[:, ::2]

    agree(differentiated)


def test_bags_refuse_padding_rows_that_are_not_there_and_weights_of_another_dtype():
    def bag(t, **given):
        return t.nn.functional.embedding_bag(t.tensor([[1, 2]]), t.ones(4, 2), mode="sum", **given)

    for wrong in (4, -5):
        refuse(
            lambda t, wrong=wrong: bag(t, padding_idx=wrong),
            RuntimeError,
            f"padding_idx must be within the number of embeddings, -4 through 3, but got {wrong}",
        )
    agree(lambda t: [bag(t, padding_idx=right) for right in (-4, -2, 3)])
    refuse(
        lambda t: bag(t, per_sample_weights=t.ones(1, 2, dtype=t.float64)), RuntimeError, "have the same type as tensor"
    )
