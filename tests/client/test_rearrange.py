"""func.rearrange, compared with PyTorch's over a real socket."""

import pytest

import gradwire
from tests.client.oracle import agree, torch

DimensionBindError = pytest.importorskip("functorch.dim").DimensionBindError
pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("a b c -> c a b", {}),
        ("a b c -> (a b) c", {}),
        ("a (b d) c -> a b (c d)", {"d": 2}),
        ("a (b d) c -> (d a) b c", {"b": 2}),
        ("... c -> c ...", {}),
        ("a ... -> (a ...)", {}),
        ("a b c -> a 1 b c", {}),
        ("a b c -> a () (b c)", {}),
        ("(x y) ... -> x ... y", {"x": 3}),
    ],
)
def test_patterns_agree(pattern, sizes):
    agree(lambda t: t.func.rearrange(t.arange(48.0).reshape(6, 4, 2), pattern, **sizes))


def test_several_tensors_are_stacked_and_gradients_flow():
    def case(t):
        x = t.arange(6.0).reshape(2, 3).requires_grad_()
        made = t.func.rearrange([x, x * 2], "n a b -> (b n) a")
        return made, t.autograd.grad((made * t.arange(12.0).reshape(6, 2)).sum(), x)[0]

    agree(case)


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("a b c", {}),
        ("a b -> b a", {}),
        ("a b c -> a b", {}),
        ("a b c -> a b c c", {}),
        ("(a b c -> a b c", {}),
        ("a (b d) c -> a b d c", {}),
        ("a (b d) c -> a b d c", {"b": 3}),
        ("a b c -> c b a", {"x": 2}),
    ],
)
def test_patterns_that_do_not_fit_are_refused(pattern, sizes):
    with pytest.raises((ValueError, RuntimeError, TypeError, DimensionBindError)):
        torch.func.rearrange(torch.ones(6, 4, 2), pattern, **sizes)
    with pytest.raises(ValueError):
        gradwire.func.rearrange(gradwire.ones(6, 4, 2), pattern, **sizes)
