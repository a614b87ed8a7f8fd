"""Factories with one right answer; what is drawn at random is in test_random.py."""

from typing import Any

from tests.parity.harness import D, case, of, refuses, s, t


def factory(*samples: Any, name: str, **options: Any) -> None:
    """A case without derivatives, once in a dtype."""
    case(name, *samples, order=0, half=False, **options)


for _name in ("zeros", "ones"):
    factory(
        s((2, 3)),
        s(()),
        s(3),
        s((0, 2)),
        s((2,), dtype=D("int64")),
        s((2,), requires_grad=True),
        s((2,), dtype=D("bool")),
        name=_name,
    )
    factory(s(t(2, 3)), s(t(), dtype=D("int32")), s(t(2), requires_grad=True), name=f"{_name}_like")
    factory(
        s(t(2), (3, 1)), s(t(2), (), dtype=D("float16")), s(t(2), 3), name=f"new_{_name}", torch=f"Tensor.new_{_name}"
    )
factory(
    s((2, 3), 2),
    s((2,), 2.5),
    s((2,), True),
    s((), 1j),
    s((2,), 3, dtype=D("float64")),
    s((2,), 1.0, requires_grad=True),
    name="full",
)
factory(s(t(2, 3), 2.5), s(t(2), 7, dtype=D("int64")), name="full_like")
factory(s(t(2), (3,), 2.5), name="new_full", torch="Tensor.new_full")
factory(s(3), s(2, 3), s(0), s(3, 2, dtype=D("int64")), name="eye")
factory(
    s(5), s(2, 5), s(0, 1, 0.1), s(5, 0, -2), s(1.0), s(0, 0), s(5, dtype=D("float32")),
    s(0, 1, 0.25, dtype=D("float64")), s(0.5, 3, dtype=D("int64")),
    s(3, requires_grad=True, dtype=D("float32")), s(1, 2.5, 0.5), s(0, 7, 3), name="arange",
)  # fmt: skip
factory(
    s(0, 1, 5),
    s(-2.0, 2.0, 7),
    s(1, 2, 1),
    s(1, 2, 0),
    s(0, 1, 4, dtype=D("float64")),
    s(0, 10, 4, dtype=D("int64")),
    name="linspace",
)
factory(s(0, 2, 5), s(0, 3, 4, 2.0), name="logspace")
factory(s(2.5), s(3, dtype=D("int64")), name="scalar_tensor")
factory(s(3, 4), s(3, 3, 1), s(3, 4, -1), name="tril_indices")
factory(s(3, 4), s(3, 3, 1), s(3, 4, -1), name="triu_indices")

NEGATIVE = "Trying to create tensor with negative dimension"
REFUSALS = [
    refuses("zeros", RuntimeError, "Dimension size must be non-negative", (2, -3)),
    refuses("ones", RuntimeError, NEGATIVE, (-1,)),
    refuses("rand", RuntimeError, NEGATIVE, (-1,)),
    refuses("full", RuntimeError, NEGATIVE, (-1,), 2.0),
    refuses(
        "zeros",
        RuntimeError,
        "Only Tensors of floating point and complex dtype can require gradients",
        (2,),
        dtype=D("int64"),
        requires_grad=True,
    ),
    refuses("eye", RuntimeError, "n must be greater or equal to 0", -1),
    refuses("arange", RuntimeError, "step must be nonzero", 0, 5, 0),
    refuses("arange", RuntimeError, "upper bound and lower bound inconsistent with step sign", 5, 0, 1),
    refuses("linspace", RuntimeError, "number of steps must be non-negative", 0, 1, -1),
    refuses("randint", RuntimeError, "random_ expects 'from' to be less than 'to'", 5, 5, (2,)),
    refuses("bernoulli", RuntimeError, "Expected p_in >= 0 && p_in <= 1", of(1.5, 0.5)),
    refuses(
        "multinomial",
        RuntimeError,
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
        of(0.5, 0.5),
        3,
    ),
    refuses(
        "multinomial", RuntimeError, "probability tensor contains either `inf`, `nan` or element < 0", of(0.5, -0.5), 1
    ),
    refuses(
        "multinomial", RuntimeError, "invalid multinomial distribution (sum of probabilities <= 0)", of(0.0, 0.0), 1
    ),
    refuses("normal_", RuntimeError, "normal expects std >= 0.0", t(2, grad=False), 0.0, -1.0),
]
_DRAWN = """
    bernoulli bernoulli_ binomial cauchy exponential geometric log_normal multinomial normal normal_ poisson rand
    rand_like randint randint_like randn randn_like randperm random sample_dirichlet standard_gamma uniform
"""
EXCEPTIONS = {
    **dict.fromkeys(_DRAWN.split(), "drawn at random: tests/parity/test_random.py"),
    **dict.fromkeys(
        ("dirichlet_grad", "standard_gamma_grad"), "PyTorch approximates them: tests/engine/ops/random/test_gammas.py"
    ),
    **dict.fromkeys(("empty", "empty_like", "new_empty"), "promises no values to compare"),
}
