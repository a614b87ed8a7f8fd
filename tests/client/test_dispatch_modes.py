"""Dispatch modes: which ops they see, how they nest, and what stays differentiable. Over a real socket."""

import random
import warnings

import pytest

import gradwire
from gradwire.utils import _python_dispatch
from tests.client.dispatch_cases import CASES, tensors
from tests.client.oracle import torch
from tests.comparison import alike, plain

pytestmark = pytest.mark.usefixtures("session")

torch_dispatch = pytest.importorskip("torch.utils._python_dispatch")
_SEED = random.randrange(1 << 30)
# Ops whose results are drawn, undefined, or near only to a precision of their own.
_NOT_COMPARED = ("rand", "normal", "multinomial", "bernoulli", "uniform", "empty", "svd", "eigh", "qr")


def home(t):
    return _python_dispatch if t is gradwire else torch_dispatch


def shown(t, value):
    """An argument of an op as text: a tensor by its sizes."""
    if isinstance(value, t.Tensor):
        return f"T{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(shown(t, each) for each in value)}]"
    return repr(value)


def logging_mode(t):
    """A mode, and the list of what it sees."""
    seen = []

    class Logging(home(t).TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            named = [f"{name}={shown(t, each)}" for name, each in (kwargs or {}).items()]
            seen.append(f"{func}({', '.join([*(shown(t, each) for each in args), *named])})")
            return func(*args, **(kwargs or {}))

    return Logging(), seen


def seen_by(t, case):
    mode, seen = logging_mode(t)
    values = tensors(t, _SEED)
    with warnings.catch_warnings(), mode:
        warnings.simplefilter("ignore")
        made = case(t, values)
    return seen, made


@pytest.mark.parametrize("place", range(len(CASES)))
def test_a_mode_sees_the_ops_of_pytorch_and_the_results_stay(place):
    case = CASES[place]
    expected, value = seen_by(torch, case)
    seen, made = seen_by(gradwire, case)
    assert seen == expected, f"seed {_SEED}"
    if not any(name in each for each in seen for name in _NOT_COMPARED):
        assert alike(plain(made), plain(value)), f"seed {_SEED}"


@pytest.mark.parametrize(
    "case",
    [
        lambda t, d: t.nn.functional.linear(d.x3, d.w, d.b),
        lambda t, d: d.x3 @ d.y3,
        lambda t, d: t.nn.functional.layer_norm(d.x, (4,), d.lnw, d.lnw),
        lambda t, d: t.nn.functional.conv2d(d.img, d.k, d.kb),
        lambda t, d: t.nn.functional.cross_entropy(d.x, d.lab),
        lambda t, d: t.nn.functional.scaled_dot_product_attention(d.q, d.q, d.q),
        lambda t, d: t.einsum("bij,bjk->bik", d.x3, d.y3),
        lambda t, d: d.x.t().reshape(12).softmax(0),
        lambda t, d: t.linalg.inv(d.spd),
        lambda t, d: t.nn.functional.selu(d.x) + t.nn.functional.elu(d.y),
    ],
)
def test_gradients_are_those_without_a_mode(case):
    def gradients(active):
        values = tensors(gradwire, _SEED)
        leaves = [getattr(values, name).requires_grad_() for name in ("x", "y", "x3", "y3", "w", "b", "img", "k", "q")]
        leaves += [values.lnw.requires_grad_(), values.spd.detach_().requires_grad_()]
        if active:
            with logging_mode(gradwire)[0]:
                made = case(gradwire, values)
        else:
            made = case(gradwire, values)
        weights = gradwire.arange(float(made.numel())).reshape(made.shape)
        found = gradwire.autograd.grad((made * weights).sum(), leaves, allow_unused=True)
        return [None if each is None else each.tolist() for each in found]

    for one, other in zip(gradients(True), gradients(False), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert gradwire.allclose(gradwire.tensor(one), gradwire.tensor(other), 1e-4, 1e-5)


@pytest.mark.parametrize(
    "case",
    [
        lambda t, x: x.exp().tanh().relu(),
        lambda t, x: (x * 1).exp_().sigmoid_(),
        lambda t, x: x.softmax(1).log_softmax(0),
        lambda t, x: t.linalg.svd(x)[1].sqrt() + t.std_mean(x, 1)[0],
        lambda t, x: t.nn.functional.group_norm(x, 3) + x.sin() * x.pow(2),
        lambda t, x: x.detach().exp() + x.max() - x.max(1)[0].reciprocal(),
    ],
)
def test_a_mode_sees_that_saved_results_are_detached(case):
    def seen(t):
        mode, names = logging_mode(t)
        x = (t.arange(9.0).reshape(3, 3).sin() + 2).requires_grad_()
        with mode:
            case(t, x)
        return names

    assert seen(gradwire) == seen(torch)


def test_modes_nest_from_the_inside_outwards():
    def order(t):
        seen = []

        class Named(home(t).TorchDispatchMode):
            def __init__(self, name):
                super().__init__()
                self.name = name

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                stack = home(t)._get_current_dispatch_mode_stack()
                seen.append((self.name, str(func), [each.name for each in stack]))
                if self.name == "inner" and func is t.ops.aten.add.Tensor:
                    args[0] * 3
                return func(*args, **(kwargs or {}))

        with Named("outer"), Named("inner") as mode:
            assert home(t)._get_current_dispatch_mode() is mode
            t.ones(2) + 1
            with home(t)._pop_mode_temporarily() as popped:
                assert popped is mode
                t.ones(2).sin()
            with home(t)._disable_current_modes():
                t.ones(2).cos()
        assert home(t)._get_current_dispatch_mode() is None
        return seen

    assert order(gradwire) == order(torch)


def test_a_mode_may_compute_something_else():
    def case(t):
        class Doubling(home(t).TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                made = func(*args, **(kwargs or {}))
                return made * 2 if func is t.ops.aten.sin.default else made

        with Doubling():
            return t.arange(3.0).sin() + 1

    assert alike(plain(case(gradwire)), plain(case(torch)))


def test_another_result_that_requires_a_gradient_is_refused():
    class Doubling(_python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * 2

    x = gradwire.ones(2, requires_grad=True)
    with Doubling(), pytest.raises(NotImplementedError, match="another tensor than func"):
        x.sin()
    with Doubling(), gradwire.no_grad():
        made = x.sin()
    assert gradwire.equal(made, 2 * gradwire.ones(2).sin())


def test_a_mode_that_raises_is_left():
    class Failing(_python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"), Failing():
        gradwire.ones(2)
    assert gradwire.ones(2).tolist() == [1, 1]
    assert not _python_dispatch.is_in_torch_dispatch_mode()


def test_a_mode_without_a_method_and_a_handler_that_declines_are_refused():
    named = pytest.raises(NotImplementedError, match="TorchDispatchMode defines no __torch_dispatch__")
    with named, _python_dispatch.TorchDispatchMode():
        gradwire.ones(2)

    class Declining(_python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="Multiple dispatch failed"), Declining():
        gradwire.ones(2)


def test_backward_in_a_mode_is_right_and_warns():
    mode, seen = logging_mode(gradwire)
    x = gradwire.arange(3.0).requires_grad_()
    with mode, warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        x.sin().sum().backward()
    assert gradwire.allclose(x.grad, gradwire.arange(3.0).cos())
    assert [each.partition("(")[0] for each in seen][:2] == ["aten.sin.default", "aten.sum.default"]


def test_casts_of_autocast_are_seen():
    mode, seen = logging_mode(gradwire)
    x = gradwire.ones(2, 2)
    with mode, gradwire.autocast("cpu", dtype=gradwire.bfloat16):
        made = x @ x
    assert made.dtype is gradwire.bfloat16
    assert [each.partition("(")[0] for each in seen][-1] == "aten.mm.default"
    assert any("_to_copy" in each for each in seen)


def test_in_place_ops_return_their_argument():
    class Copying(_python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            return _python_dispatch.return_and_correct_aliasing(func, args, kwargs, made)

    x = gradwire.ones(2)
    with Copying():
        assert x.add_(1) is x
        assert x.unsqueeze_(0) is x
    assert x.tolist() == [[2, 2]]
    with Copying(), pytest.raises(NotImplementedError, match=r"no Tensor.set_"):
        x.set_(gradwire.ones(3))


def test_compiled_functions_optimizers_and_custom_ops_are_seen():
    mode, seen = logging_mode(gradwire)
    compiled = gradwire.compile(lambda x: x.sin() + 1)
    weight = gradwire.nn.Parameter(gradwire.ones(2))
    optimizer = gradwire.optim.SGD([weight], lr=0.5)
    for _ in range(3):  # until both are programs
        compiled(weight).sum().backward()
        optimizer.step()
    gradient, before = weight.grad.tolist(), weight.tolist()

    @gradwire.library.custom_op("modes::double", mutates_args=())
    def double(x: gradwire.Tensor) -> gradwire.Tensor:
        return x * 2

    with mode:
        compiled(weight)
        optimizer.step()
        made = gradwire.ops.modes.double(weight.detach())
    names = [each.partition("(")[0] for each in seen]
    assert names == [
        "aten.sin.default",
        "aten.add.Tensor",
        "aten.add_.Tensor",
        "aten.detach.default",
        "modes.double.default",
    ]
    expected = [one - 0.5 * other for one, other in zip(before, gradient, strict=True)]
    assert weight.tolist() == pytest.approx(expected)
    assert made.tolist() == pytest.approx([2 * each for each in expected])


@pytest.mark.parametrize("part", range(8))
def test_other_arguments_are_computed_by_kernels(part):
    class Copying(_python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            keeps = func.__name__.partition(".")[0].endswith("_")
            given = [each.clone() if isinstance(each, gradwire.Tensor) and not keeps else each for each in args]
            return func(*given, **(kwargs or {}))

    wrong = []
    for place in range(part, len(CASES), 8):
        case, values = CASES[place], tensors(gradwire, _SEED)
        with Copying():
            made = case(gradwire, values)
        expected = case(gradwire, tensors(gradwire, _SEED))
        drawn = any(name in each for each in seen_by(gradwire, case)[0] for name in _NOT_COMPARED)
        if not drawn and not alike(plain(made), plain(expected)):
            wrong.append(place)
    assert not wrong, f"seed {_SEED}"
