import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    vmap,
    grad,
    stack_module_state,
    jacrev,
    jacfwd,
    hessian,
    vjp,
    jvp,
    grad_and_value,
)
from functools import partial
import copy
from _kit import *

torch.set_default_dtype(torch.float64)


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.fc1 = nn.Linear(4 * 9, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return F.log_softmax(self.fc1(torch.flatten(x, 1)), dim=1)


model = det(SimpleCNN())
data, targets = randn(6, 1, 8, 8), randint(0, 5, (6,))
params = {k: v.detach() for k, v in model.named_parameters()}
buffers = {k: v.detach() for k, v in model.named_buffers()}


def compute_loss(params, buffers, sample, target):
    return F.nll_loss(functional_call(model, (params, buffers), (sample.unsqueeze(0),)), target.unsqueeze(0))


ft = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))(params, buffers, data, targets)
say(*ft.values())
models = [det(SimpleCNN(), 0.1 * (i + 1)) for i in range(3)]
p, b = stack_module_state(models)
base = copy.deepcopy(models[0])
base = base.to("meta") if False else base
say(vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(p, b, data))


def predict(w, b, x):
    return F.linear(x, w, b).tanh()


W, bb, x = randn(4, 4), randn(4), randn(4)
I = torch.eye(4)
_, vjp_fn = vjp(partial(predict, W, bb), x)
(ft_j,) = vmap(vjp_fn)(I)
say(
    ft_j,
    jacrev(predict, argnums=2)(W, bb, x),
    jacfwd(predict, argnums=(0, 1))(W, bb, x)[0],
    hessian(predict, argnums=2)(W, bb, x),
)
say(jvp(torch.sin, (x,), (x,))[1])


# MAML
def net(params, x):
    x = F.relu(F.linear(x, params[0], params[1]))
    return F.linear(x, params[2], params[3])


ps = [
    (randn(6, 1) * 0.5).requires_grad_(),
    torch.zeros(6, requires_grad=True),
    (randn(1, 6) * 0.5).requires_grad_(),
    torch.zeros(1, requires_grad=True),
]
opt = torch.optim.Adam(ps, lr=1e-2)
for it in range(4):
    loss2 = 0.0
    opt.zero_grad()
    for task in range(2):
        A = 1.0 + task
        xs = randn(5, 1)
        ys = A * torch.sin(xs)
        loss = F.mse_loss(net(ps, xs), ys)
        gs = torch.autograd.grad(loss, ps, create_graph=True)
        new = [ps[i] - 0.05 * gs[i] for i in range(len(ps))]
        xs2 = randn(5, 1)
        loss2 = loss2 + ((net(new, xs2) - A * torch.sin(xs2)) ** 2).mean()
    loss2.backward()
    opt.step()
    say(loss2.item())


def get_loss(ps, x1, y1, x2, y2):
    inner = lambda q: ((net(q, x1) - y1) ** 2).mean()
    g = grad(inner)(ps)
    new = tuple(p - 0.1 * gg for p, gg in zip(ps, g))
    return ((net(new, x2) - y2) ** 2).mean()


q = tuple(p.detach() for p in ps)
xs = [randn(3, 5, 1) for _ in range(4)]
say(vmap(get_loss, in_dims=(None, 0, 0, 0, 0))(q, *xs))
gg, v = grad_and_value(get_loss)(q, *[z[0] for z in xs])
say(v, *gg)
# PINN
u = det(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
o = torch.optim.Adam(u.parameters(), lr=1e-2)
for _ in range(3):
    xt = randn(10, 2).requires_grad_()
    uu = u(xt)
    du = torch.autograd.grad(uu, xt, torch.ones_like(uu), create_graph=True)[0]
    uxx = torch.autograd.grad(du[:, 0:1], xt, torch.ones_like(du[:, 0:1]), create_graph=True)[0][:, 0:1]
    loss = (du[:, 1:2] - uxx).pow(2).mean()
    o.zero_grad()
    loss.backward()
    o.step()
    say(loss.item())
lap = vmap(lambda z: torch.trace(hessian(lambda s: u(s).squeeze())(z)))(xt.detach())
say(lap)
