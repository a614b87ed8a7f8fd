"""gradcheck: which modes it runs, in which order, and of what gradgradcheck takes derivatives."""

from typing import Any

import pytest

import gradwire as gw
from gradwire.autograd import Function, gradcheck, gradgradcheck


class Doubled(Function):
    """Twice its input, with errors where wanted."""

    @staticmethod
    def forward(ctx: Any, x: gw.Tensor, forward_fails: bool, backward_fails: bool) -> gw.Tensor:
        ctx.fails = forward_fails, backward_fails
        return x * 2

    @staticmethod
    def vjp(ctx: Any, grad: gw.Tensor) -> Any:
        if ctx.fails[1]:
            raise RuntimeError("backward failed")
        return grad * 2, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: gw.Tensor, *rest: Any) -> gw.Tensor:
        if ctx.fails[0]:
            raise RuntimeError("forward failed")
        return tangent * 2


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("fails", "told"), [((True, True), "backward"), ((True, False), "forward"), ((False, True), "backward")]
)
def test_where_both_modes_fail_backward_tells(fails: tuple[bool, bool], told: str) -> None:
    x = gw.rand(2, dtype=gw.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match=f"{told} failed"):
        gradcheck(Doubled.apply, (x, *fails), check_forward_ad=True)


@pytest.mark.usefixtures("session")
def test_given_gradients_that_require_none_are_not_checked() -> None:
    x = gw.rand(3, dtype=gw.float64, requires_grad=True)
    rough = gw.rand(3)  # float32: differences of it would be too rough
    assert gradgradcheck(gw.sin, (x,), rough)
    assert not rough.requires_grad


def test_all_columns_of_a_jacobian_are_read_at_once(deferring: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    wait = deferring.wait

    def watched(command: Any, *args: Any) -> Any:
        reads.extend([1] * (command.WhichOneof("command") == "read"))
        return wait(command, *args)

    monkeypatch.setattr(deferring, "wait", watched)
    counts = []
    for size in (2, 20):
        reads.clear()
        assert gradcheck(lambda x: x.sin() * x, (gw.rand(size, dtype=gw.float64, requires_grad=True),))
        counts.append(len(reads))
    assert counts[0] == counts[1] > 0


@pytest.mark.usefixtures("session")
def test_gradients_in_a_buffer_that_each_backward_writes_are_compared_one_by_one() -> None:
    buffer = gw.zeros(3, dtype=gw.float64)

    class Buffered(Function):
        @staticmethod
        def forward(ctx: Any, x: gw.Tensor) -> gw.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: gw.Tensor) -> Any:
            return buffer.copy_(grad * 2)

    x = gw.rand(3, dtype=gw.float64, requires_grad=True)
    assert gradcheck(Buffered.apply, (x,))
    assert gradcheck(lambda x: x, (x,))
