import torch
from torch import nn

torch.manual_seed(0)
centres = torch.randn(5, 10) * 2
labels = torch.randint(0, 5, (100,))
X = centres[labels] + torch.randn(100, 10)
net = nn.Sequential(nn.Linear(10, 32), nn.PReLU(), nn.Linear(32, 4))
criterion = nn.TripletMarginLoss(margin=1.0, p=2)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)


def triplets(n):
    for _ in range(n):
        a = int(torch.randint(0, 100, (1,)))
        same, other = (labels == labels[a]).nonzero().flatten(), (labels != labels[a]).nonzero().flatten()
        yield a, same[torch.randint(len(same), (1,))].item(), other[torch.randint(len(other), (1,))].item()


for step in range(8):
    a, p, n = (torch.tensor(each) for each in zip(*triplets(16)))
    loss = criterion(net(X[a]), net(X[p]), net(X[n]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    distance = torch.cdist(net(X), net(X)) + torch.eye(100) * 1e9
    print("1-nn accuracy", f"{(labels[distance.argmin(1)] == labels).float().mean().item():.2f}")
