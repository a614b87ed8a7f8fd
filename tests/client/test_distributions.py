"""Distributions against PyTorch: what expanding keeps, modes and entropies, which arguments are refused."""

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")


def made(t):
    """One of each, with arguments of float64."""
    d = t.distributions

    def number(*values):
        return t.tensor(values, dtype=t.float64)

    one, two = number(0.4, 1.7), number(2.5, 0.6)
    return [
        d.LogNormal(one, two),
        d.HalfNormal(two),
        d.HalfCauchy(two),
        d.Exponential(two),
        d.Gamma(two, one),
        d.Beta(two, one),
        d.Beta(two, number(3.0, 2.5)),
        d.Dirichlet(t.stack([one, two])),
        d.StudentT(two, one, two),
        d.Geometric(number(0.2, 0.7)),
        d.Binomial(5, number(0.2, 0.7)),
        d.Poisson(two),
        d.OneHotCategorical(logits=t.stack([one, two])),
    ]


def test_what_is_made_of_distributions_expands_with_them():
    def case(t):
        d = t.distributions
        mixture = d.MixtureSameFamily(d.Categorical(t.ones(2)), d.Normal(t.zeros(2), t.ones(2)))
        changed = d.TransformedDistribution(d.Normal(t.zeros(2), t.ones(2)), d.ExpTransform())
        kinds = [d.Multinomial(4, t.ones(3)), d.Independent(d.Normal(t.zeros(2), 1.0), 1), mixture, changed, *made(t)]
        shapes = []
        for each in kinds:
            wide = each.expand((7, *each.batch_shape))
            sample = wide.sample((2,))
            shapes.append((tuple(wide.batch_shape), tuple(sample.shape), tuple(wide.log_prob(sample).shape)))
        return shapes

    agree(case)


def test_modes_and_entropies_are_pytorchs():
    agree(lambda t: [each.mode for each in made(t)])
    agree(lambda t: [each.entropy() for each in made(t) if not isinstance(each, t.distributions.Poisson)])
    agree(lambda t: t.distributions.Multinomial(4, t.tensor([0.2, 0.5, 0.3], dtype=t.float64)).entropy())


def test_log_probabilities_are_pytorchs_with_their_gradients():
    def case(t):
        scale = t.tensor([0.4, 1.7], dtype=t.float64, requires_grad=True)
        value = t.tensor([0.3, 2.0], dtype=t.float64, requires_grad=True)
        found = []
        for kind in (t.distributions.HalfNormal, t.distributions.HalfCauchy):
            each = kind(scale)
            log_prob = each.log_prob(value)
            found += [at.detach() for at in (log_prob, each.mean, each.variance, each.cdf(value))]
            found += t.autograd.grad(log_prob.sum(), (scale, value))
        return found

    agree(case)
    refuse(lambda t: t.distributions.HalfCauchy(t.tensor(-1.0)), ValueError, "Expected parameter scale")
    refuse(
        lambda t: t.distributions.HalfCauchy(t.tensor(1.0)).log_prob(t.tensor(-1.0)), ValueError, "within the support"
    )


def test_quantiles_are_pytorchs_and_undo_the_cdf():
    def case(t):
        d, at = t.distributions, t.tensor([0.1, 0.5, 0.9], dtype=t.float64)
        found = []
        for each in (d.LogNormal(0.3, 0.7), d.HalfNormal(1.5), d.HalfCauchy(0.8), d.Gumbel(0.2, 1.1)):
            value = each.icdf(at)
            found += [value, bool((each.cdf(value) - at).abs().max() < 1e-6)]
        return found

    agree(case)


def test_arguments_out_of_range_are_refused():
    refuse(lambda t: t.distributions.Chi2(t.tensor(-1.0)), ValueError, "Expected parameter df")
    refuse(lambda t: t.distributions.Binomial(-1, t.tensor(0.5)), ValueError, "Expected parameter total_count")
    refuse(
        lambda t: t.distributions.Binomial(t.tensor([1.0, 2.0]), t.tensor(0.5)).enumerate_support(),
        NotImplementedError,
        "Inhomogeneous total count",
    )
