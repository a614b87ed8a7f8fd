"""Variational inference of a coin and of a regression; MCMC by NUTS."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, MCMC, NUTS, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.optim import Adam

pyro.set_rng_seed(0)
data = torch.tensor([1.0] * 6 + [0.0] * 4)


def model(data):
    f = pyro.sample("fairness", dist.Beta(torch.tensor(10.0), torch.tensor(10.0)))
    with pyro.plate("data", len(data)):
        pyro.sample("obs", dist.Bernoulli(f), obs=data)


def guide(data):
    a = pyro.param("a", torch.tensor(15.0), constraint=dist.constraints.positive)
    b = pyro.param("b", torch.tensor(15.0), constraint=dist.constraints.positive)
    pyro.sample("fairness", dist.Beta(a, b))


svi = SVI(model, guide, Adam({"lr": 0.05}), loss=Trace_ELBO())
losses = [svi.step(data) for _ in range(20)]
a, b = pyro.param("a").item(), pyro.param("b").item()
assert 0.4 < a / (a + b) < 0.7

x = torch.linspace(0, 1, 20)
y = 2 * x + 1 + 0.1 * torch.randn(20)


def line(x, y=None):
    slope = pyro.sample("slope", dist.Normal(0.0, 3.0))
    start = pyro.sample("start", dist.Normal(0.0, 3.0))
    with pyro.plate("points", len(x)):
        pyro.sample("y", dist.Normal(slope * x + start, 0.1), obs=y)


pyro.clear_param_store()
auto = AutoNormal(line)
svi = SVI(line, auto, Adam({"lr": 0.1}), loss=Trace_ELBO())
losses = [svi.step(x, y) for _ in range(60)]
assert losses[-1] < losses[0]
mcmc = MCMC(NUTS(line, max_tree_depth=4), num_samples=5, warmup_steps=5, disable_progbar=True)
mcmc.run(x, y)
