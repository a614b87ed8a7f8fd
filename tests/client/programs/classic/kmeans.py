import torch

torch.manual_seed(0)
X = torch.cat([torch.randn(60, 2) * 0.4 + torch.tensor(c) for c in ([0.0, 0.0], [4.0, 0.0], [2.0, 4.0])])


def kmeans(x, k, iterations=30):
    centroids = x[torch.randperm(x.size(0))[:k]]
    for i in range(iterations):
        labels = torch.cdist(x, centroids).argmin(dim=1)
        new = torch.stack([x[labels == j].mean(dim=0) if (labels == j).any() else centroids[j] for j in range(k)])
        if torch.allclose(new, centroids, atol=1e-4):
            break
        centroids = new
    inertia = torch.cdist(x, centroids).min(dim=1).values.pow(2).sum()
    return centroids, labels, inertia, i


for k in range(2, 5):
    centroids, labels, inertia, steps = kmeans(X, k)
    print(k, f"inertia {inertia:.3f}", torch.bincount(labels, minlength=k).sort().values.tolist())
order = centroids[:, 0].argsort()
print(centroids[order])
