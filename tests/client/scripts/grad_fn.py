import torch

x = torch.sin(torch.arange(6.0) + 1).reshape(2, 3).requires_grad_()
w = torch.cos(torch.arange(12.0)).reshape(3, 4).requires_grad_()
bias = torch.zeros(4, requires_grad=True)
for made in (
    x + 1, x - 1, 1 - x, x * 2, x / 2, 2 / x, -x, x**2, 2**x.abs(), x.exp(), x.abs().log(), x.sin(), x.tanh(),
    x.sigmoid(), x.relu(), x.abs().sqrt(), x @ w, torch.addmm(bias, x, w), x.sum(), x.sum(0), x.mean(), x.mean(1),
    x.max(), x.var(), x.max(1).values, x.t(), x.T, x.reshape(3, 2), x.view(-1), x.transpose(0, 1), x.permute(1,
    0), x[0], x[:, 1:], x[None], x[torch.tensor([0, 1])], x[x > 0], x.unsqueeze(0), x.expand(2, 2, 3),
    torch.cat([x, x]), torch.stack([x, x]), x.clone(), x.softmax(1), x.log_softmax(1), x.clamp(0, 1),
    torch.where(x > 0, x, 0.0), x.double(), x.masked_fill(x > 0, 0.0), torch.nn.functional.linear(x, w.t(), bias),
    torch.nn.functional.mse_loss(x, torch.zeros(2, 3)), torch.nn.functional.cross_entropy(x, torch.tensor([0,
    2])), x.logsumexp(1), x.gather(1, torch.tensor([[0], [1]])), x.squeeze(), x.norm(), x.cumsum(0), x.prod(),
    x.flatten(), x.chunk(2)[0], x.unbind(0)[1], x.split(1)[1],
):  # fmt: skip
    print(made.grad_fn.name(), tuple(made.shape))
y = (x * 2).sum()
print([name.name() for name, _ in y.grad_fn.next_functions])
((mul, _),) = y.grad_fn.next_functions
(leaf, _), constant = mul.next_functions
print(leaf.name(), leaf.variable is x or leaf.variable.shape == x.shape, constant)
