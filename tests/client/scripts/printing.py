import copy

import torch

torch.manual_seed(0)
x = torch.arange(6).reshape(2, 3)
print(x, x.shape, x.size(), x.size(1), x.dtype, x.device, x.ndim, x.numel(), len(x))
print(x.float() / 3, (x.float() / 3).double())
print(torch.tensor(1.5), torch.tensor([]), torch.tensor(True), torch.tensor([1e10, 1.0]), torch.tensor([1e-8, 1]))
print(torch.zeros(3, requires_grad=True), torch.ones(2, 2, requires_grad=True) * 2)
print(torch.arange(2000.0))
print(torch.zeros(2, 0), torch.eye(3, dtype=torch.float64), torch.tensor([1 + 2j]))
print([row.tolist() for row in x], x.tolist(), x[1, 2].item(), float(x[0, 1]), int(x[1, 1]), bool(x[0, 0]))
print(3 in x, 9 in x, list(x[0].shape), x[0] == x[1], (x > 2).sum())
for attempt in (
    lambda: bool(x),
    lambda: x.item(),
    lambda: x[5],
    lambda: x.float() @ x.float(),
    lambda: len(torch.tensor(1)),
    lambda: list(torch.tensor(1)),
    lambda: x.reshape(4, 2),
    lambda: x + torch.ones(4),
    lambda: x.sum(5),
    lambda: x.float().mean(0).nope,
    lambda: copy.deepcopy(torch.ones(1, requires_grad=True) * 2),
):
    try:
        attempt()
        print("no refusal")
    except (RuntimeError, IndexError, TypeError, ValueError, AttributeError) as error:
        for kind in (IndexError, TypeError, ValueError, AttributeError, RuntimeError):
            if isinstance(error, kind):
                print(kind.__name__)
                break
y = copy.deepcopy(torch.ones(2, requires_grad=True))
print(y, y.is_leaf)
print(repr((y * 2).sum().grad_fn).split(" object at ")[0])
print(torch.float32, torch.int64, torch.float, torch.long, torch.device("cpu"), torch.Size([1, 2]))
print(x.type(), x.is_floating_point(), x.element_size(), x.stride(), x.t().is_contiguous())
print(
    torch.equal(x, x.clone()),
    torch.allclose(x.float(), x.float() + 1e-9),
    torch.is_tensor(x),
    isinstance(x, torch.Tensor),
)
print(x.numpy(), torch.from_numpy(x.numpy()), f"{torch.tensor(3.14159):.2f}")
print(torch.cuda.is_available())
