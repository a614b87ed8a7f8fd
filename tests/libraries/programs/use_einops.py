"""Rearrangements, reductions and layers, with gradients."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import Rearrange, Reduce

x = torch.arange(24.0, requires_grad=True).reshape(2, 3, 4)
y = rearrange(x, "b (h p) w -> b h (p w)", p=3)
assert y.shape == (2, 1, 12)
assert reduce(x, "b h w -> b", "mean").tolist() == [5.5, 17.5]
assert repeat(x, "b h w -> b (2 h) w").shape == (2, 6, 4)
packed, shapes = pack([torch.ones(2, 3), torch.ones(2, 4, 3)], "b * d")
assert packed.shape == (2, 5, 3) and unpack(packed, shapes, "b * d")[0].shape == (2, 3)
net = torch.nn.Sequential(Rearrange("b h w -> b (h w)"), torch.nn.Linear(12, 2), Reduce("b c -> b", "sum"))
net(x).sum().backward()
assert net[1].weight.grad.shape == (2, 12)
assert einsum(x, x, "b h w, b v w -> b h v").shape == (2, 3, 3)
