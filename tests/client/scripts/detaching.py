import torch

x = torch.ones(3, requires_grad=True)
with torch.no_grad():
    y = x * 2
    print(y.requires_grad, y.is_leaf, torch.is_grad_enabled())
    with torch.enable_grad():
        print((x * 2).requires_grad, torch.is_grad_enabled())
    v = x[0:2]
    print(v.requires_grad, v.grad_fn)
print(torch.is_grad_enabled())
torch.set_grad_enabled(False)
print((x * 2).requires_grad)
torch.set_grad_enabled(True)


@torch.no_grad()
def double(t):
    return t * 2


print(double(x).requires_grad)
d = x.detach()
d[0] = 5.0
print(x, d, d.is_leaf)
c = x.clone()
print(c.requires_grad, c.is_leaf, c.grad_fn is not None)
w = torch.tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward()
with torch.no_grad():
    w -= 0.1 * w.grad
print(w, w.is_leaf)
try:
    w -= 0.1
except RuntimeError as error:
    print("a leaf Variable that requires grad is being used in an in-place operation" in str(error))
try:
    w[0] = 1.0
except RuntimeError as error:
    print("a view of a leaf Variable that requires grad is being used in an in-place operation" in str(error))
try:
    w.numpy()
except RuntimeError as error:
    print("detach()" in str(error))
print(w.detach().numpy().tolist(), w.tolist())
t = torch.zeros(3)
s = torch.tensor(2.0, requires_grad=True)
t[0] = s
print(t, t.is_leaf)
(t * t).sum().backward()
print(s.grad)
p = torch.ones(2, requires_grad=True)
q = p * 2
r = q * q
q.add_(1)
try:
    r.sum().backward()
except RuntimeError as error:
    print("modified by an inplace operation" in str(error), "[2]" in str(error))
for flag in (True, False):
    try:
        r.requires_grad_(flag)
        print("accepted")
    except RuntimeError as error:
        print("you can only change requires_grad flags of leaf variables" in str(error))
for attempt in (lambda: torch.tensor([1], requires_grad=True), lambda: torch.tensor([1]).requires_grad_()):
    try:
        attempt()
    except RuntimeError as error:
        print("floating point" in str(error))
