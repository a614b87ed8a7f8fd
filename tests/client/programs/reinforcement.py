import torch, math, random
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import (
    Categorical,
    Normal,
    Bernoulli,
    MultivariateNormal,
    Independent,
    Beta,
    Gamma,
    Uniform,
    Dirichlet,
    Exponential,
    Poisson,
    Laplace,
    OneHotCategorical,
    MixtureSameFamily,
    TransformedDistribution,
)
import torch.distributions as dist
from collections import namedtuple, deque
from _kit import *

torch.set_default_dtype(torch.float64)


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 16)
        self.dropout = nn.Dropout(p=0.0)
        self.action_head = nn.Linear(16, 2)
        self.value_head = nn.Linear(16, 1)
        self.saved = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


policy = det(Policy())
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()
for ep in range(3):
    policy.saved, policy.rewards = [], []
    for t in range(6):
        state = torch.from_numpy(np.random.RandomState(t + ep).randn(4)).float().double()
        probs, v = policy(state)
        m = Categorical(probs)
        m.sample()
        action = torch.tensor(t % 2)
        policy.saved.append((m.log_prob(action), v))
        policy.rewards.append(float(t % 3))
    R = 0
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.appendleft(R)
    returns = torch.tensor(list(returns))
    returns = (returns - returns.mean()) / (returns.std() + eps)
    pl, vl = [], []
    for (lp, v), R in zip(policy.saved, returns):
        adv = R - v.item()
        pl.append(-lp * adv)
        vl.append(F.smooth_l1_loss(v, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(pl).sum() + torch.stack(vl).sum()
    loss.backward()
    optimizer.step()
    say(loss.item())
c = Categorical(logits=randn(3, 4))
say(c.probs, c.logits, c.entropy(), c.log_prob(torch.tensor([0, 1, 3])))
print(c.sample().shape, c.sample((2,)).shape, c)
n = Normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
say(n.log_prob(torch.tensor([0.5, 0.5])), n.cdf(torch.tensor([0.5, 0.5])), n.mean, n.variance, n.stddev, n.entropy())
print(n, n.batch_shape, n.event_shape)
ind = Independent(n, 1)
say(ind.log_prob(torch.tensor([0.5, 0.5])), ind.entropy())
b = Bernoulli(logits=randn(3))
say(b.log_prob(torch.tensor([0.0, 1.0, 1.0])), b.entropy(), b.mean)
b = Bernoulli(torch.tensor([0.3]))
print(b.sample().shape)
mv = MultivariateNormal(torch.zeros(2), torch.tensor([[2.0, 0.5], [0.5, 1.0]]))
say(mv.log_prob(torch.tensor([1.0, -1.0])), mv.entropy(), mv.mean, mv.covariance_matrix)
print(mv.rsample((3,)).shape)
say(
    Beta(torch.tensor(2.0), torch.tensor(3.0)).log_prob(torch.tensor(0.4)),
    Gamma(2.0, 3.0).log_prob(torch.tensor(0.4)),
    Uniform(0.0, 2.0).log_prob(torch.tensor(0.4)),
    Exponential(2.0).log_prob(torch.tensor(0.4)),
    Laplace(0.0, 1.0).log_prob(torch.tensor(0.4)),
    Poisson(torch.tensor(3.0)).log_prob(torch.tensor(2.0)),
    Dirichlet(torch.tensor([1.0, 2.0, 3.0])).log_prob(torch.tensor([0.2, 0.3, 0.5])),
)
say(
    dist.kl_divergence(Categorical(torch.tensor([0.3, 0.7])), Categorical(torch.tensor([0.5, 0.5]))),
    dist.kl.kl_divergence(b, Bernoulli(torch.tensor([0.5]))),
)
gmm = MixtureSameFamily(
    Categorical(torch.tensor([0.3, 0.7])), Normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
)
say(gmm.log_prob(torch.tensor([0.3, -1.0])))
mu = randn(2).requires_grad_()
s = torch.zeros(2, requires_grad=True)
p = Normal(mu, s.exp())
(-p.log_prob(torch.ones(2)).sum() + p.rsample().sum() * 0).backward()
say(mu.grad, s.grad)
try:
    Normal(torch.tensor(0.0), torch.tensor(-1.0))
except ValueError as e:
    print("ValueError")
# DQN
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
net, target = (
    det(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))),
    nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
)
target.load_state_dict(net.state_dict())
opt = optim.AdamW(net.parameters(), lr=1e-3, amsgrad=True)
mem = [
    Transition(
        randn(1, 4), torch.tensor([[i % 2]], dtype=torch.long), randn(1, 4) if i % 3 else None, torch.tensor([1.0])
    )
    for i in range(6)
]
for _ in range(3):
    batch = Transition(*zip(*mem))
    mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool)
    nfs = torch.cat([s for s in batch.next_state if s is not None])
    sb, ab, rb = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    q = net(sb).gather(1, ab)
    nsv = torch.zeros(6)
    with torch.no_grad():
        nsv[mask] = target(nfs).max(1).values
    loss = nn.SmoothL1Loss()(q, ((nsv * 0.99) + rb).unsqueeze(1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(net.parameters(), 100)
    opt.step()
    say(loss.item())
    tsd, psd = target.state_dict(), net.state_dict()
    for key in psd:
        tsd[key] = psd[key] * 0.005 + tsd[key] * (1 - 0.005)
    target.load_state_dict(tsd)
say(*target.parameters())
print(net(mem[0].state).max(1).indices.view(1, 1))
# PPO ratio
new = Categorical(logits=randn(4, 2).requires_grad_())
old = randn(4)
a = torch.tensor([0, 1, 0, 1])
ratio = torch.exp(new.log_prob(a) - old)
adv = randn(4)
say(-torch.min(ratio * adv, torch.clamp(ratio, 0.8, 1.2) * adv).mean())
