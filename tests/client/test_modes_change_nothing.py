"""What a mode that only passes on must leave as it is, what it may not change, and traces that run anew."""

import random
import warnings

import pytest

import gradwire
from gradwire.fx.experimental.proxy_tensor import make_fx
from gradwire.utils._python_dispatch import BaseTorchDispatchMode, TorchDispatchMode
from tests.comparison import alike, plain

pytestmark = pytest.mark.usefixtures("session")

functional = gradwire.nn.functional
_SEED = random.randrange(1 << 30)


def drawn(*sizes):
    return gradwire.randn(*sizes)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.flatten(0, 7),
        lambda x: x.chunk(2, 5),
        lambda x: x.movedim(0, 5),
        lambda x: x.narrow(5, 0, 1),
        lambda x: x.unflatten(4, (1, 2)),
        lambda x: functional.conv2d(x, x),
        lambda x: functional.conv_transpose1d(x, x),
        lambda x: gradwire.tensordot(x, x, 9),
        lambda x: gradwire.tensordot(x, x, ([9], [0])),
        lambda x: gradwire.hstack([]),
        lambda x: gradwire.outer(x, x),
        lambda x: functional.rms_norm(x, (9,)),
        lambda x: gradwire.einsum("ij,jk->ik", x, x),
        lambda x: gradwire.einsum("ijk,jk->ik", x, x),
        lambda x: gradwire.diag(x[None]),
        lambda x: functional.instance_norm(x[0]),
    ],
)
def test_errors_are_the_same_in_a_mode(wrong):
    with pytest.raises(Exception) as expected:
        wrong(gradwire.ones(3, 4))
    with BaseTorchDispatchMode(), pytest.raises(type(expected.value)) as found:
        wrong(gradwire.ones(3, 4))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("call", [lambda x: x[1:], lambda x: x[..., -2:], lambda x: x[...], lambda x: x[5:]])
def test_views_have_their_nodes_in_a_mode(call):
    x = drawn(3, 4).requires_grad_()
    expected = call(x)
    with BaseTorchDispatchMode():
        found = call(x)
    assert found.grad_fn.name() == expected.grad_fn.name()
    assert found.shape == expected.shape


class Changes(TorchDispatchMode):
    """Computes something else for two ops."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is gradwire.ops.aten.mul_.Tensor:
            return func(args[0], 3.0)
        if func is gradwire.ops.aten.relu.default:
            return args[0]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("call", [lambda x: (x * 1).mul_(2), lambda x: (x * 1).relu()])
def test_another_result_that_needs_a_derivative_is_refused(call):
    x = drawn(3).requires_grad_()
    with Changes(), pytest.raises(NotImplementedError, match="another tensor"):
        call(x)
    with Changes(), gradwire.no_grad():
        assert call(x).shape == (3,)


def in_place(name):
    return lambda x: getattr(functional, name)(x * 1, inplace=True)


REPLAYED = {
    "instance_norm": (
        lambda x, m, v, w: functional.instance_norm(x, m, v, w, w, momentum=0.3),
        [(2, 3, 4, 4), (3,), (3,), (3,)],
    ),
    "batch_norm": (lambda x, m, v: functional.batch_norm(x, m, v, training=True), [(2, 3, 4, 4), (3,), (3,)]),
    "embedding": (lambda w: functional.embedding(gradwire.tensor([1, 2]), w, max_norm=1.0), [(4, 5)]),
    "named results": (lambda x: (x.median(1), x.median(0), x.sort(1), x.sort(0)), [(3, 4)]),
    "drawn": (lambda x: x.clone().random_(5), [(3, 4)]),
    "kl_div": (lambda x, y: functional.kl_div(x, y, reduction="batchmean", log_target=True), [(3, 4), (3, 4)]),
    **{
        name: (in_place(name), [(3, 4)])
        for name in (
            *("celu", "dropout", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu6"),
            *("rrelu", "selu", "silu"),
        )
    },
}


@pytest.mark.parametrize("name", REPLAYED)
def test_a_trace_computes_and_changes_what_the_function_does(name):
    call, shapes = REPLAYED[name]
    gradwire.manual_seed(_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = make_fx(call)(*(drawn(*each) for each in shapes))
    given = [drawn(*each) for each in shapes]
    same = [each.clone() for each in given]
    gradwire.manual_seed(_SEED)
    found = graph(*given)
    gradwire.manual_seed(_SEED)
    assert alike(plain(found), plain(call(*same))), f"seed {_SEED}"
    assert alike(plain(given), plain(same)), f"seed {_SEED}"


@pytest.mark.parametrize(
    "call",
    [
        gradwire.func.grad(lambda x: (x**3).sum()),
        gradwire.func.vmap(gradwire.func.grad(lambda x: (x**3).sum())),
        lambda x: functional.batch_norm(x, gradwire.zeros(4), gradwire.ones(4), training=True),
    ],
)
def test_what_functionalization_would_get_wrong_is_refused(call):
    with pytest.raises(NotImplementedError, match="functionalize"):
        make_fx(gradwire.func.functionalize(call))(drawn(3, 4))


def test_one_tensor_as_two_arguments_is_refused():
    x = drawn(3)
    with pytest.raises(NotImplementedError, match="two arguments"):
        make_fx(lambda a, b: a * 2 + b)(x, x)
    assert make_fx(lambda a, b: a * 2 + b)(x, x.clone())(x, x + 1).tolist() == (x * 2 + (x + 1)).tolist()
