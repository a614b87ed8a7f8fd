import torch
from torch import nn

torch.manual_seed(0)
X, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
for dtype in (torch.bfloat16, torch.float64):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X.to(dtype)).float(), y)
        loss.backward()
        optimizer.step()
    print(dtype, f"{loss.item():.2f}", model[0].weight.dtype, model[0].weight.grad.dtype)
half = nn.Linear(16, 4).half()
print(half(X.half()).dtype, half.float()(X).dtype)
print(
    torch.finfo(torch.float16).max,
    torch.iinfo(torch.int8).min,
    torch.result_type(X, torch.tensor(1, dtype=torch.float64)),
)
