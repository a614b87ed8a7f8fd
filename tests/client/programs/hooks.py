import torch
import torch.nn as nn
from _kit import *

torch.set_default_dtype(torch.float64)
model = det(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
activation, grads = {}, {}


def get_activation(name):
    def hook(model, input, output):
        activation[name] = output.detach()

    return hook


h = [m.register_forward_hook(get_activation(n)) for n, m in model.named_modules() if n]
model[0].register_full_backward_hook(lambda m, gi, go: grads.__setitem__("0", go[0].clone()))
x = randn(5, 4).requires_grad_()
out = model(x)
out.register_hook(lambda g: g * 2)
handle = x.register_hook(lambda g: say(g.abs().sum()))
out.sum().backward()
say(*activation.values(), grads["0"], x.grad)
[each.remove() for each in h]
handle.remove()
for n, p in model.named_parameters():
    p.register_hook(lambda g, n=n: torch.clamp(g, -0.1, 0.1))
model.zero_grad()
model(x).pow(2).sum().backward()
say(*[p.grad for p in model.parameters()])


# grad cam
class Cam(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.c = nn.Linear(4, 2)
        self.g = None

    def hook(self, grad):
        self.g = grad

    def forward(self, x):
        x = self.f(x)
        x.register_hook(self.hook) if x.requires_grad else None
        self.a = x
        return self.c(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


m = det(Cam())
o = m(randn(1, 3, 6, 6))
o[:, 1].backward()
pooled = torch.mean(m.g, dim=[0, 2, 3])
a = m.a.detach().clone()
for i in range(4):
    a[:, i, :, :] *= pooled[i]
heat = torch.mean(a, dim=1).squeeze()
heat = torch.clamp(heat, min=0)
heat /= torch.max(heat)
say(heat)
y = m.a.sum()
y.retain_grad() if not y.is_leaf else None
y.mul(2).backward() if False else None
# FGSM
net = det(nn.Linear(4, 3))
d = randn(2, 4)
d.requires_grad = True
loss = nn.functional.nll_loss(torch.log_softmax(net(d), 1), torch.tensor([0, 1]))
net.zero_grad()
loss.backward()
pert = torch.clamp(d + 0.1 * d.grad.data.sign(), 0, 1)
say(pert)
opt = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}


def oh(p):
    opt[p].step()
    opt[p].zero_grad()


for p in net.parameters():
    p.register_post_accumulate_grad_hook(oh)
net(d.detach()).sum().backward()
say(*net.parameters())
