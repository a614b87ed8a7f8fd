import torch
import torch.nn as nn
import torch.optim as optim
from _kit import *

torch.set_default_dtype(torch.float64)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


nz, ngf, ndf, nc = 5, 3, 3, 1


class Generator(nn.Module):
    def __init__(self, ngpu):
        super(Generator, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ngpu):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input)


netG, netD = Generator(1), Discriminator(1)
netG.apply(weights_init)
netD.apply(weights_init)
det(netG)
det(netD)
print(netG, netD)
criterion = nn.BCELoss()
fixed = randn(4, nz, 1, 1)
optD = optim.Adam(netD.parameters(), lr=0.002, betas=(0.5, 0.999))
optG = optim.Adam(netG.parameters(), lr=0.002, betas=(0.5, 0.999))
for i in range(4):
    netD.zero_grad()
    real = randn(4, nc, 16, 16)
    label = torch.full((4,), 1.0, dtype=torch.get_default_dtype())
    output = netD(real).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean().item()
    fake = netG(randn(4, nz, 1, 1))
    label.fill_(0.0)
    output = netD(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optD.step()
    netG.zero_grad()
    label.fill_(1.0)
    output = netD(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    optG.step()
    say(errD.item(), errG.item(), D_x)
    print("[%d] Loss_D: %.4f Loss_G: %.4f" % (i, errD.item(), errG.item()))
with torch.no_grad():
    say(netG(fixed).detach().cpu())
# WGAN-GP
D = det(nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.LayerNorm(8), nn.Linear(8, 1)))
opt = optim.RMSprop(D.parameters(), lr=5e-4)


def gp(D, real, fake):
    alpha = randn(real.size(0), 1).sigmoid()
    inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d = D(inter)
    g = torch.autograd.grad(
        outputs=d, inputs=inter, grad_outputs=torch.ones_like(d), create_graph=True, retain_graph=True, only_inputs=True
    )[0]
    g = g.view(g.size(0), -1)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


for _ in range(5):
    real, fake = randn(6, 4), randn(6, 4)
    opt.zero_grad()
    loss = -D(real).mean() + D(fake).mean() + 10 * gp(D, real, fake)
    loss.backward()
    opt.step()
    say(loss.item())
    for p in D.parameters():
        p.data.clamp_(-0.9, 0.9)
