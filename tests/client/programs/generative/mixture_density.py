import torch
import torch.nn as nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

torch.manual_seed(0)
y = torch.linspace(-10, 10, 300).unsqueeze(1)
x = 7 * torch.sin(0.75 * y) + 0.5 * y + torch.randn_like(y)


class MDN(nn.Module):
    def __init__(self, n_hidden, n_gaussians):
        super().__init__()
        self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
        self.z_pi, self.z_mu, self.z_sigma = (nn.Linear(n_hidden, n_gaussians) for _ in range(3))

    def forward(self, x):
        z_h = self.z_h(x)
        return MixtureSameFamily(
            Categorical(logits=self.z_pi(z_h)), Normal(self.z_mu(z_h), torch.exp(self.z_sigma(z_h)))
        )


network = MDN(20, 5)
optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
for epoch in range(60):
    loss = -network(x).log_prob(y.squeeze(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 19:
        print(epoch, f"{loss.item():.4f}")
with torch.no_grad():
    mixture = network(torch.linspace(-10, 10, 5).unsqueeze(1))
    print(mixture.mixture_distribution.probs.argmax(-1).tolist(), [round(v, 1) for v in mixture.mean.tolist()])
    print(tuple(mixture.sample((7,)).shape))
