"""Random numbers on a GPU: Philox 4x32-10, a hash of a key and a counter (Salmon et al., "Parallel random numbers").

Each number is computed from the seed, its place in the sequence and the number of its attempt, so the state of a
generator is 16 bytes, the same on every GPU, and can be saved.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Protocol

import numpy as np

Array = Any

_SOURCE = """
struct Philox {
    unsigned long long key, place;
    unsigned int turn, x[4];
    __device__ Philox(unsigned long long k, unsigned long long p) : key(k), place(p), turn(0) {}
    __device__ void next() {  // four words of the place's next attempt
        unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
        x[0] = (unsigned int)place; x[1] = (unsigned int)(place >> 32); x[2] = turn++; x[3] = 0;
        for (int round = 0; round < 10; round++) {
            unsigned long long a = 0xD2511F53ULL * x[0], b = 0xCD9E8D57ULL * x[2];
            unsigned int first = (unsigned int)(b >> 32) ^ x[1] ^ k0, third = (unsigned int)(a >> 32) ^ x[3] ^ k1;
            x[0] = first; x[1] = (unsigned int)b; x[2] = third; x[3] = (unsigned int)a;
            k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
        }
    }
    __device__ unsigned long long word(int half) { return ((unsigned long long)x[2 * half + 1] << 32) | x[2 * half]; }
    __device__ double unit(int half) { return (double)(word(half) >> 11) * 1.1102230246251565e-16; }
};
__device__ inline void draw_uniform(Philox& g, double& y) { g.next(); y = g.unit(0); }
__device__ inline void draw_uniform(Philox& g, float& y) { g.next(); y = (float)(g.x[0] >> 8) * 5.9604645e-8f; }
__device__ inline void draw_normal(Philox& g, double& y) {
    g.next(); y = sqrt(-2.0 * log(1.0 - g.unit(0))) * cospi(2.0 * g.unit(1));
}
__device__ inline void draw_normal(Philox& g, float& y) {
    g.next();
    y = sqrtf(-2.0f * logf(((float)g.x[0] + 0.5f) * 2.3283064e-10f)) * cospif((float)g.x[1] * 4.656613e-10f);
}
// By products of uniform numbers for small means, else Hoermann's transformed rejection (PTRS).
__device__ inline double draw_poisson(Philox& g, double mean) {
    if (!(mean > 0)) return mean == 0 ? 0 : mean;
    if (mean < 10) {
        double limit = exp(-mean), product = 1; long long k = -1;
        do { g.next(); product *= 1.0 - g.unit(0); k++; } while (product > limit);
        return (double)k;
    }
    double root = sqrt(mean), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    double scale = log(1.1239 + 1.1328 / (b - 3.4)), edge = 0.9277 - 3.6224 / (b - 2), logarithm = log(mean);
    for (;;) {
        g.next();
        double u = g.unit(0) - 0.5, v = 1.0 - g.unit(1), side = 0.5 - fabs(u);
        double k = floor((2 * a / side + b) * u + mean + 0.43);
        if (side >= 0.07 && v <= edge) return k;
        if (k < 0 || (side < 0.013 && v > side)) continue;
        if (log(v) + scale - log(a / (side * side) + b) <= k * logarithm - mean - lgamma(k + 1)) return k;
    }
}
// By inversion for small means, else Hoermann's transformed rejection (BTRS).
__device__ inline double draw_binomial(Philox& g, double n, double chance) {
    if (n <= 0 || !(chance > 0)) return 0;  // also for nan
    if (chance >= 1) return n;
    double p = chance > 0.5 ? 1 - chance : chance, q = 1 - p, k = 0;
    if (n * p < 10) {
        double share = exp(n * log1p(-p)), u;
        g.next(); u = g.unit(0);
        for (double left = share; u > left && left > 0 && k < n; ) {
            u -= left; k += 1; left *= (n - k + 1) * p / (k * q);
        }
        return chance > 0.5 ? n - k : k;
    }
    double root = sqrt(n * p * q), b = 1.15 + 2.53 * root, a = -0.0873 + 0.0248 * b + 0.01 * p, c = n * p + 0.5;
    double edge = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * root, ratio = log(p / q), mode = floor((n + 1) * p);
    double height = lgamma(mode + 1) + lgamma(n - mode + 1);
    for (;;) {
        g.next();
        double u = g.unit(0) - 0.5, v = 1.0 - g.unit(1), side = 0.5 - fabs(u);
        k = floor((2 * a / side + b) * u + c);
        if (k < 0 || k > n) continue;
        if (side >= 0.07 && v <= edge) break;
        v = log(v * alpha / (a / (side * side) + b));
        if (v <= height - lgamma(k + 1) - lgamma(n - k + 1) + (k - mode) * ratio) break;
    }
    return chance > 0.5 ? n - k : k;
}
"""


@cache
def _kernel(cupy: Any, name: str, parameters: str, body: str) -> Any:
    return cupy.ElementwiseKernel(parameters, "T y", body, name, preamble=_SOURCE)


class State(Protocol):
    """What a generator remembers: 8 bytes each."""

    seed: int
    offset: int


class Philox:
    """Draws arrays of CuPy; the methods are those of numpy.random.Generator that the engine calls."""

    def __init__(self, cupy: Any, state: State) -> None:
        self._cupy = cupy
        self._state = state

    def random(self, size: Any = (), dtype: Any = np.float64) -> Array:
        """Uniform numbers from [0, 1)."""
        return self._drawn("uniform", "", "draw_uniform(g, y)", size, dtype)

    def standard_normal(self, size: Any = (), dtype: Any = np.float64) -> Array:
        """Normal numbers of mean 0 and variance 1."""
        return self._drawn("normal", "", "draw_normal(g, y)", size, dtype)

    def integers(self, low: int, high: int, size: Any = (), dtype: Any = np.int64) -> Array:
        """Integers from low to high - 1."""
        code = "g.next(); y = (T)((unsigned long long)low + __umul64hi(g.word(0), count))"
        limits = np.int64(low), np.uint64(high - low)
        return self._drawn("integers", "int64 low, uint64 count, ", code, size, dtype, *limits)

    def poisson(self, lam: Array) -> Array:
        """Poisson distributed numbers; each element of lam is a mean."""
        return self._drawn("poisson", "float64 mean, ", "y = (T)draw_poisson(g, mean)", lam.shape, np.int64, lam)

    def binomial(self, n: Array, p: Array) -> Array:
        """Numbers of successes in n trials of probability p; shapes broadcast."""
        shape = np.broadcast_shapes(n.shape, p.shape)
        code = "y = (T)draw_binomial(g, (double)n, p)"
        return self._drawn("binomial", "int64 n, float64 p, ", code, shape, np.int64, n, p)

    def _drawn(self, name: str, inputs: str, code: str, size: Any, dtype: Any, *given: Any) -> Array:
        """An array of one kernel; the sequence goes on after its elements."""
        made = self._cupy.empty(size, dtype)
        if made.size:
            parameters = f"{inputs}uint64 key, uint64 offset"
            body = f"Philox g(key, offset + (unsigned long long)i); {code};"
            kernel = _kernel(self._cupy, f"gradwire_{name}", parameters, body)
            kernel(*given, np.uint64(self._state.seed), np.uint64(self._state.offset), made)
            self._state.offset = (self._state.offset + math.prod(made.shape)) % 2**64
        return made
