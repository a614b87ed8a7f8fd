"""A spiking network trained through surrogate gradients."""

import snntorch as snn
import torch
from snntorch import surrogate

torch.manual_seed(0)
first, second = torch.nn.Linear(4, 12), torch.nn.Linear(12, 2)
spike = surrogate.fast_sigmoid()
one, other = snn.Leaky(beta=0.9, spike_grad=spike), snn.Leaky(beta=0.9, spike_grad=spike)
x, y = torch.randn(16, 4), torch.arange(16) % 2
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
losses = []
for _ in range(8):
    m1, m2 = one.init_leaky(), other.init_leaky()
    out = []
    for _ in range(6):
        s1, m1 = one(first(x), m1)
        s2, m2 = other(second(s1), m2)
        out.append(m2)
    loss = torch.nn.functional.cross_entropy(torch.stack(out).sum(0), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
