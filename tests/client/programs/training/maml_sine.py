import torch
import torch.nn.functional as F

torch.manual_seed(0)


def net(x, params):
    x = F.relu(F.linear(x, params[0], params[1]))
    x = F.relu(F.linear(x, params[2], params[3]))
    return F.linear(x, params[4], params[5])


params = [
    torch.Tensor(40, 1).uniform_(-1.0, 1.0).requires_grad_(),
    torch.zeros(40, requires_grad=True),
    torch.Tensor(40, 40).uniform_(-1.0 / 40**0.5, 1.0 / 40**0.5).requires_grad_(),
    torch.zeros(40, requires_grad=True),
    torch.Tensor(1, 40).uniform_(-1.0 / 40**0.5, 1.0 / 40**0.5).requires_grad_(),
    torch.zeros(1, requires_grad=True),
]
opt = torch.optim.SGD(params, lr=1e-2)
for it in range(15):
    loss2 = 0.0
    opt.zero_grad()
    for i in range(4):
        amplitude, phase = torch.rand(1) * 4.9 + 0.1, torch.rand(1) * 3.1415926
        x = torch.rand(10, 1) * 10 - 5
        y = amplitude * torch.sin(x + phase)
        v = torch.rand(10, 1) * 10 - 5
        w = amplitude * torch.sin(v + phase)
        loss = F.mse_loss(net(x, params), y)
        grads = torch.autograd.grad(loss, params, create_graph=True)
        fast = [p - 0.01 * g for p, g in zip(params, grads)]
        loss2 = loss2 + F.mse_loss(net(v, fast), w)
    loss2.backward()
    torch.nn.utils.clip_grad_norm_(params, 10.0)
    opt.step()
    if it % 5 == 4:
        print(f"Iteration {it} -- Outer Loss: {loss2.item() / 4:.4f}")
