import torch
from torch import optim


def rosenbrock(p):
    x, y = p
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


for name, make in {
    "SGD": lambda p: optim.SGD([p], lr=1e-4, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam([p], lr=0.05),
    "Adagrad": lambda p: optim.Adagrad([p], lr=0.3),
    "RMSprop": lambda p: optim.RMSprop([p], lr=0.01, centered=True),
    "Adadelta": lambda p: optim.Adadelta([p], lr=5.0),
    "NAdam": lambda p: optim.NAdam([p], lr=0.05),
    "RAdam": lambda p: optim.RAdam([p], lr=0.05),
    "Adamax": lambda p: optim.Adamax([p], lr=0.05),
}.items():
    point = torch.tensor([-1.5, 2.0], requires_grad=True)
    optimizer = make(point)
    for step in range(60):
        optimizer.zero_grad()
        loss = rosenbrock(point)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([point], 10.0)
        optimizer.step()
    print(f"{name:10s} f = {rosenbrock(point).item():.4f}", [round(v, 3) for v in point.tolist()])

point = torch.tensor([-1.5, 2.0], requires_grad=True)
for step in range(8):
    grad = torch.autograd.grad(rosenbrock(point), point)[0]
    hessian = torch.autograd.functional.hessian(rosenbrock, point)
    with torch.no_grad():
        point -= torch.linalg.solve(hessian, grad)
print("Newton", [round(v, 4) for v in point.tolist()])
