"""The bombs of bombs.py by name: functions without arguments that use the current session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradwire as g
from gradwire.nn import functional as F

HUGE, BILLION, MILLION = (1 << 62), 1_000_000_000, 1_000_000


def _back(made: Any, leaf: Any) -> Any:
    (made[0] if isinstance(made, tuple) else made).sum().backward()
    return leaf.grad


def _leaf(*size: int) -> Any:
    return g.randn(*size, requires_grad=True)


def _derived(op: Callable[[Any], Any], *size: int) -> Any:
    leaf = _leaf(*size)
    return _back(op(leaf), leaf)


def _twice(op: Callable[[Any], Any], *size: int) -> Any:
    leaf = _leaf(*size)
    (first,) = g.autograd.grad(op(leaf).sum(), leaf, create_graph=True)
    return _back((first * first), leaf)


def _wide(*size: int) -> Any:
    """A view of one element that shows many."""
    return g.ones(1).expand(*size)


def _times(op: Callable[[Any], Any], value: Any, count: int) -> Any:
    for _ in range(count):
        value = op(value)
    return value


def _program(op: Callable[[Any], Any], *size: int) -> Any:
    return g.compile(op)(g.randn(*size))


def _pd(n: int) -> Any:
    x = g.randn(n, n)
    return x @ x.T + n * g.eye(n)


OPS: dict[str, Callable[[], Any]] = {
    "svd": lambda: g.linalg.svd(g.randn(3000, 3000))[1],
    "svd small": lambda: g.linalg.svd(g.randn(1200, 1200))[1],
    "svd of many": lambda: g.linalg.svd(g.randn(300_000, 8, 8))[1],
    "svdvals": lambda: g.linalg.svdvals(g.randn(3500, 3500)),
    "eig": lambda: g.linalg.eig(g.randn(2500, 2500))[0],
    "eigh": lambda: g.linalg.eigh(_pd(3000))[0],
    "eigvals": lambda: g.linalg.eigvals(g.randn(2500, 2500)),
    "qr complete": lambda: g.linalg.qr(g.randn(6000, 2000), "complete")[0],
    "inv": lambda: g.linalg.inv(g.randn(5000, 5000)),
    "pinv": lambda: g.linalg.pinv(g.randn(3000, 2500)),
    "det backward": lambda: _derived(g.linalg.det, 2000, 2000),
    "solve": lambda: g.linalg.solve(g.randn(5000, 5000), g.randn(5000, 5000)),
    "lstsq": lambda: g.linalg.lstsq(g.randn(4000, 2500), g.randn(4000, 100))[0],
    "lu": lambda: g.linalg.lu(g.randn(5500, 5500))[1],
    "cholesky backward": lambda: _derived(lambda x: g.linalg.cholesky(x @ x.T + 3000 * g.eye(2500)), 2500, 2500),
    "matrix_exp": lambda: g.linalg.matrix_exp(g.randn(2500, 2500)),
    "matrix_exp backward": lambda: _derived(g.linalg.matrix_exp, 1200, 1200),
    "matrix_power": lambda: g.linalg.matrix_power(g.randn(1500, 1500), 2**60 - 1),
    "matmul": lambda: g.randn(8000, 8000) @ g.randn(8000, 4000),
    "matmul of whole numbers": lambda: g.ones(2500, 2500, dtype=g.int64) @ g.ones(2500, 2500, dtype=g.int64),
    "bmm": lambda: g.randn(30, 1500, 1500) @ g.randn(30, 1500, 1500),
    "multi_dot": lambda: g.linalg.multi_dot([g.randn(2, 2) for _ in range(1000)]),
    "multi_dot of large": lambda: g.linalg.multi_dot([g.randn(2000, 2000)] * 20),
    "einsum": lambda: g.einsum("ab,bc,cd,de->ae", *[g.randn(2500, 2500)] * 4),
    "einsum of all": lambda: g.einsum("abc,bcd,cde,dea->abcde", *[g.randn(60, 60, 60)] * 4),
    "kron": lambda: g.kron(g.randn(100, 100), g.randn(100, 100)),
    "cdist": lambda: g.cdist(g.randn(4000, 2000), g.randn(4000, 2000), p=1.5),
    "pdist": lambda: F.pdist(g.randn(6000, 200)),
    "conv2d": lambda: F.conv2d(g.randn(16, 64, 128, 128), g.randn(256, 64, 7, 7), padding=3),
    "conv2d backward": lambda: _derived(lambda x: F.conv2d(x, g.randn(64, 16, 31, 31)), 4, 16, 128, 128),
    "conv3d": lambda: F.conv3d(g.randn(1, 16, 48, 48, 48), g.randn(32, 16, 9, 9, 9)),
    "max_pool2d": lambda: F.max_pool2d(g.randn(1, 1, 2000, 2000), 499, stride=1),
    "max_pool2d backward": lambda: _derived(lambda x: F.max_pool2d(x, 31, stride=1), 1, 1, 800, 800),
    "fft of a prime": lambda: g.fft.fft(g.randn(100), n=10_000_019),
    "fft": lambda: g.fft.fft(g.randn(100), n=30_000_001),
    "sort": lambda: g.sort(g.randn(30 * MILLION))[0],
    "unique": lambda: g.unique(g.randn(20 * MILLION)),
    "logcumsumexp backward": lambda: _derived(lambda x: x.logcumsumexp(0), 3 * MILLION),
    "cumprod backward with zeros": lambda: _derived(lambda x: (x * (x > 0)).cumprod(0), 2 * MILLION),
    "ctc_loss": lambda: F.ctc_loss(
        g.randn(2000, 32, 50).log_softmax(2), g.ones(32, 500, dtype=g.int64), [2000] * 32, [500] * 32
    ),
}

SHAPES: dict[str, Callable[[], Any]] = {
    **{
        f"{name}({size})": (lambda make=make, size=size: make(size))
        for name, make in {
            "zeros": g.zeros,
            "ones": g.ones,
            "arange": g.arange,
            "eye": g.eye,
            "linspace": lambda n: g.linspace(0, 1, n),
            "logspace": lambda n: g.logspace(0, 1, n),
            "randperm": g.randperm,
            "full": lambda n: g.full((n,), 2.0),
            "tril_indices": lambda n: g.tril_indices(n, n),
            "triu_indices": lambda n: g.triu_indices(n, n),
        }.items()
        for size in (HUGE, 100 * BILLION, BILLION, 70_000, -1)
    },
    **{
        f"{name} with {count}": (lambda make=make, count=count: make(count))
        for name, make in {
            "repeat": lambda n: g.ones(3).repeat(n),
            "repeat_interleave": lambda n: g.repeat_interleave(g.ones(3), n),
            "tile": lambda n: g.tile(g.ones(3), (n, 2)),
            "expand then exp": lambda n: _wide(n).exp(),
            "expand then cumsum": lambda n: _wide(n).cumsum(0),
            "expand then sort": lambda n: _wide(n).sort()[0],
            "expand then sum": lambda n: _wide(n).sum(),
            "expand then digamma": lambda n: _wide(n).digamma(),
            "one_hot": lambda n: F.one_hot(g.zeros(3, dtype=g.int64), n),
            "bincount": lambda n: g.bincount(g.zeros(3, dtype=g.int64), minlength=n),
            "histc": lambda n: g.histc(g.ones(3), bins=n),
            "pad": lambda n: F.pad(g.ones(3), (n, n)),
            "circular pad": lambda n: F.pad(g.ones(1, 1, 3), (n, n), mode="circular"),
            "interpolate": lambda n: F.interpolate(g.ones(1, 1, 3), size=n),
            "interpolate linear": lambda n: F.interpolate(g.ones(1, 1, 3), size=n, mode="linear"),
            "adaptive_avg_pool1d": lambda n: F.adaptive_avg_pool1d(g.ones(1, 1, 8), n),
            "adaptive_max_pool1d": lambda n: F.adaptive_max_pool1d(g.ones(1, 1, 8), n),
            "as_strided": lambda n: g.as_strided(g.ones(3), (n,), (0,)).exp(),
            "as_strided far": lambda n: g.as_strided(g.ones(3), (3,), (n,)),
            "unfold": lambda n: g.ones(8).unfold(0, 2, n).exp(),
            "max_pool1d padded": lambda n: F.max_pool1d(g.ones(1, 1, 8), n, 1, n // 2),
            "avg_pool1d padded": lambda n: F.avg_pool1d(g.ones(1, 1, 8), n, 1, n // 2),
            "conv1d padded": lambda n: F.conv1d(g.ones(1, 1, 8), g.ones(1, 1, 3), padding=n),
            "conv1d dilated": lambda n: F.conv1d(g.ones(1, 1, 8), g.ones(1, 1, 3), dilation=n, padding=n),
            "conv_transpose1d": lambda n: F.conv_transpose1d(g.ones(1, 1, 8), g.ones(1, 1, 3), stride=n),
            "fft n": lambda n: g.fft.fft(g.ones(3), n=n),
            "irfft n": lambda n: g.fft.irfft(g.ones(3, dtype=g.complex64), n=n),
            "diag_embed": lambda n: g.diag_embed(g.ones(3), offset=n),
            "roll": lambda n: g.roll(g.ones(3), n),
            "vander": lambda n: g.linalg.vander(g.ones(3), N=n),
            "diff": lambda n: g.diff(g.ones(8), n=n),
            "matrix_power": lambda n: g.linalg.matrix_power(g.ones(2, 2), n),
            "mvlgamma": lambda n: g.mvlgamma(g.ones(2) * 1e30, n),
            "polygamma": lambda n: g.polygamma(n, g.ones(2)),
        }.items()
        for count in (HUGE, BILLION, 3 * MILLION)
    },
    "cat of a million": lambda: g.cat([g.ones(1)] * 300_000),
    "stack of many views": lambda: g.stack([_wide(10_000)] * 100_000),
    "a million dimensions": lambda: g.ones(1).reshape((1,) * 100_000),
    "empty beside huge": lambda: g.ones(0, BILLION) @ g.ones(BILLION, 0),
    "empty sum": lambda: g.ones(0, 100 * BILLION).sum(0),
    "cartesian_prod": lambda: g.cartesian_prod(*[g.ones(1000)] * 6),
    "combinations": lambda: g.combinations(g.ones(60), r=30),
    "meshgrid": lambda: g.meshgrid(*[g.ones(1000)] * 6, indexing="ij"),
}
BOMBS = {**{f"op: {name}": bomb for name, bomb in OPS.items()}, **{f"shape: {n}": b for n, b in SHAPES.items()}}
