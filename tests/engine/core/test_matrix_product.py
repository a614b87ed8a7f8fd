"""Products by oneDNN and OpenBLAS: NumPy's results within rounding, the same bits in any number of threads, and what
is left to NumPy.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradwire_engine.core import matrix_product as module
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.core.threads import POOL

FOUND = module.library()
needs_avx512 = pytest.mark.skipif(FOUND is None or not FOUND.has_avx512, reason="needs oneDNN and AVX-512")
Arrays = Callable[..., np.ndarray]


def any_layout(found: Any) -> bool:
    """Whether the bits of a library's products are those of any layout."""
    return bool(getattr(found, "has_avx512", False))


@pytest.fixture
def used(found_library: Any, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each product ran in the library, which computes small ones, too."""
    found: list[bool] = []
    plain = module._job

    def noted(*args: Any) -> Any:
        made = plain(*args)
        found.append(made is not None)
        return made

    monkeypatch.setattr(module, "_job", noted)
    monkeypatch.setattr(module, "_WORTH", 0)
    monkeypatch.setattr(module, "_WORTH_EACH", 0)
    monkeypatch.setattr(module, "_THIN", 0)
    return found


@pytest.fixture
def arrays() -> Arrays:
    """Random float32 arrays of a shape; turned ones have contiguous columns, padded ones longer rows."""
    rng = np.random.default_rng(7)

    def made(*shape: int, turned: bool = False, padded: int = 0) -> np.ndarray:
        if turned:
            return made(*shape[:-2], shape[-1], shape[-2], padded=padded).swapaxes(-1, -2)
        return rng.standard_normal((*shape[:-1], shape[-1] + padded), dtype=np.float32)[..., : shape[-1]]

    return made


def close(made: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert made.dtype == np.float32
    assert np.all(np.abs(made - wanted) <= 1e-5 * bound + 1e-30)


def equal_in_any_layout(found: Any, made: np.ndarray, wanted: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Two products of the same matrices in other layouts have the same bits, or the same values within rounding."""
    if any_layout(found):
        np.testing.assert_array_equal(made, wanted)
    close(made, a, b)
    close(wanted, a, b)


@pytest.mark.parametrize("layouts", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("shape", [(2, 2, 1), (5, 7, 3), (33, 64, 100), (300, 600, 70), (700, 130, 200)], ids=str)
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
def test_products_of_any_layout_are_numpys(
    used: list[bool],
    found_library: Any,
    arrays: Arrays,
    layouts: tuple[bool, ...],
    shape: tuple[int, int, int],
    lead: tuple[int, ...],
) -> None:
    rows, columns, inner = shape
    a = arrays(*lead, rows, inner, turned=layouts[0], padded=3)
    b = arrays(*lead, inner, columns, turned=layouts[1])
    out = arrays(*lead, rows, columns, turned=layouts[2], padded=5)
    around = out.base.copy() if out.base is not None else out
    assert matrix_product(np, a, b, out) is out
    equal_in_any_layout(found_library, out, matrix_product(np, a, b), a, b)
    assert used == [True, True] or 1 in shape
    out[...] = np.nan
    if out.base is not None:  # nothing was written beside the result
        kept = np.where(np.isnan(out.base), around, out.base)
        np.testing.assert_array_equal(kept, around)


def test_the_number_of_threads_does_not_change_a_bit(
    used: list[bool], arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [
        (arrays(700, 300), arrays(300, 1100, turned=True)),
        (arrays(600, 90, turned=True), arrays(90, 520)),
        (arrays(9, 120, 200), arrays(9, 200, 90)),
    ]
    made = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(POOL, "threads", threads)
        made.append([matrix_product(np, a, b) for a, b in pairs])
    for others in made[1:]:
        for one, other in zip(made[0], others, strict=True):
            np.testing.assert_array_equal(one, other)
    assert all(used)


def test_nan_inf_and_signs_of_zeros_reach_the_result(used: list[bool], arrays: Arrays) -> None:
    a, b = arrays(64, 40), arrays(40, 48)
    a[3, 5], a[9, 2], b[7, 11] = np.nan, np.inf, -np.inf
    a[20], b[:, 30] = 0.0, 0.0
    with np.errstate(invalid="ignore"):
        made, wanted = matrix_product(np, a, b), np.matmul(a, b)
    np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(made), np.isinf(wanted))
    out = np.full((64, 48), np.nan, np.float32)
    np.testing.assert_array_equal(matrix_product(np, a, b, out), made)  # what was in `out` does not count
    tiny = np.full((40, 40), 1e-30, np.float32)
    np.testing.assert_allclose(matrix_product(np, tiny, tiny * 1e-10), 4e-69, atol=1e-45)
    small = np.eye(40, dtype=np.float32) * np.float32(1e-40)
    np.testing.assert_array_equal(matrix_product(np, small, np.eye(40, dtype=np.float32)), small)
    assert all(used)


@pytest.mark.parametrize(
    "given",
    [
        lambda arrays: (np.broadcast_to(arrays(1, 40), (30, 40)), arrays(40, 20)),
        lambda arrays: (arrays(30, 40)[::-1], arrays(40, 20)),
        lambda arrays: (arrays(30, 80)[:, ::2], arrays(40, 20)),
        lambda arrays: (np.frombuffer(b"\0" + arrays(30, 40).tobytes(), np.uint8)[1:].view(np.float32).reshape(30, 40),
                        arrays(40, 20)),
    ],
    ids=["repeated", "reversed", "strided", "unaligned"],
)  # fmt: skip
def test_other_strides_are_left_to_numpy(used: list[bool], arrays: Arrays, given: Any) -> None:
    a, b = given(arrays)
    np.testing.assert_array_equal(matrix_product(np, a, b), np.matmul(a, b))
    assert used == [False]


@pytest.mark.parametrize("shape", [(0, 5, 4), (5, 0, 4), (5, 4, 0), (1, 50, 60), (50, 1, 60)], ids=str)
def test_empty_matrices_and_vectors_are_numpys(arrays: Arrays, shape: tuple[int, int, int], used: list[bool]) -> None:
    rows, columns, inner = shape
    a, b = arrays(rows, inner), arrays(inner, columns)
    np.testing.assert_array_equal(matrix_product(np, a, b), np.matmul(a, b))


def test_wrong_shapes_and_results_are_refused_as_by_numpy(arrays: Arrays) -> None:
    big = arrays(200, 200)
    for a, b, out in (
        (big, arrays(150, 200), None),
        (big, big, arrays(200, 199)),
        (big, big, np.empty((200, 200), int)),
    ):
        with pytest.raises((ValueError, TypeError)):
            matrix_product(np, a, b, out)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_multiplies(used: list[bool], arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "threads", 2)
    a, b = arrays(600, 300), arrays(300, 600)
    wanted = matrix_product(np, a, b)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(matrix_product(np, a, b), wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("turns", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 5, 7), (40, 33, 64)], ids=str)
def test_a_repeated_product_is_that_of_the_arrays_given(
    turns: tuple[bool, bool, bool], shape: tuple[int, int, int], used: list[bool], found_library: Any, arrays: Arrays
) -> None:
    multiply = module.RepeatedProduct(*turns)
    rows, inner, columns = shape
    shapes = [(rows, inner), (inner, columns), (rows, columns)]
    held = [arrays(*(each[::-1] if turn else each)) for each, turn in zip(shapes, turns, strict=True)]
    for step in range(6):
        if step in (2, 4):  # other arrays in one place
            held[step // 2 - 1] = held[step // 2 - 1] * 2
        if step == 3:
            held[0] *= 3  # other values
        multiply(*held)
        one, other, made = (each.T if turn else each for each, turn in zip(held, turns, strict=True))
        equal_in_any_layout(found_library, made, matrix_product(np, one, other), one, other)


def test_a_repeated_product_keeps_no_array(arrays: Arrays) -> None:
    multiply, held = module.RepeatedProduct(), [arrays(64, 128), arrays(128, 256), arrays(64, 256)]
    multiply(*held)
    alive = [weakref.ref(each) for each in held]
    held.clear()
    assert [each() for each in alive] == [None] * 3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_repeated_product_of_other_shapes_is_refused(dtype: str) -> None:
    given = [np.ones(shape, dtype) for shape in ((2, 3), (4, 5), (2, 5))]
    with pytest.raises(ValueError, match="mismatch"):
        module.RepeatedProduct()(*given)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_a_product_for_known_matrices_has_the_same_bits(
    arrays: Arrays, found_library: Any, monkeypatch: pytest.MonkeyPatch, turned: tuple[bool, bool]
) -> None:
    calls: list[Any] = []
    plain = module._job_in
    monkeypatch.setattr(module, "_job_in", lambda *args: calls.append(args) or plain(*args))
    shapes = ((128, 96), (96, 200))
    made = [arrays(*shape, turned=turn) for shape, turn in zip(shapes, turned, strict=True)]
    known = module.product_for(*made)
    for _ in range(3):  # other values in other memory
        a, b = (arrays(*shape, turned=turn) for shape, turn in zip(shapes, turned, strict=True))
        found, wanted = known(np, a, b), matrix_product(np, a, b)
        assert found.tobytes() == wanted.tobytes()
        assert found.strides == wanted.strides
        close(found, a, b)
    # Other layouts, and memory at addresses of no float.
    a, b = arrays(*shapes[0], padded=3), arrays(*shapes[1], turned=True, padded=1)
    assert known(np, a, b).tobytes() == matrix_product(np, a, b).tobytes()
    a, b = (arrays(*shape, turned=turn) for shape, turn in zip(shapes, turned, strict=True))
    odd = (
        np.frombuffer(bytearray(b.nbytes + 1), np.uint8)[1:]
        .view(np.float32)
        .reshape(b.T.shape if turned[1] else b.shape)
    )
    odd = odd.T if turned[1] else odd
    odd[...] = b
    close(known(np, a, odd), a, b)
    assert len(calls) > 6


def test_many_parts_have_their_own_addresses(arrays: Arrays, used: list[bool]) -> None:
    # Up to eight parts get their addresses one by one, more by NumPy.
    for batch in (1, 2, 8, 9, 40):
        a, b = arrays(batch, 128, 64), arrays(batch, 64, 96)
        close(matrix_product(np, a, b), a, b)
    assert all(used)


@pytest.mark.parametrize(("shape", "thin"), [((10, 128, 256), True), ((128, 256, 10), True), ((2000, 256, 10), False)])
def test_thin_products_are_those_of_blas(
    monkeypatch: pytest.MonkeyPatch,
    used: list[bool],
    found_library: Any,
    arrays: Arrays,
    shape: tuple[int, int, int],
    thin: bool,
) -> None:
    monkeypatch.setattr(module, "_THIN", 16)
    a, b = arrays(*shape[:2]), arrays(*shape[1:])
    close(matrix_product(np, a, b), a, b)
    assert any(used) is (not thin or found_library is module.openblas())


@pytest.mark.parametrize(
    ("rows", "columns", "inner", "count", "tiles"),
    [
        (512, 1024, 1024, 2, [(0, 256, 0, 1024), (256, 256, 0, 1024)]),  # no row of the result has two writers
        (1024, 512, 512, 2, [(0, 512, 0, 512), (512, 512, 0, 512)]),
        (32, 1024, 1024, 2, [(0, 32, 0, 512), (0, 32, 512, 512)]),  # copying all columns twice would take longer
        (512, 10, 1024, 2, [(0, 256, 0, 10), (256, 256, 0, 10)]),
        (40, 400, 100, 2, [(0, 40, 0, 208), (0, 40, 208, 192)]),  # not 32 and 8 rows
        (256, 1024, 1024, 4, [(0, 128, 0, 512), (0, 128, 512, 512), (128, 128, 0, 512), (128, 128, 512, 512)]),
        (20, 20, 1024, 8, [(0, 20, 0, 20)]),
        (64, 40, 256, 7, [(0, 32, 0, 32), (0, 32, 32, 8), (32, 32, 0, 32), (32, 32, 32, 8)]),
    ],
    ids=str,
)
def test_tiles_are_as_many_as_cores_and_take_least_time(
    rows: int, columns: int, inner: int, count: int, tiles: list[tuple[int, ...]]
) -> None:
    assert module._grid(rows, columns, inner, count) == tiles


def test_openblas_has_its_threads_again_after_a_product_that_fails_or_not(
    arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = module.openblas()
    if found is None:
        pytest.skip("NumPy has another BLAS")
    before = found._count()
    found.use_threads(2)
    try:
        monkeypatch.setattr(module, "_fast", lambda: found)
        counts: list[int] = []
        plain = module._Job._run

        def noted(self: Any, shared: int) -> bool:
            counts.append(found._count())
            return plain(self, shared)

        monkeypatch.setattr(module._Job, "_run", noted)
        matrix_product(np, arrays(128, 128), arrays(128, 128))
        assert (counts, found._count()) == ([1], 2)
        monkeypatch.setattr(POOL, "ready_team", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            matrix_product(np, arrays(128, 128), arrays(128, 128))
        assert found._count() == 2
    finally:
        found.use_threads(before)


def test_a_repeated_product_without_a_job_follows_its_arrays(arrays: Arrays) -> None:
    multiply = module.RepeatedProduct(True, False)
    a, b = arrays(6, 3), arrays(6, 4)
    for out in (np.empty((3, 4), np.float32), np.empty((3, 4), np.float32)):
        for _ in range(2):
            a += 1
            multiply(a, b, out)
            np.testing.assert_array_equal(out, a.T @ b)
    row = arrays(1, 4)[0]
    multiply.add(a, b, out, row)
    np.testing.assert_array_equal(out, a.T @ b + row)


@pytest.mark.parametrize(("beside", "expected"), [(False, [2, 2, 2, 2]), (True, [1, 1, 2, 2])])
def test_beside_a_client_small_eager_products_use_one_thread(
    beside: bool, expected: list[int], used: list[bool], arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Team:
        def run(self, kind: int, count: int, data: int, threads: int) -> None:
            asked.append(threads)

    monkeypatch.setattr(POOL, "threads", 2)
    monkeypatch.setattr(POOL, "team", Team())
    monkeypatch.setattr(POOL, "is_beside_client", beside)
    small, large = arrays(100, 100), arrays(200, 200)
    matrix_product(np, small, small)
    module.product_for(small, small)(np, small, small)
    matrix_product(np, large, large)
    module.RepeatedProduct()(small, small, np.empty_like(small))  # of a plan, beside which no client computes
    assert asked == expected


@needs_avx512
@pytest.mark.parametrize("turns", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_the_number_of_cores_does_not_change_a_bit(
    turns: tuple[bool, bool], arrays: Arrays, used: list[bool], found_library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not any_layout(found_library):
        pytest.skip("tiles of OpenBLAS depend on the cores")
    rng = np.random.default_rng()
    some = tuple(int(n) * 16 for n in rng.integers((14, 4, 28), (40, 64, 40)))
    for rows, inner, columns in [(512, 640, 512), (300, 500, 600), some]:
        a, b = arrays(rows, inner, turned=turns[0]), arrays(inner, columns, turned=turns[1])
        other_way = np.empty((columns, rows), np.float32).T  # the product of the transposed factors
        made: list[bytes] = []
        parts: set[int] = set()
        for cores in (64, 1, 2, 3):
            monkeypatch.setattr(module, "_CORES", cores)
            module._layout.cache_clear()
            made.append(matrix_product(np, a, b).tobytes() + matrix_product(np, a, b, other_way).tobytes())
            layout = module._layout(a.shape, a.strides, b.shape, b.strides, (4 * columns, 4))
            assert layout is not None
            parts.add(layout.parts)
        close(matrix_product(np, a, b), a, b)
        assert len(set(made)) == 1, (rows, inner, columns)
        assert len(parts) > 1 or rows == 300 or turns == (False, True)
    module._layout.cache_clear()
    assert all(used)
