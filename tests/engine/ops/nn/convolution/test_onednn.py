"""Convolutions by oneDNN: against PyTorch and NumPy, in parts and threads, in forks, and without the library."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Account, Context, EngineError, Reason, activate, backward, call, tensor
from gradwire_engine.backends import onednn as bindings
from gradwire_engine.backends.onednn import library
from gradwire_engine.core.threads import POOL, Pool
from gradwire_engine.ops.nn.convolution import onednn, parts
from gradwire_engine.ops.nn.convolution.primitives import convolution, convolution_transpose, convolution_weight

Arrays = list[np.ndarray[Any, Any]]
needs_library = pytest.mark.skipif(library() is None, reason="needs oneDNN: pip install gradwire[onednn]")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of convolutions that oneDNN computed."""
    kinds: list[str] = []
    plain = onednn.Convolution.__call__

    def noted(self: onednn.Convolution, *args: Any, **named: Any) -> Any:
        kinds.append(self.kind)
        return plain(self, *args, **named)

    monkeypatch.setattr(onednn.Convolution, "__call__", noted)
    return kinds


@pytest.fixture(params=["images", "channels"])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Small convolutions are divided too, by images or by channels."""
    if request.param == "images":
        monkeypatch.setattr(parts, "_PART", 50)
    else:
        for name, value in (
            ("_PART", 1e12),
            ("_PART_OF_CHANNELS", 50),
            ("_REPEATED", 1e9),
            ("_CHANNELS", 1),
            ("_GROUPS", 1),
        ):
            monkeypatch.setattr(parts, name, value)
    onednn._convolution.cache_clear()
    yield request.param
    onednn._convolution.cache_clear()


class Drawn:
    """A convolution with random shapes and arguments."""

    def __init__(self, seed: int, dtype: str = "float32") -> None:
        rng = np.random.default_rng(seed)
        self.spatial = int(rng.integers(1, 4))

        def ints(low: int, high: int) -> tuple[int, ...]:
            return tuple(int(n) for n in rng.integers(low, high, self.spatial))

        self.groups = int(rng.choice([1, 1, 1, 2, 3, 8]))
        given, made = (int(rng.choice([1, 2, 5, 8, 16])) for _ in range(2))
        if self.groups == 8:
            given = 1  # depthwise, also with a multiplier
            made = int(rng.integers(1, 3))
        self.kernel, self.stride, self.dilation = ints(1, 4), ints(1, 4), ints(1, 3)
        reach = [gap * (k - 1) for gap, k in zip(self.dilation, self.kernel, strict=True)]
        self.padding = tuple(int(rng.integers(0, far + 2)) for far in reach)
        size = tuple(far + n for far, n in zip(reach, ints(1, 8), strict=True))
        self.x = rng.standard_normal((int(rng.integers(1, 6)), given * self.groups, *size)).astype(dtype)
        self.w = rng.standard_normal((made * self.groups, given, *self.kernel)).astype(dtype)
        self.bias = rng.standard_normal(made * self.groups).astype(dtype) if rng.random() < 0.5 else None
        self.arguments = (self.stride, self.padding, self.dilation, self.groups)

    def all_passes(self, x: Any = None, w: Any = None, bias: Any = None, g: Any = None) -> Arrays:
        """Output and gradients of input and weight."""
        x, w = self.x if x is None else x, self.w if w is None else w
        y = convolution(x, w, self.bias if bias is None else bias, *self.arguments)
        g = np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype) if g is None else g
        return [
            y,
            convolution_transpose(g, w, None, *self.arguments, x.shape[2:]),
            convolution_weight(x, g, *self.arguments, w.shape[2:]),
        ]


def agree(found: Arrays, expected: Arrays) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        scale = float(np.abs(other).max(initial=1))
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * scale)


@needs_library
@pytest.mark.parametrize("seed", range(60))
def test_random_convolutions_equal_pytorch(seed: int, small_parts: str) -> None:
    torch = pytest.importorskip("torch")
    drawn = Drawn(seed)
    found = drawn.all_passes()
    x, w = (torch.tensor(each, requires_grad=True) for each in (drawn.x, drawn.w))
    bias = None if drawn.bias is None else torch.tensor(drawn.bias)
    stride, padding, dilation, groups = drawn.arguments
    y = torch.convolution(x, w, bias, stride, padding, dilation, False, [0] * drawn.spatial, groups)
    y.backward(torch.tensor(np.cos(np.arange(y.numel())).reshape(y.shape).astype(np.float32)))
    agree(found, [y.detach().numpy(), x.grad.numpy(), w.grad.numpy()])


@needs_library
def test_most_random_convolutions_run_in_onednn(used: list[str]) -> None:
    for seed in range(60):
        Drawn(seed).all_passes()
    assert {kind: used.count(kind) > 40 for kind in used} == {"forward": True, "source": True, "weights": True}


@needs_library
@pytest.mark.parametrize("seed", range(12))
def test_second_derivatives_equal_those_in_double_precision(seed: int, small_parts: str, used: list[str]) -> None:
    def second(dtype: str) -> list[Any]:
        drawn = Drawn(seed, dtype)
        given = [tensor(each.copy(), True) for each in (drawn.x, drawn.w)]
        y = call(f"conv{drawn.spatial}d", (*given, None, *drawn.arguments))
        loss = call("sum", (y * y * y,))
        backward([loss], create_graph=True)
        first = [each.grad for each in given]
        for each in given:
            each.grad = None
        backward([call("sum", (one * one,)) for one in first])
        return [each.grad.array for each in given]

    found, expected = second("float32"), second("float64")
    assert len(used) >= 8 or np.prod(Drawn(seed).kernel) == 1
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * float(np.abs(other).max()))


@needs_library
@pytest.mark.parametrize("transposed", ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"])
@pytest.mark.parametrize("more", [0, 1])
def test_transposed_convolutions_equal_pytorch(transposed: str, more: int, used: list[str]) -> None:
    torch = pytest.importorskip("torch")
    spatial, rng = int(transposed[-2]), np.random.default_rng(1)
    shapes = ((3, 8, *(5,) * spatial), (8, 3, *(3,) * spatial), (6,))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    ours, theirs = [tensor(each, True) for each in arrays], [torch.tensor(each, requires_grad=True) for each in arrays]
    made = call(transposed, (*ours, 2, 1, more, 2, 1))
    backward([call("sum", (made * made,))])
    wanted = getattr(torch.nn.functional, transposed)(*theirs, 2, 1, more, 2, 1)
    (wanted * wanted).sum().backward()
    agree(
        [made.array, *[each.grad.array for each in ours]],  # type: ignore[union-attr]
        [wanted.detach().numpy(), *[each.grad.numpy() for each in theirs]],
    )
    assert set(used) == {"forward", "source", "weights"}


@needs_library
def test_any_number_of_threads_computes_the_same_bits(small_parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    each = Pool.each

    def noted(self: Pool, job: Any, count: int) -> None:
        counts.append(count)
        each(self, job, count)

    monkeypatch.setattr(Pool, "each", noted)
    for seed in range(12):
        drawn = Drawn(seed)
        monkeypatch.setattr(POOL, "threads", 1)
        expected = [one.tobytes() for one in drawn.all_passes()]
        for threads in (2, 3, 8):
            monkeypatch.setattr(POOL, "threads", threads)
            assert [one.tobytes() for one in drawn.all_passes()] == expected
    assert min(counts) > 1
    assert len(counts) > 40


@needs_library
def test_operands_in_any_memory_order_are_read_alike(used: list[str]) -> None:
    drawn = Drawn(3)
    expected = drawn.all_passes(g=np.ones_like(drawn.all_passes()[0]))
    x = np.ascontiguousarray(np.moveaxis(drawn.x, 1, -1))
    w = np.asfortranarray(drawn.w)
    g = np.broadcast_to(np.float32(1), expected[0].shape)
    used.clear()
    agree(drawn.all_passes(np.moveaxis(x, -1, 1), w, g=g), expected)
    assert used == ["forward", "source", "weights"]


@needs_library
@pytest.mark.parametrize(("images", "channels", "made"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_sizes_of_zero_are_left_to_numpy(images: int, channels: int, made: int, used: list[str]) -> None:
    x, w = np.ones((images, channels, 5, 5), np.float32), np.ones((made, channels, 3, 3), np.float32)
    y = convolution.compute((x, w, None, (1, 1), (0, 0), (1, 1), 1))
    assert y.shape == (images, made, 3, 3)
    assert not y.any()
    assert not used


@needs_library
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_other_dtypes_are_left_to_numpy(dtype: str, used: list[str]) -> None:
    assert Drawn(0, dtype).all_passes()[0].dtype == dtype
    assert not used


@needs_library
def test_half_types_are_computed_in_float32(used: list[str]) -> None:
    drawn = Drawn(3, "float16")
    assert [each.dtype for each in drawn.all_passes()] == ["float16"] * 3
    assert used == ["forward", "source", "weights"]


@needs_library
def test_one_kernel_element_and_wide_products_are_left_to_numpy(used: list[str]) -> None:
    x = np.ones((2, 8, 6, 6), np.float32)
    convolution(x, np.ones((8, 8, 1, 1), np.float32), None, (1, 1), (0, 0), (1, 1), 1)
    wide = np.ones((1, 32, 48, 48), np.float32)
    convolution_transpose(wide, np.ones((32, 3, 5, 5), np.float32), None, (1, 1), (2, 2), (1, 1), 1, (48, 48))
    assert not used


@needs_library
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"),
    [((28, 28), (7, 7), (1, 1), (3, 3)), ((30, 41), (3, 5), (2, 1), (0, 1)), ((33, 20), (4, 8), (1, 2), (2, 0))],
)
def test_the_gradient_of_a_wide_depthwise_kernel_is_computed_by_columns(
    size: Any, kernel: Any, stride: Any, padding: Any, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 64, *size), (64, 1, *kernel)))
    arguments = (stride, padding, (1, 1), 64)
    g = rng.standard_normal(convolution(x, w, None, *arguments).shape).astype(np.float32)
    monkeypatch.setattr(onednn, "_LARGE", 1 << 17)
    onednn._convolution.cache_clear()
    used.clear()
    found = convolution_weight(x, g, *arguments, kernel)
    assert set(used) == {"weights"}
    monkeypatch.setattr(onednn, "library", lambda: None)
    agree([found], [convolution_weight(x, g, *arguments, kernel)])
    onednn._convolution.cache_clear()


@needs_library
def test_a_fork_computes_the_same_bits_after_its_parent(small_parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "threads", 2)
    drawn = Drawn(5)
    expected = b"".join(each.tobytes() for each in drawn.all_passes())
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as end:
                end.write(b"".join(each.tobytes() for each in drawn.all_passes()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as begin:
        assert begin.read() == expected
    os.waitpid(child, 0)


@needs_library
def test_temporary_memory_is_admitted_before_it_is_allocated() -> None:
    x, w = np.ones((4, 64, 40, 40), np.float32), np.ones((64, 64, 3, 3), np.float32)
    arguments = (x, w, None, (1, 1), (1, 1), (1, 1), 1)
    with activate(Context(account=Account(limit=4 * x.nbytes))):
        convolution.compute(arguments)
    with activate(Context(account=Account(limit=x.nbytes + w.nbytes))), pytest.raises(EngineError) as error:
        convolution.compute(arguments)
    assert error.value.reason is Reason.MEMORY_LIMIT


@needs_library
def test_a_bounded_number_of_primitives_is_kept() -> None:
    w = np.ones((1, 1, 2), np.float32)
    for length in range(2, 2 + onednn._CACHED + 10):
        convolution(np.ones((1, 1, length), np.float32), w, None, (1,), (0,), (1,), 1)
    assert onednn._convolution.cache_info().currsize == onednn._CACHED


@needs_library
def test_weights_of_infinity_and_nan_reach_what_they_touch() -> None:
    x, w = np.ones((1, 8, 6, 6), np.float32), np.ones((8, 8, 3, 3), np.float32)
    w[2, 0, 1, 1], w[3, 0, 1, 1] = np.inf, np.nan
    made = convolution(x, w, None, (1, 1), (1, 1), (1, 1), 1)
    assert np.isposinf(made[:, 2]).all()
    assert np.isnan(made[:, 3]).all()
    assert np.isfinite(made[:, [0, 1, 4, 5, 6, 7]]).all()


@pytest.mark.parametrize("seed", range(8))
def test_without_the_library_numpy_computes_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(seed)
    found = drawn.all_passes()
    monkeypatch.setattr(onednn, "library", lambda: None)
    agree(drawn.all_passes(), found)


def test_a_library_that_cannot_be_loaded_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "libdnnl.so.3"
    monkeypatch.setattr(bindings, "_path", lambda: path)
    with caplog.at_level(logging.WARNING, "gradwire.engine"):
        assert bindings._loaded.__wrapped__() is None
    assert "oneDNN is installed, but cannot be loaded" in caplog.text
    path.symlink_to(next(iter(_libraries())))
    caplog.clear()
    assert bindings._loaded.__wrapped__() is None
    assert "is not oneDNN" in caplog.text


def _libraries() -> Iterator[str]:
    """Shared libraries that Python has loaded, which are not oneDNN."""
    with open("/proc/self/maps") as maps:
        yield from sorted({line.split()[-1] for line in maps if "libc.so" in line})


@needs_library
def test_a_library_that_loads_beside_other_threads_is_the_one_that_python_loads() -> None:
    path = bindings._path()
    assert path is not None
    assert bindings._opened(str(path))._handle == ctypes.CDLL(str(path))._handle
    with pytest.raises(OSError, match="no_such_library"):
        bindings._opened("/no_such_library.so")


def test_a_library_is_found_beside_pythons_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme: str(tmp_path / scheme))
    assert bindings._path() is None
    assert bindings.installed() is None
    assert bindings._loaded.__wrapped__() is None
    found = tmp_path / sysconfig.get_default_scheme() / "lib" / "libdnnl.so.3"
    found.parent.mkdir(parents=True)
    found.touch()
    assert bindings._path() == found


def test_nothing_is_loaded_before_the_first_convolution() -> None:
    code = (
        "import numpy as np, gradwire_engine as engine\n"
        "from gradwire_engine.backends.onednn import _loaded\n"
        "assert not _loaded.cache_info().currsize\n"
        "engine.call('conv2d', (engine.tensor(np.ones((1, 1, 3, 3))), engine.tensor(np.ones((1, 1, 2, 2)))))\n"
        "assert not _loaded.cache_info().currsize\n"
        "x, w = (engine.tensor(np.ones((1, 1, n, n), np.float32)) for n in (3, 2))\n"
        "assert engine.call('conv2d', (x, w)).array.sum() == 16\n"
        "assert _loaded.cache_info().currsize\n"
    )
    path = os.pathsep.join(each for each in sys.path if each)
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.parametrize(
    ("kind", "source", "weight", "result", "groups", "by", "count"),
    [
        ("forward", (16, 32, 32, 32), (32, 32, 3, 3), (16, 32, 32, 32), 1, "images", 8),
        ("weights", (16, 32, 32, 32), (32, 32, 3, 3), (16, 32, 32, 32), 1, "images", 8),
        ("forward", (1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56), 1, "channels", 2),
        ("source", (1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56), 1, "channels", 2),
        ("weights", (8, 512, 7, 7), (512, 512, 3, 3), (8, 512, 7, 7), 1, "channels", 16),
        ("forward", (1, 512, 60, 60), (512, 1, 3, 3), (1, 512, 60, 60), 512, "images", 1),
        ("forward", (1, 20, 56, 56), (20, 20, 3, 3), (1, 20, 56, 56), 1, "images", 1),
        ("forward", (3, 8, 5, 5), (8, 8, 3, 3), (3, 8, 3, 3), 1, "images", 1),
    ],
)
def test_shapes_decide_the_parts(
    kind: Any, source: Any, weight: Any, result: Any, groups: int, by: str, count: int
) -> None:
    made = parts.cut(kind, source, weight, result, groups)
    assert (made.by, made.count) == (by, count)
    for whole, part, step in zip((source, weight, result), made.shapes, made.steps[:3], strict=True):
        covered = np.prod(part) * (count if step else 1)
        assert covered == np.prod(whole)
