"""Activations, softmax, dropout's deterministic cases."""

import math

from tests.parity.harness import case, edge, in_dtype, of, once, refuses, s, t, unary

INF, NAN = math.inf, math.nan
EDGES = (0.0, -0.0, 3.0, -3.0, 6.0, 0.5, -0.5, 1.0, -1.0, 20.0, 21.0, 100.0, -100.0)


def active(*, infinite: bool = True, **kwargs: object) -> list:
    """Ordinary samples, the corners, what is infinite or nan, and more than one block of a vector loop.

    The derivative at nan is left out: PyTorch's own differs between its vector loop and its remainder.
    """
    more = [once(of(INF, -INF), **kwargs)] if infinite else []
    return [
        *unary(-4.0, 4.0, *EDGES, **kwargs),
        edge(of(NAN, grad=False), **kwargs),
        once(t(3, 40, 6, 50), **kwargs),
        *more,
    ]


case("relu", active(), in_dtype("float32", t(4, dtype="int64", grad=False)))
case("relu6", active(), torch="nn.functional.relu6")
case("leaky_relu", active(), s(t(3, 4), 0.3), s(t(3, 4), -0.3), s(t(3, 4), 2.0), torch="nn.functional.leaky_relu")
case("elu", active(), s(t(3, 4), 0.5), s(t(3, 4), -0.7), torch="nn.functional.elu")
case("celu", active(), s(t(3, 4), 0.5), s(t(3, 4), -0.5), torch="nn.functional.celu")
case("selu", active(), torch="nn.functional.selu")
case(
    "gelu", active(infinite=False), active(approximate="tanh", infinite=False), torch="nn.functional.gelu", tolerance=2
)
case("silu", active(), torch="nn.functional.silu")
# PyTorch's second derivative is nan from 89 on in float32.
case("mish", unary(-4.0, 4.0, 0.0, 20.0, 21.0, -21.0), once(of(INF, 100.0, -100.0)), torch="nn.functional.mish")
case("hardtanh", active(), s(t(3, 4), -0.5, 0.25), torch="nn.functional.hardtanh")
# PyTorch has no second derivative of it, and rounds 1/6 to float32.
case("hardsigmoid", active(), torch="nn.functional.hardsigmoid", order=1, tolerance=100)
case("hardswish", active(), torch="nn.functional.hardswish")
case("hardshrink", active(), s(t(3, 4), 0.2), torch="nn.functional.hardshrink")
case("softshrink", active(), s(t(3, 4), 0.2), torch="nn.functional.softshrink")
case("softplus", active(), s(t(3, 4), 2.0, 1.0), torch="nn.functional.softplus")
case("softsign", active())
case("tanhshrink", active())
case("logsigmoid", active())
case("threshold", s(t(3, 4), 0.1, 7.0), edge(of(0.1, INF), 0.1, 7.0), torch="nn.functional.threshold")
case("glu", s(t(4, 6)), s(t(4, 6), 0), s(t(2, 4, 3), 1), s(t(6)))
case("prelu", s(t(4, 6), t(6)), s(t(2, 3, 4), t(3)), s(t(2, 3), t(1)), s(t(5), t(1)), s(t(), t(1)))

SOFT = [
    s(t(4, 6), 1),
    s(t(4, 6), -1),
    s(t(4, 6), 0),
    s(t(3, 4, 5), 1),
    s(t(3, 4, 5), 2),
    s(t(5), 0),
    s(t(), 0),
    s(t(4, 100), 1),
    s(t(3, 1), 1),
    edge(t(0, 3), 1),
    s(t(4, 3, layout="F"), 1),
    once(of([[INF, 1, 2], [-INF, 1, 2], [1000, 1, -1000]]), 1),
]
case("softmax", SOFT, torch="softmax")
case("log_softmax", SOFT, torch="log_softmax")
case("softmin", SOFT)

REFUSALS = [
    refuses("relu", RuntimeError, "Boolean inputs not supported for relu", t(3, dtype="bool", grad=False)),
    refuses(
        "gelu", NotImplementedError, "\"GeluKernelImpl\" not implemented for 'Long'", t(3, dtype="int64", grad=False)
    ),
    refuses("gelu", RuntimeError, "approximate argument must be either none or tanh", t(3), approximate="x"),
    refuses("elu", NotImplementedError, "not implemented for 'Long'", t(3, dtype="int64", grad=False)),
    refuses("glu", RuntimeError, "Halving dimension must be even, but dimension 0 is size 3", t(3)),
    refuses("hardtanh", ValueError, "min_val cannot be greater than max_val", t(3), 2.0, 1.0),
    refuses("prelu", RuntimeError, "Mismatch of parameter numbers and input channel size", t(3, 4), t(3)),
    refuses("softshrink", RuntimeError, "lambda must be in range [0, ", t(3), -1.0),
    refuses(
        "softmax",
        NotImplementedError,
        "\"softmax_lastdim_kernel_impl\" not implemented for 'Long'",
        t(3, dtype="int64", grad=False),
        0,
    ),
    refuses("softmax", IndexError, "Dimension out of range (expected to be in range of [-1, 0], but got 1)", t(3), 1),
    refuses(
        "dropout",
        ValueError,
        "dropout probability has to be between 0 and 1, but got 2.0",
        t(3),
        2.0,
        torch="nn.functional.dropout",
    ),
]
