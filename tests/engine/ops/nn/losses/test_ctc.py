"""ctc_loss: all alignments, padded or concatenated targets, impossible ones, and what is refused."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, gradients, tensor
from gradwire_engine.ops.nn.losses.ctc import ctc_loss
from tests.engine.oracle import Drawn, Refused, Same, given, integers, normal, refused, same, torch

F = torch.nn.functional


def _logs(*shape: int) -> Drawn:
    def make(rng: np.random.Generator) -> np.ndarray:
        drawn = rng.standard_normal(shape)
        return drawn - np.log(np.exp(drawn).sum(-1, keepdims=True))

    return Drawn(make, f"log probabilities{list(shape)}")


def _through_softmax(function, log_softmax):
    """The loss of unnormalized inputs: PyTorch's gradient holds for normalized ones only."""
    return lambda x, *rest, **more: function(log_softmax(x), *rest, **more)


def _ours(x):
    from gradwire_engine.ops.nn.softmax import log_softmax

    return log_softmax(x, 2)


PAIR = (_through_softmax(ctc_loss, _ours), _through_softmax(F.ctc_loss, lambda x: x.log_softmax(2)))
TARGETS = given([[1, 1, 2], [3, 2, 0]], "int64", False)
LENGTHS, SIZES = given([7, 5], "int64", False), given([3, 2], "int64", False)
SAME = [
    *(same(*PAIR, normal(7, 2, 4), TARGETS, LENGTHS, SIZES, reduction=how) for how in ("none", "mean", "sum")),
    same(*PAIR, normal(7, 2, 4), given([1, 1, 2, 3, 2], "int64", False), LENGTHS, SIZES),
    same(*PAIR, normal(7, 2, 5), given([[0, 1, 3], [1, 0, 4]], "int64", False), LENGTHS, SIZES, blank=2),
    same(*PAIR, normal(7, 2, 4), TARGETS, LENGTHS, given([3, 0], "int64", False), reduction="none"),
    same(
        ctc_loss,
        F.ctc_loss,
        _logs(3, 1, 3).constant,
        given([[1, 1]], "int64", False),
        given([2], "int64", False),
        given([2], "int64", False),
        reduction="none",
    ),
    same(
        *PAIR,
        normal(3, 1, 3),
        given([[1, 1]], "int64", False),
        given([2], "int64", False),
        given([2], "int64", False),
        zero_infinity=True,
    ),
]
RUN = Reason.RUNTIME
X = _logs(7, 2, 4)
REFUSED = [
    refused(ctc_loss, RUN, "blank must be in label range", X, TARGETS, LENGTHS, SIZES, 4, theirs=F.ctc_loss),
    refused(ctc_loss, RUN, "at most 7, but got value 8", X, TARGETS, given([8, 5], "int64"), SIZES, theirs=F.ctc_loss),
    refused(
        ctc_loss,
        RUN,
        "input_lengths must be of size batch_size",
        X,
        TARGETS,
        given([7], "int64"),
        SIZES,
        theirs=F.ctc_loss,
    ),
    refused(
        ctc_loss,
        RUN,
        "target_lengths to have value at least 0",
        X,
        TARGETS,
        LENGTHS,
        given([3, -1], "int64"),
        theirs=F.ctc_loss,
    ),
    refused(ctc_loss, RUN, "from 0 to 3", X, integers(9, 10, 2, 3), LENGTHS, SIZES),
    refused(
        ctc_loss,
        RUN,
        "size 5, the sum of target_lengths, got 4",
        X,
        given([1, 1, 2, 3], "int64"),
        LENGTHS,
        SIZES,
        theirs=F.ctc_loss,
    ),
    refused(
        ctc_loss,
        RUN,
        "at least 3 at dimension 1, but got size [2, 2]",
        X,
        integers(1, 3, 2, 2),
        LENGTHS,
        SIZES,
        theirs=F.ctc_loss,
    ),
    refused(ctc_loss, Reason.NOT_SUPPORTED, "'Long'", integers(0, 1, 7, 2, 4), TARGETS, LENGTHS, SIZES),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_loss_of_one_step_is_minus_the_logarithm_of_the_label() -> None:
    logs = np.log(np.array([[[0.5, 0.3, 0.2]]]))
    found = ctc_loss(tensor(logs), tensor(np.array([[1]])), tensor(np.array([1])), tensor(np.array([1])))
    np.testing.assert_allclose(found.array, -np.log(0.3))


def test_a_second_derivative_is_refused() -> None:
    x = tensor(np.log(np.full((2, 1, 2), 0.5)), True)
    loss = ctc_loss(x, tensor(np.array([[1]])), tensor(np.array([2])), tensor(np.array([1])))
    first, _ = gradients([loss], [x], create_graph=True)
    with pytest.raises(EngineError, match="_ctc_loss_backward is not implemented"):
        gradients(first, [x], [tensor(np.ones((2, 1, 2)))])


def test_gradient_of_float32_is_as_exact_as_pytorchs():
    random = np.random.default_rng(0)
    logs = torch.tensor(random.standard_normal((50, 3, 20))).log_softmax(2)
    targets = random.integers(1, 20, (3, 20))
    lengths, sizes = np.array([50, 45, 40]), np.array([20, 18, 15])

    def of_torch(dtype):
        x = logs.to(dtype).clone().requires_grad_()
        F.ctc_loss(x, *(torch.tensor(each) for each in (targets, lengths, sizes)), reduction="sum").backward()
        return x.grad.numpy()

    exact = of_torch(torch.float64)
    x = tensor(logs.numpy().astype(np.float32), requires_grad=True)
    made = ctc_loss(x, *(tensor(each) for each in (targets, lengths, sizes)), reduction="sum")
    ours = gradients([made], [x])[0][0].array
    assert np.abs(ours - exact).sum() <= np.abs(of_torch(torch.float32) - exact).sum()
