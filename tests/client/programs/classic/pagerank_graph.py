import torch

torch.manual_seed(0)
n = 40
adjacency = (torch.rand(n, n) < 0.08).float()
adjacency.fill_diagonal_(0)
out = adjacency.sum(1)
P = torch.where(out.unsqueeze(1) > 0, adjacency / out.clamp(min=1).unsqueeze(1), torch.full((n, n), 1 / n))
rank = torch.full((n,), 1 / n)
for i in range(100):
    new = 0.85 * rank @ P + 0.15 / n
    delta = (new - rank).abs().sum().item()
    rank = new
    if delta < 1e-6:
        break
top = rank.topk(5)
print("PageRank", [round(v, 3) for v in top.values.tolist()], f"{rank.sum().item():.3f}")
distance = torch.where(adjacency > 0, torch.rand(n, n) + 0.5, torch.tensor(float("inf")))
distance.fill_diagonal_(0)
for k in range(n):
    distance = torch.minimum(distance, distance[:, k : k + 1] + distance[k : k + 1])
reachable = distance.isfinite()
print(
    "reachable",
    reachable.sum().item(),
    f"mean {distance[reachable].mean().item():.3f} max {distance[reachable].max().item():.3f}",
)
laplacian = torch.diag((adjacency + adjacency.T).clamp(max=1).sum(1)) - (adjacency + adjacency.T).clamp(max=1)
print("components", (torch.linalg.eigvalsh(laplacian.double()) < 1e-8).sum().item())
