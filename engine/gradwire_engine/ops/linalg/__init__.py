"""Linear algebra: products, decompositions, solvers, norms of matrices; statistics of samples."""

from gradwire_engine.ops.linalg import (
    contract,
    decompose,
    distances,
    eigen,
    ldl,
    linalg,
    lu,
    matrix,
    matrix_norm,
    products,
    statistics,
    systems,
)

__all__ = [
    "contract",
    "decompose",
    "distances",
    "eigen",
    "ldl",
    "linalg",
    "lu",
    "matrix",
    "matrix_norm",
    "products",
    "statistics",
    "systems",
]
