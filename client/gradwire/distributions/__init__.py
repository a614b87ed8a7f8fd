"""Probability distributions (torch.distributions): samples, densities, entropies, divergences.

Samples of the location-scale family, Uniform, Exponential and MultivariateNormal are functions of the arguments, so
gradients pass them (`rsample`).
"""

from gradwire._base.wiring import names_of_paths
from gradwire.distributions import _kl_pairs, constraints, kl, transforms
from gradwire.distributions._base import Distribution
from gradwire.distributions._discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from gradwire.distributions._further import (
    ContinuousBernoulli,
    ExponentialFamily,
    FisherSnedecor,
    GeneralizedPareto,
    VonMises,
)
from gradwire.distributions._gammas import Beta, Chi2, Dirichlet, Gamma, StudentT
from gradwire.distributions._joined import (
    Independent,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    TransformedDistribution,
)
from gradwire.distributions._location import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    Uniform,
)
from gradwire.distributions._matrices import LKJCholesky, LowRankMultivariateNormal, Wishart
from gradwire.distributions._relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from gradwire.distributions._transformed import InverseGamma, Kumaraswamy, LogisticNormal, Pareto, Weibull
from gradwire.distributions.constraint_registry import biject_to, transform_to
from gradwire.distributions.kl import kl_divergence, register_kl
from gradwire.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]

del _kl_pairs
__getattr__ = names_of_paths(__name__)
