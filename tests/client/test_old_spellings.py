"""Old spellings: PyTorch's former forms of call, types by name, sizes as tensors, default devices."""

import itertools
import warnings
from collections import deque

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, messages, refuse

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:This overload of"),
    pytest.mark.filterwarnings("ignore:The reduce argument"),
]


def _drawn(*shape):
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x, y: x.add(2, y),
        lambda t, x, y: x.clone().add_(0.5, y),
        lambda t, x, y: t.add(x, 2, y),
        lambda t, x, y: x.clone().sub_(3, y),
        lambda t, x, y: t.sub(x, 3, y),
        lambda t, x, y: x.clone().addcmul_(2, y, x),
        lambda t, x, y: t.addcdiv(x, 2, y, y * y + 1),
        lambda t, x, y: t.addmm(0.5, x, 2, y, x),
        lambda t, x, y: t.addmm(0.5, x, y, x),
        lambda t, x, y: x.clone().addmm_(0.5, 2, y, x),
        lambda t, x, y: x.addmm(0.5, y, x),
        lambda t, x, y: t.addmv(2, x[0], 3, x, y[0]),
        lambda t, x, y: t.addr(2, x, 3, x[0], y[0]),
        lambda t, x, y: t.baddbmm(2, x[None], 3, y[None], x[None]),
        lambda t, x, y: t.addbmm(2, x, 3, y[None], x[None]),
        lambda t, x, y: x.std(False) + x.var(True) + t.std_mean(y, False)[1],
        lambda t, x, y: x.split(split_size=2)[1] * 2,
        lambda t, x, y: t.split(x, split_size_or_sections=[1, 2])[1] + 1,
        lambda t, x, y: x.detach().scatter(1, t.tensor([[0], [2], [2]]), y.detach(), reduce="add"),
        lambda t, x, y: x.detach().scatter(1, t.tensor([[0, 0], [2, 1], [2, 1]]), y.detach(), reduce="multiply"),
        lambda t, x, y: x.detach().clone().scatter_(1, t.tensor([[0], [2], [2]]), 2.5, reduce="multiply"),
        lambda t, x, y: x.detach().clone().scatter_(1, t.tensor([[0], [2], [2]]), 2.5, reduce="add"),
        lambda t, x, y: x.type(t.FloatTensor) + y.type("torch.FloatTensor"),
        lambda t, x, y: t.DoubleTensor(deque([1, 2])) + t.tensor(deque([t.tensor(1.0), t.tensor(2.0)])),
        lambda t, x, y: x.reshape(t.tensor(9), 1) + y.view(t.tensor([9]), 1),
        lambda t, x, y: t.zeros(t.tensor(3), 2) + t.ones((t.tensor(3), t.tensor(2))),
        lambda t, x, y: x[:1].expand(t.tensor(2), t.tensor(3)).repeat(t.tensor(2), 1),
        lambda t, x, y: t.nn.functional.pad(x, (t.tensor(1), 2)).unflatten(0, (t.tensor(3), 1)),
        lambda t, x, y: t.full((t.tensor(2), 1), 3.0) + t.arange(t.tensor(3)),
        lambda t, x, y: x.detach().clone().apply_(lambda value: value * 2 + 1),
        lambda t, x, y: x.detach().clone().map_(y.detach(), lambda one, other: one - other),
        lambda t, x, y: x.detach().clone().map2_(y.detach(), x.detach(), lambda a, b, c: a * b + c),
        lambda t, x, y: x.float(memory_format=t.preserve_format).double(memory_format=t.contiguous_format),
        lambda t, x, y: t.asarray(x.detach(), copy=True) + t.asarray([1, 2, 3], dtype=t.float64),
        lambda t, x, y: t.view_as_real((t.complex(x, y) * 2).detach().conj_physical_()),
    ],
)
def test_old_forms_agree_with_pytorch(call):
    first, second = _drawn(3, 3), _drawn(3, 3)

    def told(t):
        x, y = (t.tensor(values, requires_grad=True) for values in (first, second))
        made = call(t, x, y)
        grads = t.autograd.grad((made * made).sum(), (x, y), allow_unused=True) if made.requires_grad else ()
        return made.detach(), *[each for each in grads if each is not None]

    agree(told)


def test_forms_with_the_factor_first_write_to_out_and_warn_once():
    def told(t):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = t.zeros(2)
            return t.add(t.ones(2), 2, t.ones(2), out=made), made

    agree(told)
    from gradwire._tensor.warnings import WARNED_ONCE

    WARNED_ONCE.clear()
    assert ["overload of add_ is deprecated" in text for text in messages(_added, gradwire)] == [True]
    assert messages(_added, gradwire) == []


def _added(t):
    return t.ones(2).add_(2, t.ones(2))


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda t: t.ones(2).add(2, t.ones(2), 3), TypeError, "invalid combination"),
        (lambda t: t.ones(2, 2).addmm(1, 2, 3, t.ones(2, 2), t.ones(2, 2)), TypeError, "invalid combination"),
        (lambda t: t.ones(2, requires_grad=True).apply_(abs), RuntimeError, "requires grad"),
        (lambda t: t.ones(2).map_(t.ones(2, dtype=t.float64), max), TypeError, "torch.float32"),
        (
            lambda t: t.ones(2, 2).scatter_(1, t.tensor([[0]]), 1.0, reduce="mean"),
            RuntimeError,
            "reduce argument must be either add or multiply",
        ),
        (lambda t: t.cat([t.ones(1), 2]), TypeError, "expected Tensor as element 1"),
        (lambda t: t.zeros(t.tensor(1.5), 2), TypeError, "element 1"),
        (lambda t: t.nn.Linear(2, 2).set_submodule("", t.nn.ReLU()), ValueError, "without a target name"),
        (lambda t: t.nn.Linear(2, 2).set_submodule("weight", t.nn.ReLU()), AttributeError, "not an nn.Module"),
    ],
)
def test_bad_old_forms_are_refused(call, error, phrase):
    refuse(call, error, phrase)


def test_flags_and_layouts_are_pytorchs():
    names = ["is_xpu", "is_ipu", "is_xla", "is_maia", "is_mtia", "is_vulkan", "is_mkldnn", "is_sparse_csr"]

    def told(t):
        x = t.ones(2, 3, 4, 5)
        last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        return (
            *[getattr(x, name) for name in names],
            x.is_shared(),
            x.is_distributed(),
            x.dense_dim(),
            x.sparse_dim(),
            x.dim_order(),
            last.dim_order(),
            x.to_dense() is x,
            *[each.is_contiguous(memory_format=t.channels_last) for each in (x, last, x[0])],
            last.is_contiguous(memory_format=t.contiguous_format),
            x[..., None].is_contiguous(memory_format=t.channels_last_3d),
        )

    agree(told)


def test_default_device_is_that_of_new_tensors():
    def told(t):
        before = str(t.get_default_device())
        t.set_default_device("cpu")
        with t.device("cpu"):
            made = t.zeros(2)
        t.set_default_device(None)
        return before, str(made.device), str(t.get_default_device())

    agree(told)
    with gradwire.device("cuda"):
        assert gradwire.get_default_device() == gradwire.device("cuda")
        if not gradwire.cuda.is_available():
            for make in (lambda: gradwire.zeros(2), lambda: gradwire.tensor([1.0])):
                with pytest.raises(RuntimeError, match="cuda"):
                    make()
        assert gradwire.zeros(2, device="cpu").device.type == "cpu"
    assert gradwire.get_default_device() == gradwire.device("cpu")
    with pytest.raises(NotImplementedError, match="meta"):
        gradwire.set_default_device("meta")


def test_a_sampler_of_many_numbers_draws_as_it_is_read():
    def told(t):
        t.manual_seed(3)
        sampler = t.utils.data.RandomSampler(range(5), replacement=True, num_samples=10**10)
        short = t.utils.data.RandomSampler(range(7), replacement=True, num_samples=70)
        return list(itertools.islice(sampler, 100)), len(sampler), list(short)

    agree(told)


@pytest.mark.parametrize("name", ["constant", "uniform", "normal", "xavier_normal", "kaiming_uniform", "orthogonal"])
def test_initializers_without_underscore_warn_and_fill(name):
    options = (0.5,) if name == "constant" else ()

    def told(t):
        t.manual_seed(5)
        with pytest.warns(FutureWarning, match=f"`nn.init.{name}` is now deprecated"):
            return getattr(t.nn.init, name)(t.empty(3, 3), *options)

    agree(told)


def test_modules_change_type_and_lose_values():
    def told(t):
        net = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.Sequential(t.nn.ReLU())).type(t.DoubleTensor)
        net.set_submodule("1.0", t.nn.Tanh())
        net.set_submodule("1.extra", t.nn.Sigmoid())
        empty = t.nn.Linear(2, 3).to_empty(device="cpu")
        return str(net[0].weight.dtype), repr(net), empty.weight.shape, empty.weight.requires_grad

    agree(told)


def test_embedding_bag_with_the_table_first():
    def bags(t):
        table = t.tensor(_TABLE, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = t.nn.functional.embedding_bag(table, t.tensor([1, 2, 1, 0]), t.tensor([0, 3]), mode="sum")
        made.square().sum().backward()
        return made.detach(), table.grad, any("Argument order" in str(each.message) for each in caught)

    agree(bags)


_TABLE = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
