"""autocast: what ops compute in inside a region, on random inputs, beside PyTorch's."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import gradwire
import gradwire_engine  # noqa: F401 fills the registry
from gradwire.amp import _precision
from gradwire_engine.op.signature import REGISTRY
from tests.client.oracle import agree, refuse, torch, warn

pytestmark = pytest.mark.usefixtures("deferring")
RANDOM = np.random.default_rng()
A, B = RANDOM.standard_normal((2, 3, 4, 4)).astype(np.float32)
IMAGE, KERNEL = [RANDOM.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 6, 6), (4, 3, 3, 3))]

PRODUCTS: dict[str, Callable[..., Any]] = {
    "bmm": lambda t, a, b: t.bmm(a, b),
    "mm": lambda t, a, b: t.mm(a[0], b[0]),
    "matmul": lambda t, a, b: a @ b,
    "addmm": lambda t, a, b: t.addmm(a[0], a[1], b[1]),
    "baddbmm": lambda t, a, b: t.baddbmm(a, a, b),
    "linear": lambda t, a, b: t.nn.functional.linear(a, b[0], b[1, 0]),
    "einsum": lambda t, a, b: t.einsum("bij,bjk->bik", a, b),
    "inner": lambda t, a, b: t.inner(a[0], b[0]),
    "tensordot": lambda t, a, b: t.tensordot(a, b, dims=([2], [1])),
    "multi_dot": lambda t, a, b: t.linalg.multi_dot([a[0], b[0], a[1]]),
    "attention": lambda t, a, b: t.nn.functional.scaled_dot_product_attention(a, b, a),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "vectors": lambda t, a, b: (t.dot(a[0, 0], b[0, 0]), t.mv(a[0], b[0, 0]), t.inner(a[0, 0], b[0, 0])),
    "sums of both dtypes": lambda t, a, b: (a.bfloat16() + b, t.exp(a.bfloat16()), t.softmax(a.bfloat16(), -1)),
    "joined": lambda t, a, b: (t.cat([a, b.bfloat16()]), t.stack([a.bfloat16(), b.bfloat16()])),
    "losses": lambda t, a, b: (
        t.nn.functional.mse_loss(a.bfloat16(), b.bfloat16()),
        t.nn.functional.cross_entropy(a[0].bfloat16(), t.tensor([0, 1, 2, 3])),
    ),
    "decompositions": lambda t, a, b: (t.linalg.inv(a.bfloat16()), t.trace(a[0].bfloat16()), a.bfloat16().prod(0)),
    "float64": lambda t, a, b: t.mm(a[0].double(), b[0].double()),
    "float16": lambda t, a, b: t.mm(a[0].half(), b[0].half()),
    "inner of a matrix": lambda t, a, b: (t.inner(a[0], b[0, 0]), t.inner(a[0, 0], b[0]), t.inner(a[0], b[0, 0, 0])),
    "powers": lambda t, a, b: tuple(t.linalg.matrix_power(a + 4 * t.eye(4), n) for n in (0, 1, 2, -1, -2)),
    "whole contractions": lambda t, a, b: (t.tensordot(a[0], b[0], 2), t.tensordot(a[0], b[0], ([0], [1]))),
    "labels without a sum": lambda t, a, b: (
        t.einsum("ij->ji", a[0]),
        t.einsum("ij,ij->ij", a[0], b[0]),
        t.einsum("ij,kl->", a[0], b[0]),
        t.einsum("...j,...j->...", a, b),
        t.einsum("ij,ij->i", a[0, :, :1], b[0, :, :1]),
    ),
    "several contractions": lambda t, a, b: (
        t.einsum("ij,jk,ik->ik", a[0], b[0], a[1]),
        t.einsum("ij,ij,jk->ik", a[0], b[0], a[1]),
        t.einsum("ij,jk,ik->ik", a[0].bfloat16(), b[0], a[1].bfloat16()),
        t.einsum("ij,jk,ik->ik", a[0], b[0].bfloat16(), a[1]),
        t.einsum("ij,k,jk,i->i", a[0], b[0, 0], a[1], b[0, 1]),
        t.einsum("ij,kj", a[0], b[0]),
    ),
    "covariances": lambda t, a, b: (t.cov(1000 + a[0]), t.corrcoef(1000 + a[0]), t.cov(a[0].double())),
    "reflections": lambda t, a, b: (t.ormqr(a[0], b[0, 0], b[1]), t.ormqr(a[0], b[0, 0], b[1].bfloat16())),
    "images": lambda t, a, b: (
        t.nn.functional.interpolate(a[None], size=(3, 3), mode="bilinear", antialias=True),
        t.nn.functional.interpolate(a[None, None].bfloat16(), size=(1, 2, 2), mode="area"),
        t.nn.functional.interpolate(a[None].bfloat16(), size=(2, 2), mode="area"),
    ),
    "padding": lambda t, a, b: t.nn.functional.pad(a.bfloat16(), (1, 1), mode="reflect"),
}


def _near(function: Callable[[Any], Any]) -> None:
    """Both answer with the same dtypes, and with values that differ by as much as bfloat16's last digits."""
    expected = function(torch)
    for _ in range(2):
        found = function(gradwire)
        given = zip(*[each if isinstance(each, tuple) else (each,) for each in (found, expected)], strict=True)
        for one, other in given:
            assert str(one.dtype).rpartition(".")[2] == str(other.dtype).rpartition(".")[2]
            ours, theirs = [np.array(each.detach().double().tolist()) for each in (one, other)]
            np.testing.assert_allclose(ours, theirs, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("name", [*PRODUCTS, *OTHERS])
def test_ops_compute_in_pytorchs_dtypes(name: str) -> None:
    def program(t: Any) -> Any:
        a, b = t.tensor(A), t.tensor(B)
        with t.autocast("cpu", dtype=t.bfloat16):
            return {**PRODUCTS, **OTHERS}[name](t, a, b)

    _near(program)


def test_convolutions_and_layers() -> None:
    def program(t: Any) -> Any:
        image, kernel = t.tensor(IMAGE), t.tensor(KERNEL)
        with t.autocast("cpu"):
            made = t.nn.functional.conv2d(image, kernel)
            pooled = t.nn.functional.max_pool2d(made, 2).relu()
            return made, pooled, t.nn.functional.layer_norm(pooled, pooled.shape[1:])

    _near(program)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recurrent_layers_take_what_products_made(kind: str, dtype: str) -> None:
    if kind == "LSTM" and "AVX512" not in torch.backends.cpu.get_cpu_capability():
        pytest.skip("without AVX-512 PyTorch's LSTM of bfloat16 takes another way, whose dtypes differ")

    def program(t: Any) -> Any:
        layer = getattr(t.nn, kind)(4, 3, 2)
        with t.no_grad():
            for place, weight in enumerate(layer.parameters()):
                weight.copy_(t.arange(weight.numel()).reshape(weight.shape).sin() / (1 + place))
        first = t.zeros(2, 4, 3)
        state = (first, first) if kind == "LSTM" else first
        given = t.tensor(A).to(getattr(t, dtype))
        with t.autocast("cpu"):
            made, alone = layer(given, state)[0], layer(given)[0]
        (made.float() + alone.float()).sum().backward()
        return made, alone, *[weight.grad for weight in layer.parameters()]

    _near(program)


@pytest.mark.parametrize("caches", [True, False])
def test_gradients_of_weights_are_float32_and_a_weight_is_cast_once(caches: bool) -> None:
    def program(t: Any) -> Any:
        a, weight = t.tensor(A[0]), t.tensor(B[0], requires_grad=True)
        with t.autocast("cpu", cache_enabled=caches):
            made = t.mm(t.mm(a, weight), weight)
            (first, _), (second, _) = t.mm(weight, weight).grad_fn.next_functions
            t.nn.functional.mse_loss(made, a).backward()
        return made, weight.grad, t.tensor(first == second)

    _near(program)


def test_regions_nest_and_tell_their_state() -> None:
    def program(t: Any) -> Any:
        a = t.tensor(A[0])
        told: list[Any] = []

        def tell() -> None:
            told.append(
                (t.is_autocast_enabled("cpu"), t.is_autocast_enabled(), str(t.mm(a, a).dtype).rpartition(".")[2])
            )

        tell()
        with t.autocast("cpu"):
            tell()
            with t.autocast("cpu", enabled=False):
                tell()
            with t.autocast("cpu", dtype=t.float16):
                tell()
                told.append(str(t.get_autocast_dtype("cpu")).rpartition(".")[2])
                with t.autocast("cpu"):
                    tell()
                with t.autocast("cpu", enabled=False):
                    told.append(str(t.get_autocast_dtype("cpu")).rpartition(".")[2])
                    with t.autocast("cpu"):
                        tell()
            with t.autocast("cpu", dtype=t.float16, enabled=False):
                told.append(str(t.get_autocast_dtype("cpu")).rpartition(".")[2])
        t.autocast("cpu")(tell)()
        tell()
        return told

    agree(program)


def test_a_checkpoint_is_computed_again_in_its_region() -> None:
    def program(t: Any) -> Any:
        a, weight, seen = t.tensor(A[0]), t.tensor(B[0], requires_grad=True), []

        def part(x: Any) -> Any:
            made = t.mm(x, weight)
            seen.append(str(made.dtype).rpartition(".")[2])
            return made.tanh().sin()

        with t.autocast("cpu"):
            made = import_module(f"{t.__name__}.utils.checkpoint").checkpoint(part, a, use_reentrant=False)
        made.float().sum().backward()
        assert seen == ["bfloat16", "bfloat16"]
        return weight.grad

    _near(program)


def test_a_compiled_function_knows_its_region(session: gradwire.Session) -> None:
    with session:
        a = gradwire.tensor(A[0])
        product = gradwire.compile(lambda x: gradwire.mm(x, x))
        for _ in range(2):
            assert product(a).dtype is gradwire.float32
            with gradwire.autocast("cpu"):
                assert product(a).dtype is gradwire.bfloat16


def test_a_compiled_function_casts_weights_itself(session: gradwire.Session) -> None:
    with session:
        a, weight = gradwire.tensor(A[0]), gradwire.eye(4, requires_grad=True)
        product = gradwire.compile(lambda x: x @ weight)
        for step in range(5):
            with gradwire.autocast("cpu"):
                before = a @ weight if step % 2 else product(a)
                found = product(a)
            assert found.tolist() == before.tolist() == (a.bfloat16().float() * (step + 1)).bfloat16().tolist()
            weight.grad = None
            (before.float() + found.float()).sum().backward()
            assert weight.grad is not None
            wanted = np.broadcast_to(2 * A[0].sum(0)[:, None], (4, 4))
            np.testing.assert_allclose(weight.grad.tolist(), wanted, rtol=0.05, atol=0.1)
            with gradwire.no_grad():
                weight += gradwire.eye(4)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_checkpoint_shares_no_casts_of_weights(order: int) -> None:
    def program(t: Any) -> Any:
        weight, x = t.tensor(B[0], requires_grad=True), t.tensor(A[0], requires_grad=True)
        checkpoint = import_module(f"{t.__name__}.utils.checkpoint").checkpoint

        def part(x: Any) -> Any:
            return (x @ weight).sin()

        with t.autocast("cpu"):
            first = x @ weight if order == 0 else checkpoint(part, x, use_reentrant=False)
            second = x @ weight if order == 1 else checkpoint(part, x, use_reentrant=False)
        (first.float().sum() + second.float().sum()).backward()
        return weight.grad, x.grad

    _near(program)


def test_functions_of_ones_own_run_in_the_region_of_their_forward() -> None:
    def program(t: Any) -> Any:
        seen: list[Any] = []

        class Product(t.autograd.Function):  # type: ignore[misc]
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                ctx.save_for_backward(x, y)
                return x.mm(y)

            @staticmethod
            @t.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
            def backward(ctx: Any, gradient: Any) -> Any:
                x, y = ctx.saved_tensors
                made = gradient.mm(y.t()), x.t().mm(gradient)
                seen.extend(str(each.dtype).rpartition(".")[2] for each in made)
                return made

        class Exact(t.autograd.Function):  # type: ignore[misc]
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)  # type: ignore[untyped-decorator]
            def forward(ctx: Any, x: Any) -> Any:
                seen.extend([str(x.dtype).rpartition(".")[2], t.is_autocast_enabled("cpu")])
                return x.mm(x)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient

        x, y = t.tensor(A[0], requires_grad=True), t.tensor(B[0], requires_grad=True)
        with t.autocast("cpu"):
            made = Product.apply(x, y)
            Exact.apply(made)
        made.float().sum().backward()
        return seen

    agree(program)


def test_rms_norm_has_its_inputs_dtype_and_rounds_once() -> None:
    def program(t: Any) -> Any:
        x, weight = t.tensor(A[0]), t.tensor(B[0, 0], requires_grad=True)
        halves = [
            t.nn.functional.rms_norm(x.to(one), (4,), weight.to(other))
            for one in (t.bfloat16, t.float16, t.float32)
            for other in (t.bfloat16, t.float16, t.float32, t.float64)
        ]
        sum(each.double().sum() for each in halves).backward()
        return halves[:3], [str(each.dtype).rpartition(".")[2] for each in halves], weight.grad.dtype == t.float32

    warnings.simplefilter("ignore")  # PyTorch's, of dtypes that differ
    agree(program)


def test_dtypes_and_devices_that_cannot_be_cast_to() -> None:
    warn(lambda t: t.autocast("cpu", dtype=t.float32), "target dtype is not supported. Disabling autocast")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not gradwire.is_autocast_enabled()
    refuse(lambda t: t.autocast(3), ValueError, "Expected `device_type` of type `str`")
    refuse(lambda t: t.autocast("cpux"), RuntimeError, "device")


def test_the_table_names_ops_that_exist() -> None:
    known = set(REGISTRY)
    for table in (_precision.LOW, _precision.HIGH, _precision.WIDEST):
        for kind in ("cpu", "cuda"):
            assert table[kind] <= known, table[kind] - known
    assert known >= _precision.WITH_DTYPE
