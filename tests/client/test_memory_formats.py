"""Memory formats: strides, values and gradients of tensors with their channels last, beside PyTorch's."""

import numpy as np
import pytest

from tests.client.oracle import agree, refuse, torch

pytestmark = pytest.mark.usefixtures("session")
RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

IMAGES, VOLUMES = (2, 3, 4, 5), (2, 3, 4, 5, 6)


@pytest.mark.parametrize("groups", [1, 2])
def test_padded_transposed_convolutions_without_a_bias_are_contiguous(groups):
    values = RNG.normal(size=(2, 4, 3, 3)), RNG.normal(size=(4, 2, 3, 3))

    def flat(t):
        x, weight = (t.tensor(each.tolist(), dtype=t.float64) for each in values)
        made = t.nn.functional.conv_transpose2d(x, weight, None, 2, 1, 0, groups, 1)
        return made.view(2, -1), made.stride(), made.storage_offset()

    agree(flat)


NUMBERS = {
    "contiguous": lambda t, x, last: x.contiguous(memory_format=last),
    "clone": lambda t, x, last: t.clone(x, memory_format=last),
    "to": lambda t, x, last: x.to(memory_format=last),
    "to a dtype": lambda t, x, last: x.to(t.float64, memory_format=last),
    "double": lambda t, x, last: x.double(memory_format=last),
    "cloned again": lambda t, x, last: x.contiguous(memory_format=last).clone(),
    "row-major again": lambda t, x, last: x.contiguous(memory_format=last).contiguous(),
    "to row-major again": lambda t, x, last: x.to(memory_format=last).to(memory_format=t.contiguous_format),
    "zeros_like": lambda t, x, last: t.zeros_like(x, memory_format=last),
    "ones_like": lambda t, x, last: t.ones_like(x.contiguous(memory_format=last)),
    "full_like": lambda t, x, last: t.full_like(x.contiguous(memory_format=last), 2.5),
    "row-major full_like": lambda t, x, last: t.full_like(
        x.contiguous(memory_format=last), 2.5, memory_format=t.contiguous_format
    ),
    "empty": lambda t, x, last: t.empty(x.shape, memory_format=last).fill_(1.0),
    "double of it": lambda t, x, last: x.contiguous(memory_format=last) * 2,
}


def _values(*size):
    return RNG.standard_normal(size).astype(np.float32)


def _told(result):
    return result, result.stride(), result.is_contiguous()


def _last(t, rank):
    return t.channels_last if rank == 4 else t.channels_last_3d


@pytest.mark.parametrize("size", [IMAGES, VOLUMES], ids=["images", "volumes"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_memory_format_orders_the_dimensions_in_memory(name, size):
    values = _values(*size)

    def run(t):
        last = _last(t, len(size))
        made = NUMBERS[name](t, t.tensor(values), last)
        return *_told(made), made.is_contiguous(memory_format=last), made._is_view()

    agree(run)


@pytest.mark.parametrize("name", ["contiguous", "clone", "to", "double of it"])
def test_gradients_pass_through_a_change_of_memory_format(name):
    values, weights = _values(*IMAGES), _values(*IMAGES)

    def run(t):
        x = t.tensor(values, requires_grad=True)
        (NUMBERS[name](t, x, t.channels_last) * t.tensor(weights)).sum().backward()
        return x.grad

    agree(run)


def test_a_tensor_that_lies_in_a_memory_format_is_returned_itself():
    def run(t):
        x = t.zeros(IMAGES).contiguous(memory_format=t.channels_last)
        odd = t.zeros(2, 3).T
        return (
            x.contiguous(memory_format=t.channels_last) is x,
            x.to(memory_format=t.channels_last) is x,
            x.clone(memory_format=t.channels_last) is x,
            odd.to(memory_format=t.contiguous_format) is odd,
            x.to(memory_format=t.contiguous_format) is x,
        )

    agree(run)


def test_numbers_like_a_tensor_are_drawn_in_the_order_of_its_memory():
    def run(t):
        t.manual_seed(3)
        x = t.zeros(IMAGES)
        return _told(t.rand_like(x, memory_format=t.channels_last))

    agree(run)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.zeros(2, 3).contiguous(memory_format=t.channels_last),
        lambda t: t.zeros(2, 3).clone(memory_format=t.channels_last),
        lambda t: t.zeros(2, 3).to(memory_format=t.channels_last),
        lambda t: t.zeros_like(t.zeros(2, 3), memory_format=t.channels_last),
        lambda t: t.empty(2, 3, memory_format=t.channels_last),
    ],
)
def test_a_memory_format_of_another_rank_is_refused(call):
    refuse(call, RuntimeError, "required rank 4 tensor to use channels_last format")


def test_what_is_no_memory_format_is_refused():
    refuse(lambda t: t.zeros(IMAGES).contiguous(memory_format=3), TypeError, "must be torch.memory_format, not int")
    refuse(
        lambda t: t.zeros(2, 3).T.contiguous(memory_format=t.preserve_format), RuntimeError, "preserve memory format"
    )


POOLED = {
    "max_pool": lambda f, dims, x: f(x, 2, return_indices=True),
    "avg_pool": lambda f, dims, x: f(x, 2),
    "adaptive_max_pool": lambda f, dims, x: f(x, (2, 3, 2)[:dims], return_indices=True),
    "adaptive_avg_pool": lambda f, dims, x: f(x, (2, 3, 2)[:dims]),
    "adaptive_avg_pool of everything": lambda f, dims, x: f(x, 1),
}


@pytest.mark.parametrize("batched", [True, False], ids=["batch", "single"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", POOLED)
def test_pooling_lays_its_results_in_memory_as_pytorch(name, dims, batched):
    values = _values(*(IMAGES if dims == 2 else VOLUMES))

    def run(t):
        x = t.tensor(values).contiguous(memory_format=_last(t, dims + 2)).requires_grad_()
        function = getattr(t.nn.functional, f"{name.split()[0]}{dims}d")
        made = POOLED[name](function, dims, x if batched else x[0])
        made = made if isinstance(made, tuple) else (made,)
        (made[0] * made[0]).sum().backward()
        return *[_told(each.detach()) for each in made], x.grad

    agree(run)


def test_unpooling_keeps_the_channels_last():
    values = _values(2, 3, 4, 6)

    def run(t):
        x = t.tensor(values).contiguous(memory_format=t.channels_last)
        return _told(t.nn.functional.max_unpool2d(*t.nn.functional.max_pool2d(x, 2, return_indices=True), 2))

    agree(run)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max_pool", "adaptive_max_pool"])
def test_backward_refuses_indices_of_maxima_that_were_changed(kind, dims):
    values = _values(2, 3, *(4,) * dims)

    def run(t):
        x = t.tensor(values, requires_grad=True)
        made, indices = getattr(t.nn.functional, f"{kind}{dims}d")(x, 2, return_indices=True)
        made.sum().backward(retain_graph=True)
        indices.add_(1)
        made.sum().backward()

    refuse(run, RuntimeError, "modified by an inplace operation")


ROW_MAJOR = {
    "sum": lambda t, x: x.sum(0),
    "mean": lambda t, x: x.mean((0, 2)),
    "prod": lambda t, x: x.prod(2),
    "var": lambda t, x: x.var(0),
    "std_mean": lambda t, x: t.std_mean(x, 0)[1],
    "amax": lambda t, x: x.amax(3),
    "any": lambda t, x: (x > 0).any(0),
    "logsumexp": lambda t, x: x.logsumexp(2),
    "norm": lambda t, x: t.linalg.vector_norm(x, dim=0),
    "nansum": lambda t, x: x.nansum(0),
    "softmax": lambda t, x: x.softmax(1),
    "log_softmax": lambda t, x: x.log_softmax(1),
    "cummax": lambda t, x: x.cummax(1)[0],
    "logcumsumexp": lambda t, x: x.logcumsumexp(1),
    "tril": lambda t, x: x.tril(),
    "masked_fill": lambda t, x: x.masked_fill(x > 0, 0.0),
}


@pytest.mark.parametrize("name", ROW_MAJOR)
def test_what_is_row_major_in_pytorch_can_be_viewed_flat_after_a_permutation(name):
    values = _values(*IMAGES)

    def run(t):
        made = ROW_MAJOR[name](t, t.tensor(values).permute(0, 2, 3, 1))
        return made.view(-1), made.stride()

    agree(run)


@pytest.mark.parametrize("order", [(1, 0), (0, 1), (2, 0, 1), (0, 3, 1, 2), (3, 1, 0, 2), (0, 4, 1, 2, 3)], ids=str)
def test_joined_tensors_lie_in_memory_as_in_pytorch(order):
    sizes = (2, 3, 4, 2, 3)[: len(order)]

    def case(t):
        x = t.arange(float(torch.Size(sizes).numel())).view(sizes).permute(order)
        last = x.contiguous()
        made = [t.cat([x, x], dim) for dim in range(x.dim())] + [t.stack([x, x], dim) for dim in range(x.dim() + 1)]
        made += [t.cat([x, last]), t.stack([last, x], 1), t.vstack([x, x]), t.cat([x])]
        return [(each, each.stride(), each.is_contiguous()) for each in made]

    agree(case)
