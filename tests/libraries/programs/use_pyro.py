"""Inference of a coin's bias by stochastic variational inference."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import Adam
from torch.distributions import constraints

pyro.set_rng_seed(0)
data = torch.tensor([1.0] * 6 + [0.0] * 4)


def model(data):
    bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(data)):
        pyro.sample("obs", dist.Bernoulli(logits=bias), obs=data)


def guide(data):
    loc = pyro.param("loc", torch.tensor(0.0))
    scale = pyro.param("scale", torch.tensor(1.0), constraint=constraints.positive)
    pyro.sample("bias", dist.Normal(loc, scale))


svi = SVI(model, guide, Adam({"lr": 0.02}), loss=Trace_ELBO())
losses = [svi.step(data) for _ in range(40)]
assert sum(losses[-10:]) < sum(losses[:10])
