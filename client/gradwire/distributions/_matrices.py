"""Distributions of vectors and matrices: LKJCholesky, LowRankMultivariateNormal, Wishart."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import gradwire.distributions.constraints as constraints
from gradwire._base import dtypes
from gradwire._base.modes import no_grad
from gradwire._functions.composed import broadcast_shapes
from gradwire._functions.create import arange, eye
from gradwire._functions.create import tensor as new_tensor
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions._base import Distribution, broadcast_all, normal
from gradwire.distributions._further import ExponentialFamily
from gradwire.distributions._gammas import Beta, Chi2
from gradwire.distributions._joined import cholesky_of_inverse


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices; det^(concentration - 1). Like torch.distributions.LKJCholesky.

    Raises ValueError for fewer than two dimensions. Samples by the onion method.
    """

    arg_constraints = {"concentration": constraints.positive}  # noqa: RUF012
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        c = self.concentration
        offset = arange(dim - 1, dtype=c.dtype, device=c.device)
        offset = ops.cat([offset.new_zeros((1,)), offset])
        self._beta = Beta(offset + 0.5, (c + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * offset, validate_args)
        super().__init__(c.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        with no_grad():
            radius = self._beta.sample(sample_shape).unsqueeze(-1)
            direction = normal(radius, self._extended(sample_shape)).tril(-1)
            lengths = ops.linalg_norm(direction, dim=-1, keepdim=True)
            direction = ops.where(lengths == 0, 0.0, direction / lengths)
            rows = radius.sqrt() * direction
            rest = (1 - (rows**2).sum(-1)).clamp(min=dtypes.finfo(rows.dtype).tiny)
            return rows + rest.sqrt().diag_embed()

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        diagonal = self._checked(value).diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        count = self.dim - 1
        alpha = self.concentration + 0.5 * count
        volume = 0.5 * count * math.log(math.pi) + ops.mvlgamma(alpha - 0.5, count) - ops.lgamma(alpha) * count
        made: Tensor = (order * diagonal.log()).sum(-1) - volume
        return made


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance W Wᵀ + diag(d). Like PyTorch's of that name.

    Raises ValueError for shapes that do not go together.
    """

    arg_constraints = {  # noqa: RUF012
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = tuple(loc.shape[-1:])
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if tuple(cov_factor.shape[-2:-1]) != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if tuple(cov_diag.shape[-1:]) != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = tuple(broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]))
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, *event))
        super().__init__(batch, event, validate_args)
        weighted = cov_factor.mT / cov_diag.unsqueeze(-2)
        one = eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance = ops.linalg_cholesky(weighted @ cov_factor + one)

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The location."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The covariance's diagonal."""
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        """W Wᵀ + diag(d)."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        root = self.cov_diag.sqrt().unsqueeze(-1)
        weighted = self.cov_factor / root
        one = eye(self._event_shape[0], dtype=self.loc.dtype, device=self.loc.device)
        made: Tensor = root * ops.linalg_cholesky(weighted @ weighted.mT + one)
        return made

    @property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse, by the capacitance matrix."""
        solved = self._solved(self.cov_factor.mT / self.cov_diag.unsqueeze(-2))
        return self.cov_diag.reciprocal().diag_embed() - solved.mT @ solved

    def _solved(self, right: Tensor) -> Tensor:
        """The factor of the capacitance, inverted, times a matrix."""
        batch = broadcast_shapes(self._capacitance.shape[:-2], right.shape[:-2])
        factor = self._capacitance.expand((*batch, *self._capacitance.shape[-2:]))
        made: Tensor = ops.linalg_solve_triangular(factor, right.expand((*batch, *right.shape[-2:])), upper=False)
        return made

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        shape = self._extended(sample_shape)
        inner = normal(self.loc, (*shape[:-1], self.cov_factor.shape[-1]))
        outer = normal(self.loc, shape)
        return self.loc + (self.cov_factor @ inner.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * outer

    def _log_det(self) -> Tensor:
        """The log of the covariance's determinant."""
        half = self._capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return 2 * half + self.cov_diag.log().sum(-1)

    def _distance(self, away: Tensor) -> Tensor:
        """Mahalanobis' distance, squared."""
        weighted = (self.cov_factor.mT / self.cov_diag.unsqueeze(-2)) @ away.unsqueeze(-1)
        inner = self._solved(weighted).squeeze(-1).pow(2).sum(-1)
        made: Tensor = (away.pow(2) / self.cov_diag).sum(-1) - inner
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        away = self._checked(value) - self.loc
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + self._distance(away))

    def entropy(self) -> Tensor:
        """See Distribution."""
        found = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return found.expand(self._batch_shape)


class Wishart(ExponentialFamily):
    """The sum of df outer products of normal vectors, by Bartlett's decomposition. Like torch.distributions.Wishart.

    Raises ValueError for a df up to one less than the dimensions. Singular samples are returned; PyTorch redraws.
    """

    support = constraints.positive_definite
    has_rsample = True

    @property
    def arg_constraints(self) -> Any:
        """Of the matrix that was given, and of df."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        held = {name: value for name, value in given.items() if value is not None}
        if len(held) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = held.items()
        if matrix.ndim < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if not isinstance(df, Tensor):
            df = new_tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch, size = tuple(broadcast_shapes(matrix.shape[:-2], df.shape)), matrix.shape[-1]
        self.df = df.expand(batch)
        if bool((self.df <= size - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        if bool((self.df < size).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        matrix = matrix.expand((*batch, size, size))
        self.__dict__[name] = matrix
        super().__init__(batch, (size, size), validate_args)
        if name == "scale_tril":
            self._factor = matrix
        elif name == "covariance_matrix":
            self._factor = ops.linalg_cholesky(matrix)
        else:
            self._factor = cholesky_of_inverse(matrix)
        steps = arange(size, dtype=matrix.dtype, device=matrix.device)
        self._chi2 = Chi2(self.df.unsqueeze(-1) - steps, validate_args)

    def __getattr__(self, name: str) -> Any:
        factor = self.__dict__.get("_factor")
        if factor is not None and name == "scale_tril":
            return factor
        if factor is not None and name == "covariance_matrix":
            return factor @ factor.mT
        if factor is not None and name == "precision_matrix":
            return ops.linalg_inv(factor @ factor.mT)
        raise AttributeError(name)

    @property
    def mean(self) -> Tensor:
        """df times the covariance."""
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """(df - p - 1) times the covariance of p dimensions; nan where that is not positive."""
        factor = self.df - self._event_shape[-1] - 1
        return ops.where(factor <= 0, math.nan, factor)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """df (V² + diag(V) diag(V)ᵀ), by elements."""
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """See Distribution."""
        size = self._event_shape[-1]
        roots = self._chi2.rsample(sample_shape).sqrt()
        noise = roots.clamp(min=dtypes.finfo(roots.dtype).eps).diag_embed()
        rows, columns = ops.tril_indices(size, size, -1)
        noise[..., rows, columns] = normal(roots, (*roots.shape[:-1], size * (size - 1) // 2))
        factor = self._factor @ noise
        return factor @ factor.mT

    def _half_log_det(self) -> Tensor:
        made: Tensor = self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return made

    def log_prob(self, value: Any) -> Tensor:
        """See Distribution."""
        value, nu, p = self._checked(value), self.df, self._event_shape[-1]
        solved = ops.cholesky_solve(value, self._factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        volume = nu * (p * math.log(2) / 2 + self._half_log_det()) + ops.mvlgamma(nu / 2, p)
        made: Tensor = (nu - p - 1) / 2 * ops.linalg_slogdet(value)[1] - volume - solved / 2
        return made

    def entropy(self) -> Tensor:
        """See Distribution."""
        nu, p = self.df, self._event_shape[-1]
        halves = (nu.unsqueeze(-1) - arange(p, dtype=nu.dtype, device=nu.device)) / 2
        volume = (p + 1) * (p * math.log(2) / 2 + self._half_log_det()) + ops.mvlgamma(nu / 2, p)
        made: Tensor = volume - (nu - p - 1) / 2 * ops.digamma(halves).sum(-1) + nu * p / 2
        return made

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        p = self._event_shape[-1]
        count = y + (p + 1) / 2
        made: Tensor = count * (-ops.linalg_slogdet(-2 * x)[1] + math.log(2) * p) + ops.mvlgamma(count, p)
        return made
