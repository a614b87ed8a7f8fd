"""Ops, the engine in process against PyTorch with as many threads: float32, forward and gradients on their own.

A gradient is a backward pass to a leaf that has none yet, with retain_graph so that it can be run again; `forward`
records, as in training. Both libraries compute every case once before, and must agree.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from benchmarks.measure import Bound, Result, Run, compare, geometric_mean

MUST_MEAN, MUST_EACH = 1.2, 3.0
SEED = 0


class Library(Protocol):
    """What both sides offer, in PyTorch's names."""

    def tensor(self, array: np.ndarray, requires_grad: bool) -> Any: ...
    def op(self, name: str) -> Callable[..., Any]: ...
    def backward(self, output: Any, gradient: Any) -> None: ...
    def numpy(self, tensor: Any) -> np.ndarray: ...


class Engine:
    """gradwire's engine, in this process, with the loops of machine code that a server gives it."""

    def __init__(self) -> None:
        from gradwire_engine.compile.eager.library import SessionLoops
        from gradwire_engine.compile.fusion.fused import OPTIONS
        from gradwire_engine.compile.fusion.team_code import make_team
        from gradwire_engine.core.context import CURRENT
        from gradwire_engine.core.threads import POOL

        OPTIONS.mode, POOL.make_team = "on", make_team
        POOL.threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        if CURRENT.get().loops is None:
            CURRENT.set(replace(CURRENT.get(), loops=SessionLoops(lambda: True)))

    def tensor(self, array: np.ndarray, requires_grad: bool) -> Any:
        import gradwire_engine

        return gradwire_engine.tensor(array.copy(), requires_grad)

    def op(self, name: str) -> Callable[..., Any]:
        import gradwire_engine

        found, _ = gradwire_engine.lookup(name)
        return lambda *args, **kwargs: found.apply(found.bind(args, kwargs))

    def backward(self, output: Any, gradient: Any) -> None:
        import gradwire_engine

        gradwire_engine.backward([output], [gradient], retain_graph=True)

    def numpy(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor.array)


class PyTorch:
    """PyTorch, in this process."""

    def tensor(self, array: np.ndarray, requires_grad: bool) -> Any:
        import torch

        return torch.tensor(array, requires_grad=requires_grad)

    def op(self, name: str) -> Callable[..., Any]:
        import torch

        found: Callable[..., Any] = getattr(torch.nn.functional, name, None) or getattr(torch, name)
        return found

    def backward(self, output: Any, gradient: Any) -> None:
        output.backward(gradient, retain_graph=True)

    def numpy(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor.detach().numpy())


@dataclass(frozen=True)
class Case:
    """An op with its inputs; `wrt` lists the sets of inputs by whose gradient it is measured, each a row."""

    op: str
    shapes: str
    inputs: Callable[[np.random.Generator], list[np.ndarray]]
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrt: tuple[tuple[str, tuple[int, ...]], ...] = (("gradient", (0,)),)
    must: float = MUST_EACH

    def title(self, what: str) -> str:
        """The row's name: the op, what of it, the shapes."""
        return f"{self.op} {what}: {self.shapes}"


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Arrays of normal float32 numbers."""
    return lambda rng: [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def _embedding(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(0, 10_000, (64, 128)), rng.standard_normal((10_000, 128), dtype=np.float32)]


def _classes(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal((512, 1000), dtype=np.float32), rng.integers(0, 1000, 512)]


def _rows(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal((10_000, 128), dtype=np.float32), rng.integers(0, 10_000, 8192)]


def _batch_norm(rng: np.random.Generator) -> list[np.ndarray]:
    image, per_channel = rng.standard_normal((32, 64, 28, 28), dtype=np.float32), np.zeros(64, np.float32)
    return [image, per_channel, per_channel + 1, per_channel + 0.5, per_channel]


BOTH = (("gradients", (0, 1)),)
CONV = "(32, 16, 28, 28) with (64, 16, 3, 3), padding 1"
MILLION = (1024, 1024)
IMAGES = (32, 64, 28, 28)
OVERLAPPING, WINDOW = "(8, 64, 56, 56) by 3 × 3, stride 2, padding 1", {"kernel_size": 3, "stride": 2, "padding": 1}
CASES = [
    Case("matmul", "(1024, 1024) @ (1024, 1024)", normal((1024, 1024), (1024, 1024)), wrt=BOTH, must=1.0),
    Case("bmm", "(64, 128, 64) @ (64, 64, 128)", normal((64, 128, 64), (64, 64, 128)), wrt=BOTH),
    Case(
        "conv2d",
        CONV,
        normal((32, 16, 28, 28), (64, 16, 3, 3)),
        {"padding": 1},
        (("input gradient", (0,)), ("weight gradient", (1,))),
        must=2.0,
    ),
    Case("max_pool2d", "(32, 64, 28, 28) by 2 × 2", normal(IMAGES), {"kernel_size": 2}),
    *(Case(f"{kind}_pool2d", OVERLAPPING, normal((8, 64, 56, 56)), WINDOW) for kind in ("max", "avg")),
    Case("avg_pool2d", "(32, 64, 28, 28) by 2 × 2", normal(IMAGES), {"kernel_size": 2}),
    *(
        Case(f"adaptive_{kind}_pool2d", "(32, 64, 28, 28) to 7 × 7", normal(IMAGES), {"output_size": 7})
        for kind in ("max", "avg")
    ),
    Case("max_pool3d", "(4, 16, 16, 16, 16) by 2 × 2 × 2", normal((4, 16, 16, 16, 16)), {"kernel_size": 2}),
    Case("softmax", "(512, 1000) over dim 1", normal((512, 1000)), {"dim": 1}),
    Case(
        "scaled_dot_product_attention",
        "(2, 4, 1024, 64), causal",
        normal((2, 4, 1024, 64), (2, 4, 1024, 64), (2, 4, 1024, 64)),
        {"is_causal": True},
        (("gradients", (0, 1, 2)),),
    ),
    *(
        Case(
            "layer_norm",
            f"{(rows, length)} over the last, weight, bias",
            normal((rows, length), (length,), (length,)),
            {"normalized_shape": (length,)},
            (("gradients", (0, 1, 2)),),
        )
        for rows, length in ((512, 1024), (512, 128), (6272, 64))
    ),
    Case("batch_norm", "(32, 64, 28, 28) training", _batch_norm, {"training": True}, (("gradients", (0, 3, 4)),)),
    Case("embedding", "(64, 128) indices into (10000, 128)", _embedding, wrt=(("gradient", (1,)),)),
    Case("cross_entropy", "(512, 1000)", _classes),
    *(
        Case("cdist", f"(256, 16) and (256, 16), p = {p:g}{more}", normal((256, 16), (256, 16)), options, BOTH)
        for p, more, options in (
            (2, "", {"p": 2.0}),
            (2, " without a product", {"p": 2.0, "compute_mode": "donot_use_mm_for_euclid_dist"}),
            (1, "", {"p": 1.0}),
            (3, "", {"p": 3.0}),
        )
    ),
    *(Case("sum", f"(64, 128, 128) over dim {dim}", normal((64, 128, 128)), {"dim": dim}) for dim in (0, 1, 2)),
    Case("sum", "(64, 128, 128) over all", normal((64, 128, 128))),
    Case("relu", "1M elements", normal(MILLION)),
    Case("gelu", "1M elements", normal(MILLION)),
    Case("index_select", "8192 rows of (10000, 128)", _rows, {"dim": 0}),
    Case("cumsum", "(1024, 1024) over dim 1", normal(MILLION), {"dim": 1}),
    Case("cumsum", "(1024, 1024) over dim 0", normal(MILLION), {"dim": 0}),
    Case("sort", "1M elements, all different", lambda rng: [rng.permutation(1 << 20).astype(np.float32)]),
]


def prepare(library: Library, case: Case, wrt: tuple[int, ...] | None) -> tuple[Run, Callable[[], list[np.ndarray]]]:
    """A case's work, and its results as arrays. `wrt` of None is the forward, else the gradients by those inputs."""
    arrays = case.inputs(np.random.default_rng(SEED))
    differentiable = {place for _, places in case.wrt for place in places} if wrt is None else set(wrt)
    tensors = [library.tensor(array, place in differentiable) for place, array in enumerate(arrays)]
    op = library.op(case.op)
    call = functools.partial(_positional, case, op, tensors)

    def forward() -> Any:
        made = call()
        return made[0] if isinstance(made, tuple | list) else made

    if wrt is None:
        return forward, lambda: [library.numpy(forward())]
    output = forward()
    shape = tuple(library.numpy(output).shape)
    gradient = library.tensor(np.random.default_rng(SEED + 1).standard_normal(shape).astype(np.float32), False)
    inputs = [tensors[place] for place in wrt]

    def backward() -> list[Any]:
        for each in inputs:
            each.grad = None
        library.backward(output, gradient)
        return [each.grad for each in inputs]

    return backward, lambda: [library.numpy(each) for each in backward()]


def _positional(case: Case, op: Callable[..., Any], tensors: list[Any]) -> Any:
    """The call as PyTorch's signature wants it: layer_norm has its shape between input and weight."""
    if case.op == "layer_norm":
        return op(tensors[0], case.kwargs["normalized_shape"], *tensors[1:])
    if case.op == "index_select":
        return op(tensors[0], case.kwargs["dim"], tensors[1])
    return op(*tensors, **case.kwargs)


def rows(only: str = "") -> list[tuple[Case, str, tuple[int, ...] | None]]:
    """Every row to measure: the case, what of it, by which inputs."""
    found: list[tuple[Case, str, tuple[int, ...] | None]] = []
    for case in CASES:
        found += [(case, what, wrt) for what, wrt in [("forward", None), *case.wrt] if only in case.title(what)]
    return found


def measure(case: Case, what: str, wrt: tuple[int, ...] | None, **options: Any) -> Result:
    """One row. Raises SystemExit where the two do not agree."""
    title = case.title(what)
    (ours, our_arrays), (theirs, their_arrays) = prepare(Engine(), case, wrt), prepare(PyTorch(), case, wrt)
    for mine, expected in zip(our_arrays(), their_arrays(), strict=True):
        error = np.abs(mine - expected).max()
        if error > 1e-4 * np.abs(expected).max():
            raise SystemExit(f"{title}: the engine and PyTorch disagree by {error:g}")
    return compare(Result("ops", title, "PyTorch", Bound(case.must)), ours, theirs, **options)


def summary(results: list[Result]) -> str:
    """The geometric mean, and which ops are above their bound."""
    mean = geometric_mean([result.ratio for result in results])
    verdict = "pass" if mean <= MUST_MEAN else "FAIL"
    above = [result.name for result in results if result.bound.holds(result.ratio) is False]
    lines = [f"Geometric mean {mean:.2f} × (must ≤ {MUST_MEAN:g} ×): {verdict}."]
    if above:
        lines.append(f"Above their bound: {'; '.join(above)}.")
    return "\n".join(lines)
