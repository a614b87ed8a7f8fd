import torch

a = torch.tensor([3.0], requires_grad=True)
b = a * a
b.backward(retain_graph=True)
print(a.grad)
b.backward(retain_graph=True)
print(a.grad)
b.backward()
print(a.grad)
try:
    b.backward()
except RuntimeError as error:
    print("Trying to backward through the graph a second time" in str(error), "retain_graph=True" in str(error))
x = torch.ones(2, requires_grad=True)
s = (x + x).sum()
s.backward()
s.backward()
print(x.grad)
held = x.grad
(x * 3).sum().backward()
print(x.grad is held, held)
x.grad.zero_()
print(x.grad)
x.grad = None
print(x.grad)
x.grad = torch.full((2,), 7.0)
(x * 1).sum().backward()
print(x.grad)
for bad in (torch.ones(3), torch.ones(2, dtype=torch.float64)):
    try:
        x.grad = bad
    except RuntimeError as error:
        print("gradient" in str(error), type(error).__name__.endswith("RuntimeError"))
try:
    (x * 2).backward()
except RuntimeError as error:
    print("grad can be implicitly created only for scalar outputs" in str(error))
(x * 2).backward(torch.tensor([1.0, 10.0]))
print(x.grad)
try:
    torch.ones(1).backward()
except RuntimeError as error:
    print("element 0 of tensors does not require grad and does not have a grad_fn" in str(error))
y = x * 2
z = (y * y).sum()
z.backward(inputs=[y])
print(x.grad, y.grad)
