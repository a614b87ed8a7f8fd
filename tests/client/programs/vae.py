import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F
from _kit import *

torch.set_default_dtype(torch.float64)
torch.manual_seed(1)


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(20, 16)
        self.fc21 = nn.Linear(16, 4)
        self.fc22 = nn.Linear(16, 4)
        self.fc3 = nn.Linear(4, 16)
        self.fc4 = nn.Linear(16, 20)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        assert eps.shape == std.shape
        eps = randn(*std.shape)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 20))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


model = det(VAE())
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 20), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


x = torch.sigmoid(randn(8, 4, 5))
for _ in range(10):
    optimizer.zero_grad()
    r, mu, lv = model(x)
    loss = loss_function(r, x, mu, lv)
    loss.backward()
    optimizer.step()
    say(loss.item())
# conv autoencoder
ae = det(
    nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(True),
        nn.BatchNorm2d(4),
        nn.ConvTranspose2d(4, 1, 3, stride=2, padding=1, output_padding=1),
        nn.Tanh(),
    )
)
o = torch.optim.Adam(ae.parameters(), lr=1e-2, weight_decay=1e-5)
img = randn(3, 1, 8, 8)
for _ in range(5):
    l = nn.MSELoss()(ae(img), img)
    o.zero_grad()
    l.backward()
    o.step()
    say(l.item())
from torch.distributions import Normal, kl_divergence

q = Normal(mu.detach(), (0.5 * lv.detach()).exp())
p = Normal(torch.zeros_like(q.loc), torch.ones_like(q.scale))
say(kl_divergence(q, p).sum(), q.log_prob(q.mean).sum(), q.entropy().sum())
print(q.rsample().shape, q.sample((3,)).shape)
