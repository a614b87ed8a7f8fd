"""Checks of libraries on remote tensors: run as `python array_api_libraries.py LIBRARY ADDRESS`.

It runs in a separate process, because SciPy reads SCIPY_ARRAY_API when it is imported. Each check calls a function with
NumPy's arrays, with Arrays and with plain Tensors. The values must agree, and array results must stay on the server.
It prints a line per check: "ok", or the difference.
"""

from __future__ import annotations

import os

os.environ["SCIPY_ARRAY_API"] = "1"

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import gradwire
import gradwire.array_api as remote

_random = np.random.default_rng(0)
A, B = _random.normal(size=20), _random.normal(size=20) + 0.3
POSITIVE = np.abs(A) + 0.1
ROWS = _random.normal(size=(40, 4))
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
GUESSES = LABELS ^ (_random.random(40) < 0.2)
TARGET = ROWS @ np.array([1.0, 2.0, -1.0, 0.5]) + 0.1 * _random.normal(size=40)
ERRORS, CLOSE = np.abs(TARGET) + 0.1, np.abs(TARGET) + 0.1 + _random.random(40)


def parts(result: Any) -> list[Any]:
    """The arrays and numbers of a result."""
    if isinstance(result, (gradwire.Tensor, np.ndarray, np.generic, int, float, complex)):
        return [result]
    if hasattr(result, "_fields") or isinstance(result, (tuple, list)):
        return [part for one in result for part in parts(one)]
    named = {name: one for name, one in vars(result).items() if not name.startswith("_") and not callable(one)}
    return [part for name in sorted(named) for part in parts(named[name])]


def compare(function: Callable[..., Any], arguments: tuple[np.ndarray, ...]) -> None:
    expected = parts(function(*arguments))
    for convert in (remote.asarray, gradwire.tensor):
        found = parts(function(*[convert(one) for one in arguments]))
        assert len(found) == len(expected), f"{len(found)} results, not {len(expected)}"
        for one, other in zip(found, expected, strict=True):
            if isinstance(other, np.ndarray):
                assert isinstance(one, gradwire.Tensor), f"{type(one).__name__} is not remote"
            values = one.numpy() if isinstance(one, gradwire.Tensor) else one
            np.testing.assert_allclose(values, other, rtol=1e-5, atol=1e-7)


def run(checks: dict[str, tuple[Any, ...]]) -> None:
    for name, (function, *arguments) in checks.items():
        try:
            compare(function, tuple(arguments))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        else:
            print(f"{name}: ok")


def compat() -> dict[str, tuple[Any, ...]]:
    """array-api-compat and what it says of remote tensors."""
    import array_api_compat as c

    x = gradwire.ones(2, 3)
    assert c.is_array_api_obj(x)
    assert c.array_namespace(x, remote.asarray(x), 1.0) is remote
    assert c.array_namespace(x, api_version="2024.12") is remote
    assert (c.size(x), c.device(x)) == (6, gradwire.device("cpu"))
    assert c.to_device(remote.asarray(x), "cpu").shape == (2, 3)
    assert not c.is_torch_array(x)

    def standardized(x: Any) -> Any:
        xp = c.array_namespace(x)
        return (xp.asarray(x) - xp.mean(x, axis=0)) / xp.std(x, axis=0)

    def softmax(x: Any) -> Any:
        xp = c.array_namespace(x)
        e = xp.exp(xp.asarray(x) - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    return {"standardized": (standardized, ROWS), "softmax": (softmax, ROWS)}


def scipy() -> dict[str, tuple[Any, ...]]:
    """SciPy's functions that take any namespace."""
    from scipy import cluster, differentiate, fft, integrate, ndimage, optimize, signal, special, stats

    one = (
        "zscore skew kurtosis variation sem jarque_bera normaltest skewtest kurtosistest rankdata iqr circmean describe"
    )
    two = "ttest_ind ttest_rel bartlett levene f_oneway zmap"
    checks: dict[str, tuple[Any, ...]] = {f"stats.{name}": (getattr(stats, name), A) for name in one.split()}
    checks |= {f"stats.{name}": (getattr(stats, name), A, B) for name in two.split()}
    checks |= {f"stats.{name}": (getattr(stats, name), POSITIVE) for name in ["gmean", "hmean", "gstd", "entropy"]}
    checks |= {
        "stats.pearsonr": (lambda a, b: tuple(stats.pearsonr(a, b)), A, B),
        "stats.mannwhitneyu": (lambda a, b: stats.mannwhitneyu(a, b, method="asymptotic"), A, B),
        "stats.quantile": (lambda a: stats.quantile(a, 0.3), A),
        "stats.moment": (lambda a: stats.moment(a, 3), A),
        "stats.trim_mean": (lambda a: stats.trim_mean(a, 0.1), A),
        "stats.ttest_1samp": (lambda a: stats.ttest_1samp(a, 0.0), A),
        "stats.power_divergence": (stats.power_divergence, np.array([16.0, 18, 16, 14, 12, 12])),
        "special.logsumexp": (special.logsumexp, A),
        "special.softmax": (special.softmax, A),
        "special.log_softmax": (special.log_softmax, A),
        "special.xlogy": (special.xlogy, A, POSITIVE),
        "special.rel_entr": (special.rel_entr, POSITIVE, POSITIVE[::-1].copy()),
        "special.betainc": (lambda a: special.betainc(a, a, a / 9), POSITIVE),
        "cluster.kmeans2": (lambda m: cluster.vq.kmeans2(m, m[:2, :], minit="matrix"), ROWS),
        "cluster.vq": (lambda m: cluster.vq.vq(m, m[:2, :]), ROWS),
        "cluster.whiten": (cluster.vq.whiten, ROWS),
        "fft.fftn": (fft.fftn, ROWS),
        "fft.rfft": (fft.rfft, A),
        "fft.dct": (fft.dct, A),
        "signal.fftconvolve": (signal.fftconvolve, A, B),
        "signal.oaconvolve": (signal.oaconvolve, A, B),
        "signal.correlate": (lambda a, b: signal.correlate(a, b, method="fft"), A, B),
        "signal.detrend": (signal.detrend, A),
        "signal.hilbert": (signal.hilbert, A),
        "signal.resample": (lambda a: signal.resample(a, 10), A),
        "signal.savgol_filter": (lambda a: signal.savgol_filter(a, 5, 2), A),
        "integrate.trapezoid": (integrate.trapezoid, A, B),
        "integrate.cumulative_trapezoid": (integrate.cumulative_trapezoid, A),
        "optimize.rosen": (optimize.rosen, A),
        "optimize.rosen_der": (optimize.rosen_der, A),
        "differentiate.derivative": (lambda a: differentiate.derivative(lambda x: x**3, a).df, A),
        "ndimage.gaussian_filter": (lambda m: ndimage.gaussian_filter(m, 1.0), ROWS),
    }
    checks |= {
        f"special.{name}": (getattr(special, name), POSITIVE)
        for name in ["ndtr", "log_ndtr", "erf", "erfc", "gammaln", "expit", "entr", "i0", "i1e"]
    }
    return checks


def sklearn() -> dict[str, tuple[Any, ...]]:
    """scikit-learn's metrics, kernels and estimators under array_api_dispatch."""
    from sklearn import config_context, decomposition, discriminant_analysis, linear_model, metrics, preprocessing

    def dispatched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with config_context(array_api_dispatch=True):
                return function(*arguments)

        return call

    classes = (
        "accuracy_score f1_score precision_score recall_score zero_one_loss balanced_accuracy_score confusion_matrix"
    )
    numbers = "r2_score mean_squared_error mean_absolute_error max_error explained_variance_score mean_tweedie_deviance"
    kernels = "cosine_similarity euclidean_distances linear_kernel rbf_kernel polynomial_kernel chi2_kernel"
    checks: dict[str, Any] = {f"metrics.{name}": (getattr(metrics, name), LABELS, GUESSES) for name in classes.split()}
    checks |= {f"metrics.{name}": (getattr(metrics, name), ERRORS, CLOSE) for name in numbers.split()}
    checks |= {f"pairwise.{name}": (getattr(metrics.pairwise, name), np.abs(ROWS)) for name in kernels.split()}
    checks["metrics.roc_auc_score"] = (metrics.roc_auc_score, LABELS, ERRORS)
    for scaler in (preprocessing.StandardScaler, preprocessing.MinMaxScaler, preprocessing.MaxAbsScaler):
        checks[scaler.__name__] = (lambda x, scaler=scaler: scaler().fit_transform(x), ROWS)

    def pca(x: Any) -> Any:
        fitted = decomposition.PCA(2, svd_solver="full").fit(x)
        return fitted.explained_variance_, fitted.inverse_transform(fitted.transform(x))

    def lda(x: Any, y: Any) -> Any:
        fitted = discriminant_analysis.LinearDiscriminantAnalysis().fit(x, y)
        return fitted.predict_proba(x), fitted.predict(x)

    def ridge(x: Any, y: Any) -> Any:
        fitted = linear_model.Ridge(solver="svd").fit(x, y)
        return fitted.coef_, fitted.predict(x)

    checks |= {"PCA": (pca, ROWS), "LinearDiscriminantAnalysis": (lda, ROWS, LABELS), "Ridge": (ridge, ROWS, TARGET)}
    return {name: (dispatched(function), *arguments) for name, (function, *arguments) in checks.items()}


def einops() -> dict[str, tuple[Any, ...]]:
    """einops.array_api beside einops on NumPy's arrays."""
    import einops as local
    from einops import array_api

    def on(name: str, *given: Any, **axes: int) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            return getattr(local if isinstance(x, np.ndarray) else array_api, name)(x, *given, **axes)

        return call

    image = _random.normal(size=(2, 6, 4))

    def packed(x: Any) -> Any:
        module = local if isinstance(x, np.ndarray) else array_api
        joined, shapes = module.pack([x, x], "b h *")
        return joined, module.unpack(joined, shapes, "b h *")

    return {
        "rearrange": (on("rearrange", "b (h w) c -> b c h w", h=2), image),
        "flat": (on("rearrange", "... -> (...)"), image),
        "mean": (on("reduce", "b (h w) c -> b c", "mean", h=3), image),
        "max": (on("reduce", "b h c -> b", "max"), image),
        "repeat": (on("repeat", "b h c -> b (h r) c", r=2), image),
        "pack": (packed, image),
    }


def xarray() -> dict[str, tuple[Any, ...]]:
    """xarray's arithmetic on labelled remote tensors."""
    import xarray as xr

    def labelled(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: function(xr.DataArray(x, dims=("x", "y"), coords={"x": [10, 20]})).data

    functions = {
        "numbers": lambda d: 2 - d * 3 + 1,
        "aligned": lambda d: d * d.isel(y=0) / (d + 10.0),
        "broadcast": lambda d: d + d.isel(x=0).rename(y="z"),
        "power": lambda d: (d % 4) ** 2,
        "compared": lambda d: d > 2,
        "selected": lambda d: d.sel(x=20),
        "steps": lambda d: d.isel(y=slice(None, None, 2)),
        "transposed": lambda d: d.T,
        "functions": lambda d: xr.ufuncs.exp(-d),
        "joined": lambda d: xr.concat([d, d], "x"),
        "stacked": lambda d: d.stack(z=("x", "y")),
        "clipped": lambda d: d.clip(1, 3),
        "differences": lambda d: d.diff("y"),
        "sums": lambda d: d.sum("x", skipna=False),
    }
    values = np.arange(6.0).reshape(2, 3)
    return {name: (labelled(function), values) for name, function in functions.items()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    library = {one.__name__: one for one in (compat, scipy, sklearn, einops, xarray)}[sys.argv[1]]
    with gradwire.connect(sys.argv[2]):
        run(library())
