import torch
from torch import nn

torch.manual_seed(0)
users, items = 30, 40
ratings = (torch.randn(users, 3) @ torch.randn(3, items)).clamp(-3, 3)
pairs = [(u, i, ratings[u, i].item()) for u in range(users) for i in range(0, items, 4)]


class MatrixFactorization(nn.Module):
    def __init__(self, factors=8):
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)

    def forward(self, user, item):
        pred = (self.user_factors(user) * self.item_factors(item)).sum(dim=1, keepdim=True)
        return (pred + self.user_bias(user) + self.item_bias(item)).squeeze()


model = MatrixFactorization()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for u, i, r in pairs[:100]:
    rating, row, col = torch.tensor(r), torch.LongTensor([u]), torch.LongTensor([i])
    loss = nn.functional.mse_loss(model(row, col), rating)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("last sample", f"{loss.item():.3f}")
u, i, r = (torch.tensor(column) for column in zip(*pairs))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(15):
    loss = nn.functional.mse_loss(model(u, i), r)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 5 == 4:
        print(epoch, f"{loss.item():.3f}")
scores = model(torch.full((items,), 3), torch.arange(items))
print("best for user 3:", scores.topk(3).indices.tolist())
