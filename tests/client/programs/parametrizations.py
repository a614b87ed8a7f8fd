import torch
import torch.nn as nn
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils.parametrizations import weight_norm, spectral_norm, orthogonal
from torch.nn.utils import weight_norm as old_wn, spectral_norm as old_sn, remove_weight_norm
import warnings

warnings.simplefilter("ignore")
from _kit import *

torch.set_default_dtype(torch.float64)


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)


class MatrixExponential(nn.Module):
    def forward(self, X):
        return torch.matrix_exp(X)


class Skew(nn.Module):
    def forward(self, X):
        A = X.triu(1)
        return A - A.transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu(1)


layer = det(nn.Linear(3, 3))
parametrize.register_parametrization(layer, "weight", Symmetric())
A = layer.weight
print(torch.allclose(A, A.T))
print(layer)
print(list(layer.state_dict()))
say(layer(randn(2, 3)))
l2 = det(nn.Linear(3, 3))
parametrize.register_parametrization(l2, "weight", Skew())
parametrize.register_parametrization(l2, "weight", MatrixExponential())
X = l2.weight
say(X, X.T @ X)
print(l2)
print(parametrize.is_parametrized(l2), parametrize.is_parametrized(l2, "bias"), list(l2.state_dict()))
with parametrize.cached():
    say(l2(randn(2, 3)))
l2(randn(2, 3)).sum().backward()
say(l2.parametrizations.weight.original.grad)
parametrize.remove_parametrizations(l2, "weight", leave_parametrized=True)
print(l2)
say(l2.weight)
l3 = nn.Linear(3, 3)
parametrize.register_parametrization(l3, "weight", Skew())
Z = randn(3, 3)
Z = Z.triu(1) - Z.triu(1).T
l3.weight = Z
say(l3.weight)
m = weight_norm(det(nn.Linear(4, 3)))
print(m, list(m.state_dict()))
o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(5):
    l = m(randn(2, 4)).pow(2).mean()
    o.zero_grad()
    l.backward()
    o.step()
    say(l.item())
say(m.weight, *m.parameters())
c = weight_norm(det(nn.Conv1d(2, 3, 3)), name="weight", dim=0)
say(c(randn(1, 2, 5)))
s = spectral_norm(det(nn.Linear(4, 3)), n_power_iterations=60)
print(s, list(s.state_dict()))
s.train()
say(torch.linalg.svdvals(s(torch.eye(4)).T - s.bias[:, None])[0])
q = orthogonal(det(nn.Linear(3, 3)))
print(q)
W = q.weight
say(W.T @ W)
q(randn(2, 3)).sum().backward()
print(q.parametrizations.weight.original.grad is not None)
qh = orthogonal(nn.Linear(3, 5), orthogonal_map="householder")
W = qh.weight
say(W.T @ W)
qc = orthogonal(nn.Linear(3, 3), orthogonal_map="cayley")
say(qc.weight @ qc.weight.T)
w = old_wn(det(nn.Linear(4, 3)))
print(w, list(w.state_dict()))
say(w(randn(2, 4)), w.weight_g)
remove_weight_norm(w)
print(list(w.state_dict()))
osn = old_sn(det(nn.Linear(4, 3)), n_power_iterations=50)
print(list(osn.state_dict()))
say(torch.linalg.svdvals((osn(torch.eye(4)) - osn.bias).T)[0])
try:
    parametrize.register_parametrization(layer, "nope", Symmetric())
except ValueError as e:
    print("ValueError")
