"""Ready-made parametrizations (torch.nn.utils.parametrizations): weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradwire.nn.functional as F
from gradwire._base.modes import no_grad
from gradwire._functions.create import eye, make_tensor, randn, zeros_like
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn.utils.parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except(v: Tensor, dim: int) -> Tensor:
    """The norms over all dimensions but one, kept as ones; over all where `dim` is -1."""
    if dim == -1:
        return ops.linalg_vector_norm(v)
    return ops.linalg_vector_norm(v, 2, [each for each in range(v.ndim) if each != dim % v.ndim], True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        made: Tensor = weight_v * (weight_g / norm_except(weight_v, self.dim))
        return made

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight's length (`original0`) and direction (`original1`) apart, one length per index of `dim`.

    Raises ValueError for a name that the module has not. Like torch.nn.utils.parametrizations.weight_norm.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state: Any, prefix: str, *rest: Any) -> None:
        # States of nn.utils.weight_norm load, too.
        old = [f"{prefix}{name}{suffix}" for suffix in ("_g", "_v")]
        if all(key in state for key in old):
            for place, key in enumerate(old):
                state[f"{prefix}parametrizations.{name}.original{place}"] = state.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = as_matrix(weight.detach(), self.dim)
                rows, columns = matrix.shape
                self.register_buffer("_u", F.normalize(matrix.new_empty(rows).normal_(), dim=0, eps=eps))
                self.register_buffer("_v", F.normalize(matrix.new_empty(columns).normal_(), dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        for _ in range(count):
            self._u = F.normalize(ops.mv(matrix, self._v), dim=0, eps=self.eps)
            self._v = F.normalize(ops.mv(matrix.transpose(0, 1), self._u), dim=0, eps=self.eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        sigma = ops.dot(self._u, ops.mv(matrix, self._v))
        made: Tensor = weight / sigma
        return made

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The weight with `dim` as rows and all else as columns."""
    if dim:
        weight = weight.permute(dim, *(each for each in range(weight.ndim) if each != dim))
    return weight.flatten(1)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight by its largest singular value, estimated anew at each use in training.

    Raises ValueError for a name that the module has not, or for no iterations. Like
    torch.nn.utils.parametrizations.spectral_norm.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module!r}' has no parameter or buffer with name '{name}'")
    register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, _row_dim(module, dim), eps))
    return module


def _row_dim(module: Module, dim: int | None) -> int:
    from gradwire.nn._conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

    if dim is not None:
        return dim
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class _Orthogonal(Module):
    """X to a matrix with orthonormal columns (rows, if it is wider than high)."""

    base: Tensor | None

    def __init__(self, shape: Any, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape = shape
        self.orthogonal_map = orthogonal_map
        self._relative = use_trivialization
        if use_trivialization:
            # Found by right_inverse: the matrix that X = -1 stands for.
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        if wide:
            X = X.mT
        n, k = X.shape[-2:]
        if self.orthogonal_map == "householder":
            lower = X.tril(-1)
            tau = 2.0 / (1.0 + (lower * lower.conj()).sum(-2))
            Q = ops.linalg_householder_product(lower, tau)
            Q = Q * X.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2).detach()
        else:
            X = X.tril()
            if n != k:
                X = ops.cat([X, X.new_zeros((*X.shape[:-1], n - k))], -1)
            A = X - X.mH
            if self.orthogonal_map == "matrix_exp":
                Q = ops.matrix_exp(A)
            else:
                one = eye(n, dtype=A.dtype, device=A.device)
                Q = ops.linalg_solve(one + A * -0.5, one + A * 0.5)
            if n != k:
                Q = Q[..., :k]
        if self._relative and self.base is not None:
            Q = self.base @ Q
        return Q.mT if wide else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of {Q.shape}."
            )
        given, wide = Q, Q.shape[-2] < Q.shape[-1]
        if wide:
            Q = Q.mT
        n, k = Q.shape[-2:]
        if not self._relative:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            made = _reflections(Q)
            return made.mT if wide else made
        if n != k:
            Q = ops.cat([Q, randn(*Q.shape[:-1], n - k, dtype=Q.dtype, device=Q.device)], -1)
        Q, R = ops.linalg_qr(Q)
        self.base = Q * R.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
        found = zeros_like(given)
        found.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return found


def _reflections(Q: Tensor) -> Tensor:
    """The Householder vectors of a matrix with orthonormal columns, signs on the diagonal; computed here, once."""
    values = Q.detach().cpu().numpy()
    made = np.empty_like(values)
    for place in np.ndindex(*values.shape[:-2]):
        raw, tau = np.linalg.qr(values[place], mode="raw")
        vectors = raw.T.copy()
        signs = np.sign(np.diagonal(vectors)).copy()
        signs[tau == 0] *= -1
        np.fill_diagonal(vectors, signs)
        made[place] = vectors
    return make_tensor(made).to(Q.device)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix, or a batch of them, orthogonal, by `orthogonal_map`: "matrix_exp", "cayley" or "householder".

    The default is "matrix_exp" for square matrices, else "householder". With `use_trivialization` the map starts from
    the matrix that is there, and it can be assigned. Raises ValueError for another map, for a tensor that is not a
    matrix, and for an unknown name. Like torch.nn.utils.parametrizations.orthogonal.
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module!r}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    if orthogonal_map == "householder" and weight.is_complex():
        raise ValueError("The householder parametrization does not support complex tensors.")
    register_parametrization(module, name, _Orthogonal(weight.shape, orthogonal_map, use_trivialization), unsafe=True)
    return module
