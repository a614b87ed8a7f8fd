"""Further distributions, transforms, constraints and divergences against PyTorch: values, samples, gradients."""

from collections.abc import Callable
from typing import Any

import pytest

import gradwire
from tests.client.oracle import refuse, torch
from tests.comparison import alike, plain

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:.*Low df values"),
]


def numbers(m: Any, *values: float) -> Any:
    return m.tensor(values, dtype=m.float64, requires_grad=True)


def makers(m: Any, held: list[Any] | None = None) -> dict[str, Callable[[], Any]]:
    """What makes one of each, with arguments of float64, which are added to `held`."""
    d, held = m.distributions, [] if held is None else held

    def n(*values: float) -> Any:
        held.append(numbers(m, *values))
        return held[-1]

    a, b = n(0.4, 1.7), n(2.5, 0.6)
    factor, diagonal = n(0.7, 0.2, -0.4, 0.9, 0.1, 0.3).reshape(3, 2), n(0.3, 0.4, 0.5)
    affine = [d.AffineTransform(1.0, -2.0), d.SigmoidTransform()]
    return {
        "ContinuousBernoulli": lambda: d.ContinuousBernoulli(n(0.2, 0.4999)),
        "ContinuousBernoulli of logits": lambda: d.ContinuousBernoulli(logits=n(0.2, -1.5)),
        "FisherSnedecor": lambda: d.FisherSnedecor(n(3.0, 7.5), n(5.5, 1.5)),
        "InverseGamma": lambda: d.InverseGamma(n(3.5, 0.8), b),
        "Kumaraswamy": lambda: d.Kumaraswamy(b, n(2.0, 3.0)),
        "LKJCholesky": lambda: d.LKJCholesky(3, n(0.7, 1.5)),
        "LogisticNormal": lambda: d.LogisticNormal(a, b),
        "LowRankMultivariateNormal": lambda: d.LowRankMultivariateNormal(n(1.0, 2.0, 3.0), factor, diagonal),
        "NegativeBinomial": lambda: d.NegativeBinomial(n(3.0, 0.0), n(0.3, 0.6)),
        "NegativeBinomial of logits": lambda: d.NegativeBinomial(4, logits=n(0.3, -0.6)),
        "Pareto": lambda: d.Pareto(b, n(1.5, 3.0)),
        "RelaxedBernoulli": lambda: d.RelaxedBernoulli(n(0.7), n(0.3, 0.6)),
        "RelaxedOneHotCategorical": lambda: d.RelaxedOneHotCategorical(n(0.7), n(0.3, 0.6, 0.1)),
        "VonMises": lambda: d.VonMises(a, b),
        "Weibull": lambda: d.Weibull(b, n(1.5, 3.0)),
        "Gamma": lambda: d.Gamma(a, b),
        "Beta": lambda: d.Beta(a, b),
        "Chi2": lambda: d.Chi2(b),
        "Dirichlet": lambda: d.Dirichlet(m.stack([a, b])),
        "StudentT": lambda: d.StudentT(n(3.0, 1.5), a, b),
        "falling transforms": lambda: d.TransformedDistribution(d.Normal(a, b), affine),
        "reshaped": lambda: d.TransformedDistribution(
            d.Independent(d.Normal(m.zeros(6, dtype=m.float64), b.sum()), 1), [d.ReshapeTransform((6,), (2, 3))]
        ),
        "simplex": lambda: d.TransformedDistribution(d.Independent(d.Normal(a, b), 1), d.StickBreakingTransform()),
        "independent": lambda: d.Independent(d.Weibull(b, n(1.5, 3.0)), 1),
        "expanded": lambda: d.Weibull(b, n(1.5, 3.0)).expand((4, 2)),
        "expanded factors": lambda: d.LKJCholesky(3, n(0.7, 1.5)).expand((4, 2)),
        "expanded low rank": lambda: d.LowRankMultivariateNormal(n(1.0, 2.0, 3.0), factor, diagonal).expand((2,)),
        "expanded, relaxed": lambda: d.RelaxedBernoulli(n(0.7), n(0.3, 0.6)).expand((3, 2)),
    }


def made(name: str, m: Any, held: list[Any] | None = None) -> Any:
    """The one of that name: making all of them for each test would take most of its time."""
    return makers(m, held)[name]()


torch.distributions.ReshapeTransform = torch.distributions.transforms.ReshapeTransform  # as here
_NAMES = list(makers(torch))


# PyTorch approximates these derivatives by polynomials.
_IMPLICIT = {"FisherSnedecor", "InverseGamma", "Gamma", "Beta", "Chi2", "Dirichlet", "StudentT"}


def _or_missing(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except NotImplementedError:
        return "missing"


def same(case: Callable[[Any], Any]) -> None:
    found, expected = plain(case(gradwire)), plain(case(torch))
    assert alike(found, expected), f"{found} is not {expected}"


@pytest.mark.parametrize("name", _NAMES)
def test_samples_densities_and_moments_are_pytorchs(name: str) -> None:
    def case(m: Any) -> list[Any]:
        each = made(name, m)
        m.manual_seed(7)
        drawn = each.sample((3,))
        found = [drawn, each.log_prob(drawn).detach(), repr(each.support), each.has_rsample]
        found += [tuple(each.batch_shape), tuple(each.event_shape)]
        found += [_or_missing(lambda at=at: getattr(each, at).detach()) for at in ("mean", "mode", "variance")]
        return [*found, _or_missing(lambda: each.entropy().detach()), _or_missing(lambda: each.cdf(drawn).detach())]

    same(case)


@pytest.mark.parametrize("name", [name for name in _NAMES if made(name, torch).has_rsample])
def test_gradients_of_samples_are_pytorchs(name: str) -> None:
    def slopes(m: Any) -> list[Any]:
        held: list[Any] = []
        each = made(name, m, held)
        m.manual_seed(8)
        drawn = each.rsample((5,))
        weights = m.arange(drawn.numel(), dtype=m.float64).reshape(drawn.shape).cos()
        found = m.autograd.grad((drawn * weights).sum(), held, allow_unused=True)
        return [None if slope is None else slope.tolist() for slope in found]

    rel, abs_ = (5e-3, 2e-2) if name in _IMPLICIT else (1e-7, 1e-8)
    for one, other in zip(slopes(gradwire), slopes(torch), strict=True):
        assert (one is None) == (other is None)
        assert one is None or one == pytest.approx(other, rel=rel, abs=abs_)


def test_gamma_and_dirichlet_numbers_are_pytorchs_for_all_dtypes() -> None:
    def case(m: Any) -> list[Any]:
        m.manual_seed(3)
        found = []
        for dtype in (m.float32, m.float64):
            given = m.linspace(0.01, 40.0, 60, dtype=dtype).reshape(4, 15)
            found += [m.distributions.Gamma(given, 1.0).sample(), m.distributions.Dirichlet(given.T).sample()]
            found += [m.randn(3, dtype=dtype), m.distributions.Gamma(m.zeros(0, dtype=dtype), 1.0).sample()]
        return found

    same(case)


def test_dirichlet_numbers_of_small_concentrations_are_pytorchs() -> None:
    def case(m: Any) -> list[Any]:
        m.manual_seed(5)
        found = []
        for dtype in (m.float32, m.float64):
            drawn = m.distributions.Dirichlet(m.full((20, 2), 1e-3, dtype=dtype)).sample()
            found += [drawn, (1 - drawn).log()]  # the largest numbers are below 1 by the dtype's last digit
        return found

    same(case)


def pairs(m: Any) -> list[tuple[Any, Any]]:
    """Distributions p and q of all pairs with a closed form."""
    d, n = m.distributions, lambda *values: numbers(m, *values)
    held = {
        "Bernoulli": (n(0.3, 0.6),), "Beta": (n(1.5, 2.5), n(0.7, 3.0)), "Cauchy": (n(0.1, 2.0), n(0.7, 3.0)),
        "ContinuousBernoulli": (n(0.3, 0.6),), "Exponential": (n(0.4, 2.0),), "Gamma": (n(0.4, 2.0), n(1.5, 0.5)),
        "Geometric": (n(0.4, 0.2),), "Gumbel": (n(0.4, -2.0), n(1.5, 0.5)), "HalfNormal": (n(0.4, 2.0),),
        "Laplace": (n(0.4, -2.0), n(1.5, 0.5)), "Normal": (n(0.4, -2.0), n(1.5, 0.5)), "Poisson": (n(0.4, 2.0),),
        "Pareto": (n(0.4, 2.0), n(1.5, 3.5)), "Uniform": (n(0.1, 0.3), n(0.4, 0.9)), "Dirichlet": (n(0.4, 2.0, 1.0),),
        "Weibull": (n(0.4, 2.0), n(1.5, 3.5)), "LogNormal": (n(0.4, -2.0), n(1.5, 0.5)),
        "Categorical": (n(0.4, 0.2, 0.4),),
    }  # fmt: skip
    one = {name: getattr(d, name)(*given) for name, given in held.items()}
    one["Binomial"] = d.Binomial(4, n(0.3, 0.6))
    matrix = n(2.0, 0.3, 0.3, 1.0).reshape(2, 2)
    one["MultivariateNormal"] = d.MultivariateNormal(n(0.3, 1.0), matrix)
    one["LowRankMultivariateNormal"] = d.LowRankMultivariateNormal(n(0.1, 0.2), matrix[:, :1], n(0.7, 0.8))
    one["Wishart"] = d.Wishart(n(3.5)[0], matrix)
    two = {name: getattr(d, name)(*(each.detach() * 1.1 for each in given)) for name, given in held.items()
           if name not in ("Categorical", "Weibull", "LogNormal")}  # fmt: skip
    two["Binomial"] = d.Binomial(4, n(0.5, 0.2))
    two["MultivariateNormal"] = d.MultivariateNormal(n(0.1, 0.2), matrix.detach() * 1.5)
    two["LowRankMultivariateNormal"] = d.LowRankMultivariateNormal(n(0.3, 0.1), matrix[:, 1:], n(0.4, 0.9))
    two["Wishart"] = d.Wishart(n(4.5)[0], matrix.detach() * 0.7)
    two["ContinuousBernoulli"] = d.ContinuousBernoulli(n(0.5, 0.2))
    found = [(p, q) for p in one.values() for q in two.values()]
    found.append((one["LogNormal"], d.LogNormal(n(0.1, 0.2), n(0.3, 0.4))))
    return [*found, (one["Categorical"], d.Categorical(n(0.1, 0.2, 0.7))), (one["Weibull"], one["Weibull"])]


def test_divergences_are_pytorchs() -> None:
    def case(m: Any) -> list[Any]:
        return [
            (
                type(p).__name__,
                type(q).__name__,
                _or_missing(lambda p=p, q=q: m.distributions.kl_divergence(p, q).detach()),
            )
            for p, q in pairs(m)
        ]

    same(case)


def test_divergence_of_sure_events_keeps_its_digits() -> None:
    def case(m: Any) -> list[Any]:
        one, other = numbers(m, -13.3, 20.0, 3.0, -40.0), numbers(m, 31.35, 35.0, 30.0, -38.0)
        kind = m.distributions.Bernoulli
        found = m.distributions.kl_divergence(kind(logits=one), kind(logits=other))
        return [found.detach(), *m.autograd.grad(found.sum(), [one, other])]

    same(case)


def test_transforms_are_pytorchs() -> None:
    def case(m: Any) -> list[Any]:
        t, c = m.distributions.transforms, m.distributions.constraints
        x, found = numbers(m, 0.3, -1.2, 0.8).detach(), []
        parts = [t.ExpTransform(), t.TanhTransform(), t.identity_transform]
        held = [
            (t.AbsTransform(), x), (t.StickBreakingTransform(), x), (t.SoftmaxTransform(), x),
            (t.CorrCholeskyTransform(), x), (t.LowerCholeskyTransform(), m.outer(x, x)),
            (t.PositiveDefiniteTransform(), m.outer(x, x)), (t.StackTransform(parts), x),
            (t.CatTransform(parts[:2], lengths=[1, 2]), x), (t.IndependentTransform(t.ExpTransform(), 1), x),
            (t.ComposeTransform([t.AffineTransform(1.0, -3.0), t.StickBreakingTransform()]), x),
            (t.AffineTransform(x, x.exp(), event_dim=1), x), (t.ReshapeTransform((3,), (3, 1)), x),
            (t.CumulativeDistributionTransform(m.distributions.Normal(0.0, 1.0)), x),
            (t.PowerTransform(x), x.exp()), (t.SigmoidTransform().inv, x.sigmoid()),
        ]  # fmt: skip
        for each, at in held:
            y = each(at)
            found += [y, each.inv(y), repr(each.domain), repr(each.codomain), each.bijective]
            found += [_or_missing(lambda each=each, at=at, y=y: each.log_abs_det_jacobian(at, y))]
            found += [tuple(each.forward_shape(at.shape)), tuple(each.inverse_shape(y.shape))]
        for registry in (m.distributions.transform_to, m.distributions.biject_to):
            for one in (c.positive, c.unit_interval, c.interval(-1.0, 3.0), c.less_than(2.0), c.simplex, c.real_vector,
                        c.lower_cholesky, c.positive_definite, c.corr_cholesky, c.boolean,
                        c.independent(c.positive, 1), c.stack([c.real, c.positive, c.real], 0)):  # fmt: skip
                given = m.outer(x, x) if one in (c.lower_cholesky, c.positive_definite) else x
                found.append(_or_missing(lambda registry=registry, one=one, given=given: registry(one)(given)))
        cached = t.ExpTransform(cache_size=1)
        return [*found, cached.inv(cached(x)) is x, t.ExpTransform() == t.ExpTransform(), t.AffineTransform(0, 1) == x]

    same(case)


def test_constraints_are_pytorchs() -> None:
    def case(m: Any) -> list[Any]:
        c = m.distributions.constraints
        vector, matrix = m.tensor([0.2, 0.8, 0.0]), m.tensor([[1.0, 0.0], [0.6, 0.8]])
        vectors = [c.real, c.boolean, c.one_hot, c.simplex, c.positive, c.nonnegative, c.unit_interval,
                   c.less_than(0.5), c.half_open_interval(0.0, 0.8), c.nonnegative_integer, c.positive_integer,
                   c.multinomial(2), c.integer_interval(0, 3), c.real_vector,
                   c.cat([c.real, c.positive], 0, [1, 2])]  # fmt: skip
        matrices = [c.square, c.symmetric, c.lower_triangular, c.lower_cholesky, c.corr_cholesky]
        products = [c.symmetric, c.positive_definite, c.positive_semidefinite]
        found = [(repr(each), each.check(vector), each.event_dim, each.is_discrete) for each in vectors]
        found += [(repr(each), each.check(matrix), each.event_dim) for each in matrices]
        found += [(repr(each), each.check(matrix @ matrix.mT)) for each in products]
        return [*found, c.is_dependent(m.distributions.Uniform.support), c.is_dependent(c.real)]

    same(case)


def test_wrong_arguments_are_refused() -> None:
    refuse(lambda t: t.distributions.LKJCholesky(1), ValueError, "greater than or equal to 2")
    refuse(lambda t: t.distributions.Weibull(t.tensor(-1.0), 1.0), ValueError, "Expected parameter scale")
    refuse(lambda t: t.distributions.NegativeBinomial(3), ValueError, "Either `probs` or `logits`")
    refuse(lambda t: t.distributions.transforms.ExpTransform(cache_size=2), ValueError, "cache_size must be 0 or 1")
    refuse(lambda t: t.distributions.Wishart(1.0, t.eye(3)), ValueError, "greater than ndim - 1")
    refuse(
        lambda t: t.distributions.TransformedDistribution(
            t.distributions.Normal(0.0, 1.0), t.distributions.StickBreakingTransform()
        ),
        ValueError,
        "needs to have shape with size at least 1",
    )


def test_wishart_densities_and_entropies_are_pytorchs() -> None:
    def case(m: Any) -> list[Any]:
        matrix = m.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=m.float64)
        each = m.distributions.Wishart(m.tensor([3.5, 5.0], dtype=m.float64), matrix)
        value = matrix * 1.7
        return [each.log_prob(value), each.entropy(), each.mean, each.mode, each.variance, each.precision_matrix]

    same(case)
    gradwire.manual_seed(0)
    drawn = gradwire.distributions.Wishart(5.0, gradwire.eye(2) * 0.5).sample((4000,))
    assert drawn.mean(0).flatten().tolist() == pytest.approx([2.5, 0.0, 0.0, 2.5], abs=0.15)
