"""Large loops are divided among threads, and compute the same bits in any number of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, backward, call, tensor
from gradwire_engine.compile.fusion import depthwise as depthwise_convolutions
from gradwire_engine.compile.fusion import fused as fused_plans
from gradwire_engine.compile.fusion import team_code
from gradwire_engine.core import threads
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.team import Team
from gradwire_engine.core.threads import POOL, Pool
from gradwire_engine.ops.nn.convolution import onednn
from tests.engine.compile.fusing import built, fused, run, traced

pytest.importorskip("llvmlite")


@pytest.fixture(params=["pool", "team"], autouse=True)
def shared_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loops are shared by Python's threads, then by a team."""
    team = None
    if request.param == "team":
        kernel = built(team_code._team_code())
        assert kernel.entry is not None
        team = Team(kernel.entry, kernel)
    monkeypatch.setattr(POOL, "team", team)
    yield
    if team is not None:
        team.end()


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "SHARED", 1)
    monkeypatch.setattr(threads, "LARGE", 1)
    monkeypatch.setattr(fused_plans, "SHARED", 1)
    monkeypatch.setattr(depthwise_convolutions, "_LEAST", 1)
    monkeypatch.setattr(POOL, "threads", 1)
    with activate(Context()):
        yield


def elementwise(x: Tensor, w: Tensor) -> list[Tensor]:
    y = call("gelu", (x * w,)) + call("exp", (call("tanh", (x,)),))
    backward([call("sum", (y * y,))])
    return []


def by_rows(x: Tensor, w: Tensor) -> list[Tensor]:
    y = call("layer_norm", (x * w, (x.shape[-1],)))
    y = call("log_softmax", (y, -1)) * call("softmax", (x, -1))
    backward([call("sum", (y * w,))])
    return []


PROGRAMS: dict[str, Any] = {"elementwise": elementwise, "by rows": by_rows}


def gradients(quick: Any, arrays: list[Any]) -> list[bytes]:
    given = [tensor(array.copy(), True) for array in arrays]
    run(quick, given)
    return [each.grad.array.tobytes() for each in given]  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("shape", [(7, 401), (64, 24), (1, 5000)])
def test_any_number_of_threads_computes_the_same_bits(
    name: str, shape: tuple[int, int], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(2)]
    quick, groups = fused(traced(PROGRAMS[name], [tensor(array, True) for array in arrays]))
    assert groups
    divided: list[int] = []
    pooled = Pool.run

    def noted(self: Pool, entry: Any, end: int, scratch: Any, table: int) -> None:
        divided.append(len(scratch))
        pooled(self, entry, end, scratch, table)

    monkeypatch.setattr(Pool, "run", noted)
    expected = gradients(quick, arrays)
    assert not divided
    for number in (2, 3, 7):
        monkeypatch.setattr(POOL, "threads", number)
        assert gradients(quick, arrays) == expected
    if shape[0] > 1:
        assert set(divided) == {2, 3, 7}


def test_a_depthwise_convolution_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "library", lambda: None)  # it precedes the compiled kernels
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 20, 17), (5, 1, 3, 3))]

    def program(x: Tensor, w: Tensor) -> list[Tensor]:
        y = call("conv2d", (x, w, None, 1, 1, 1, 5))
        backward([call("sum", (y * y,))])
        return []

    quick, _ = fused(traced(program, [tensor(array, True) for array in arrays]))
    expected = gradients(quick, arrays)
    for number in (2, 4, 9):
        monkeypatch.setattr(POOL, "threads", number)
        assert gradients(quick, arrays) == expected
