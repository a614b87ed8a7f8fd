"""What fresh random calls found: a line for each difference that is gone."""

from tests.parity.harness import D, T, case, edge, in_dtype, ints, mask, of, once, refuses, s, t, torch

NAN, INF = float("nan"), float("inf")
F = "nn.functional."
Z = t(3, dtype="complex128")
_BYTES = [ints([1, 2], [3, 4], dtype="uint8")] * 3
case(
    "view_dtype",
    s(t(2, 4, grad=False), D("int32")),
    s(t(2, 4, grad=False), D("uint8")),
    torch=lambda x, dtype: x.view(dtype),
    order=0,
    half=False,
)
case("full", s((2,), 1j, dtype=D("bool")), order=0)
case("sinc", in_dtype("float64", Z))
case(
    "adaptive_avg_pool2d", edge(t(1, 4, 4, values=[INF, *range(15)]), (2, 3)), torch=F + "adaptive_avg_pool2d", order=0
)
case("cosine_similarity", edge(t(3, 4, low=-0.1, high=0.1), t(3, 4), dim=-1, eps=0.5), node=False, half=False)
case("index_fill", s(t(3, 2), 0, ints(1, 1), t(low=1)), half=False)
case("index_reduce", in_dtype("bfloat16", t(2, 3, layout="F"), 0, ints(1), t(1, 3), "amin"), order=0, node=False)
case("nonzero", s(t(values=2.0, grad=False), as_tuple=True), order=0)
case(
    "masked_fill",
    in_dtype("float32", ints(1, 2), mask(True, False), 2.5),
    in_dtype("float32", ints(1, 2, dtype="uint8"), mask(True, False), -1),
)
case("block_diag", edge([t(), t(2, dtype="float32")]), torch=lambda tensors: torch.block_diag(*tensors))
case("cat", s([t(0), t(0)], dim=3), node=False, half=False)
case("mH", s(t()), torch=lambda x: x.mH, node=False)
for _name in ("elu", "celu", "selu"):
    case(_name, edge(of(NAN, 0.0, -1.0)), torch=F + _name, half=False)
case("prelu", once(of(NAN, -1.0), of(0.5)), half=False)
case("huber_loss", once(of(NAN, 0.5), of(0.0, 0.0)), torch=F + "huber_loss", half=False)
case("smooth_l1_loss", once(of(NAN, 0.5), of(0.0, 0.0)), torch=F + "smooth_l1_loss", half=False)
case("trapezoid", edge(of(1.0, -INF, -INF)), node=False, half=False, order=0)
case("linspace", s(-1.412, 0.534, 7), order=0)
case(
    "embedding_bag",
    edge(ints([0, 2], [2, 0]), t(3, 2, values=[1, 2, 3, 4, 1, 2]), mode="max"),
    torch=F + "embedding_bag",
    node=False,
    half=False,
    order=1,
)

case("check_all", s(mask(True, True), ""), torch=lambda x, message: x.clone(), order=0, node=False, half=False)
case("equal", s(t(2, values=[1, 2]), ints(1, 2)), s(mask(True), ints(1, dtype="int32")), order=0, node=False)
for _name in ("median", "nanmedian"):
    case(_name, *[in_dtype("float32", ints(dtype=one)) for one in ("int32", "uint8", "int64", "bool")], order=0)
for _name in ("softmax", "log_softmax"):
    case(_name, *[in_dtype("float32", t(2, 0, dtype=one), 0) for one in ("bool", "uint8", "int16")], order=0)
for _name in ("cummax", "cummin"):
    case(_name, edge(t(0, 3), 5), in_dtype("float64", t(0, dtype="complex64", grad=False), 0), half=False, order=0)
case("logaddexp", in_dtype("float64", Z, Z), in_dtype("float64", Z, t(3, low=-400, high=400, dtype="complex128")))
case("logcumsumexp", in_dtype("float64", t(2, 3, dtype="complex128"), 1), node=False)
case("addmm", s(*_BYTES, beta=2, alpha=-1), order=0)
case("addmv", s(ints(1, 2), ints([1, 2], [3, 4]), ints(1, 2), beta=0.5, alpha=1.5), order=0, node=False)
case("bincount", s(ints(dtype="int32"), t(0, grad=False)), order=0)
case("kthvalue", s(T((), dtype="bool", grad=False), 1), order=0, half=False)
for _kind in ("float16", "bfloat16"):
    case("linalg.det", in_dtype(_kind, t(0, 0)), in_dtype(_kind, t(0, 2, 2)), order=0, node=False)
    case("linalg.solve", in_dtype(_kind, t(0, 0, 0), t(0, 2)), order=0, node=False)
    case("linalg.cholesky", in_dtype(_kind, t(2, 0, 0)), order=0, node=False)
    case("linalg.svdvals", in_dtype(_kind, t(3, 0)), order=0, node=False)
    case("linalg.svd", in_dtype(_kind, t(0, 3)), order=0, node=False)
for _kind in ("int32", "bool", "uint8"):
    case("linalg.eigvalsh", in_dtype("float32", T((2, 0, 0), dtype=_kind, grad=False)), order=0)
    case("linalg.lu_factor", in_dtype("float32", T((0, 0), dtype=_kind, grad=False)), order=0)
    case("linalg.cond", in_dtype("float32", T((0, 2, 2), dtype=_kind, grad=False)), order=0)

REFUSALS = [
    *[
        refuses(name, IndexError, "non-zero size", t(2, 0, dtype="complex64"), 1)
        for name in ("amax", "amin", "max", "min", "median", "nanmedian", "mode")
    ],
    *[
        refuses(name, RuntimeError, "does not support automatic differentiation", t(2, dtype="complex64"), torch=where)
        for name, where in (("silu", F + "silu"), ("nan_to_num", None))
    ],
    *[
        refuses(name, RuntimeError, f"{name} does not support automatic differentiation", t(0, dtype="complex64"))
        for name in ("median", "nanmedian")
    ],
    refuses("linalg.cross", RuntimeError, "expected scalar type", t(3), t(3, dtype="float16")),
    refuses("addr", RuntimeError, "argument alpha must not be", ints([1, 2]), ints(1, 2), ints(1, 2), alpha=1.5),
    refuses("addmm", RuntimeError, "without overflow", *_BYTES, alpha=300),
    refuses("add", RuntimeError, "argument alpha must not be a complex", t(2), t(2), alpha=1j),
    refuses("ldexp", NotImplementedError, "ldexp_cpu_exp", t(2), mask(True, False)),
    refuses("mv", IndexError, "no dimensions", t(), t(3)),
    refuses("trace", NotImplementedError, "trace", mask([True])),
    refuses(
        "clamp",
        NotImplementedError,
        "not implemented for 'Bool'",
        mask(True, False),
        mask(True, False),
        mask(True, True),
    ),
    refuses("fft.fftn", IndexError, "out of range", t(5, dtype="float16"), dim=(0, 1)),
    refuses("fft.rfftn", RuntimeError, "expects a real", t(5, dtype="complex64"), dim=(0, 1)),
    refuses("cdist", RuntimeError, "only supports floating-point dtypes", ints([1], [2]), ints([1], [2])),
    *[refuses(name, TypeError, "invalid combination", 2, 3) for name in ("pow", "remainder", "xlogy", "bitwise_and")],
    *[
        refuses(name, NotImplementedError, "not implemented for 'Bool'", mask(True, False), *more)
        for name, more in (("median", ()), ("median", (0,)), ("kthvalue", (1,)), ("gcd", (mask(True, False),)))
    ],
    refuses("rsub", RuntimeError, "with a bool tensor", ints(1, 2), True),
    refuses("bitwise_left_shift", NotImplementedError, "lshift_cpu", t(2), 1),
    refuses("nextafter", NotImplementedError, "nextafter_cpu", ints(1), ints(2)),
    *[
        refuses(name, RuntimeError, "Autograd not support dtype: Int", t(2), *more, dtype=D("int32"))
        for name, more in (("sum", ()), ("prod", (0,)), ("cumsum", (0,)), ("nansum", ()))
    ],
    *[
        refuses(name, NotImplementedError, "", of(0.5, dtype="complex64"), *more, torch=F + name)
        for name, more in (
            ("relu6", ()),
            ("elu", ()),
            ("gelu", ()),
            ("hardtanh", ()),
            ("softplus", ()),
            ("threshold", (1, 2)),
            ("relu", ()),
            ("mish", ()),
            ("leaky_relu", ()),
        )
    ],
    *[
        refuses(name, NotImplementedError, "", of(0.5, dtype="complex64"))
        for name in ("erf", "erfc", "logit", "lgamma")
    ],
    refuses("index_select", RuntimeError, "can have only 1 value", t(), 0, ints(0, 0)),
    refuses("mvlgamma", RuntimeError, "may not be a boolean tensor", mask(True), 1),
    refuses("nn.functional.unfold", RuntimeError, "non-zero dimensions", t(2, 0, 3, 3), 2),
    refuses("embedding_bag", RuntimeError, "5", ints([[5]]), t(3, 2), torch=F + "embedding_bag"),
    refuses("full", RuntimeError, "without overflow", (2,), 1j, dtype=D("float32")),
]
