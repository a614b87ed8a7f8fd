import torch
import torch.nn.functional as F

torch.manual_seed(0)


class RBM:
    def __init__(self, visible, hidden, k=1, lr=0.05):
        self.W = torch.randn(visible, hidden) * 0.1
        self.vb, self.hb, self.k, self.lr = torch.zeros(visible), torch.ones(hidden) * 0.5, k, lr

    def sample_hidden(self, v):
        p = torch.sigmoid(torch.matmul(v, self.W) + self.hb)
        return p, torch.bernoulli(p)

    def sample_visible(self, h):
        return torch.sigmoid(torch.matmul(h, self.W.t()) + self.vb)

    def contrastive_divergence(self, v):
        p, active = self.sample_hidden(v)
        positive = torch.matmul(v.t(), active)
        for _ in range(self.k):
            v_probs = self.sample_visible(active)
            h_probs, active = self.sample_hidden(v_probs)
        negative = torch.matmul(v_probs.t(), h_probs)
        self.W += self.lr * (positive - negative) / v.size(0)
        self.vb += self.lr * torch.mean(v - v_probs, 0)
        self.hb += self.lr * torch.mean(p - h_probs, 0)
        return torch.sum((v - v_probs) ** 2)


patterns = torch.bernoulli(torch.full((4, 64), 0.3))
data = patterns[torch.randint(0, 4, (128,))]
rbm = RBM(64, 32, k=2)
for epoch in range(6):
    error = 0.0
    for batch in data.split(16):
        error += rbm.contrastive_divergence(batch)
    print(f"Epoch Error (epoch={epoch}): {error:.2f}")
print(F.mse_loss(rbm.sample_visible(rbm.sample_hidden(patterns)[0]), patterns))
