import torch, math
from torch import nn
from _kit import *

torch.set_default_dtype(torch.float64)
X = randn(8, 2)
y = torch.sin(X.sum(1))
ls = nn.Parameter(torch.tensor([0.0, 0.1]))
lv = nn.Parameter(torch.zeros(()))
ln = nn.Parameter(torch.tensor(-2.0))


def kernel(a, b):
    d = (a / ls.exp()).unsqueeze(1) - (b / ls.exp()).unsqueeze(0)
    return lv.exp() * torch.exp(-0.5 * d.pow(2).sum(-1))


opt = torch.optim.Adam([ls, lv, ln], lr=0.1)
for i in range(10):
    opt.zero_grad()
    K = kernel(X, X) + ln.exp() * torch.eye(8)
    L = torch.linalg.cholesky(K)
    a = torch.cholesky_solve(y.unsqueeze(-1), L)
    nll = 0.5 * y @ a.squeeze() + L.diagonal().log().sum() + 4 * math.log(2 * math.pi)
    nll.backward()
    opt.step()
    say(nll.item())
with torch.no_grad():
    Xs = randn(3, 2)
    Ks = kernel(Xs, X)
    v = torch.linalg.solve_triangular(L, Ks.T, upper=False)
    say(
        Ks @ a,
        kernel(Xs, Xs) - v.T @ v,
        torch.cdist(Xs, X),
        torch.logdet(K),
        torch.linalg.slogdet(K)[1],
        torch.linalg.solve(K, y),
        torch.inverse(K),
        torch.linalg.eigvalsh(K),
        torch.det(K),
        torch.linalg.norm(K),
        torch.linalg.svdvals(K),
    )
U, S, Vh = torch.linalg.svd(X, full_matrices=False)
say(U @ torch.diag(S) @ Vh)
say(
    torch.linalg.lstsq(X, y.unsqueeze(1)).solution,
    torch.linalg.pinv(X),
    torch.matrix_exp(0.1 * X[:2, :2]),
    torch.kron(X[:1], X[:1]),
)


class LinReg(nn.Module):
    def __init__(s):
        super().__init__()
        s.w = nn.Parameter(torch.zeros(2, 1))
        s.b = nn.Parameter(torch.zeros(1))

    def forward(s, x):
        return x @ s.w + s.b


m = LinReg()
crit = torch.nn.MSELoss(reduction="sum")
o = torch.optim.SGD(m.parameters(), lr=1e-2)
for t in range(20):
    l = crit(m(X), y[:, None])
    o.zero_grad()
    l.backward()
    o.step()
say(l.item(), m.w, m.b)
print(m, f"{m.w.shape}")


class Poly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.3))
        self.e = torch.nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        import random

        y = self.a + self.e * x**4
        for exp in range(4, 6):
            y = y + self.e * x**exp
        return y

    def string(self):
        return f"y = {self.a.item()} + {self.e.item():.3f} ?"


p = Poly()
p(X).sum().backward()
say(p.a.grad, p.e.grad)
print(p.string())
# neural ode RK4, adjoint-free
f = det(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))
z = X[:2]
h = 0.1
for _ in range(5):
    k1 = f(z)
    k2 = f(z + h * k1 / 2)
    k3 = f(z + h * k2 / 2)
    k4 = f(z + h * k3)
    z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
z.pow(2).sum().backward()
say(z, *[q.grad for q in f.parameters()])
