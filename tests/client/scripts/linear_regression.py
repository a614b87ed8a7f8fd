import torch
from torch import nn

x = torch.linspace(-1, 1, 11).unsqueeze(1)
y = 3 * x + 0.5
model = nn.Linear(1, 1)
with torch.no_grad():
    model.weight.fill_(0.25)
    model.bias.zero_()
print(model)
print(model.weight, model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(60):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.5f}", model.weight.grad.shape)
print(all(p.is_leaf for p in model.parameters()))
print([name for name, _ in model.named_parameters()], list(model.state_dict()))
model.eval()
print(model.training, model(x).requires_grad)
print(f"{model.weight.item():.3f} {model.bias.item():.3f}")
