import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune
from _kit import *


def attempt(function):
    try:
        print(function())
    except (ValueError, TypeError, AssertionError) as error:
        print(type(error).__mro__[-3].__name__, str(error).split(" of ")[0])


def names(module):
    return list(dict(module.named_parameters())), list(dict(module.named_buffers())), prune.is_pruned(module)


torch.manual_seed(0)
m = nn.Linear(4, 6)
prune.random_unstructured(m, "weight", 0.3)
print(m.weight, names(m))
prune.ln_structured(m, "weight", 0.5, n=2, dim=0)
prune.random_structured(m, "weight", 1, dim=1)
print(m.weight_mask, len(m._forward_pre_hooks), list(m.state_dict()))
m(torch.ones(2, 4)).sum().backward()
say(m.weight_orig.grad)
print(prune.remove(m, "weight").weight, names(m))
attempt(lambda: prune.remove(m, "weight"))
for amount in (2.5, 100, -1, "a"):
    attempt(lambda: prune.l1_unstructured(m, "weight", amount))
attempt(lambda: prune.ln_structured(m, "bias", 1, n=2, dim=0))
attempt(lambda: prune.l1_unstructured(m, "weight", 2, importance_scores=torch.arange(6.0)))
print(names(m))

net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
pairs = [(net[0], "weight"), (net[2], "weight")]
for amount in (0.4, 4):
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=amount)
    print(net[0].weight_mask, net[2].weight_mask)
print([type(hook).__name__ for hook in net[0]._forward_pre_hooks.values()])
attempt(lambda: prune.global_unstructured(pairs, pruning_method=prune.LnStructured, amount=4, n=2))
prune.custom_from_mask(net[0], "bias", torch.tensor([1, 0, 1, 1]))
prune.identity(net[2], "bias")
print(net[0].bias, net[2].bias_mask)


class EverySecond(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


EverySecond.apply(net[2], "bias")
print(net[2].bias_mask)
x, y = torch.randn(32, 3), torch.randint(0, 2, (32,))
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for _ in range(5):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    print(f"{loss.item():.5f}")
for module, name in pairs:
    prune.remove(module, name)
    print(float(torch.sum(module.weight == 0)) / module.weight.nelement())
print(net.load_state_dict(copy.deepcopy(net.state_dict())))
conv = nn.Conv2d(2, 3, 2)
prune.ln_structured(conv, name="weight", amount=0.4, n=1, dim=0)
print(conv.weight_mask.sum((1, 2, 3)))
prune.ln_structured(conv, name="weight", amount=1, n=float("inf"), dim=-1)
print(conv.weight_mask.sum((0, 1, 2)), prune.L1Unstructured(amount=0.5).prune(torch.arange(6.0).reshape(2, 3)))
gru = nn.GRU(2, 3)
prune.l1_unstructured(gru, "weight_hh_l0", 0.3)
print(gru(torch.ones(2, 1, 2))[0])
