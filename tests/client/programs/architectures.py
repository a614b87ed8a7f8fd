import torch, math
import torch.nn as nn
import torch.nn.functional as F
from _kit import *

torch.set_default_dtype(torch.float64)


# UNet
class DoubleConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, i, o, bilinear=True):
        super().__init__()
        self.up = (
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            if bilinear
            else nn.ConvTranspose2d(i, i // 2, 2, 2)
        )
        self.conv = DoubleConv(i, o)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(1, 2)
        self.down = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2, 2))
        self.up = Up(4, 2)
        self.outc = nn.Conv2d(2, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        return self.outc(self.up(self.down(a), a))


def train(m, x, loss, n=4, lr=1e-2):
    o = torch.optim.Adam(m.parameters(), lr=lr)
    for _ in range(n):
        l = loss(m(x))
        o.zero_grad()
        l.backward()
        o.step()
        say(l.item())
    say(*m.parameters())


u = det(UNet())
train(u, randn(2, 1, 9, 9), lambda o: F.binary_cross_entropy_with_logits(o, torch.ones_like(o)))


# ViT
class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(3, 8, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 8))
        self.pos = nn.Parameter(torch.randn(1, 5, 8))

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        return torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1) + self.pos


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = PatchEmbed()
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True),
            2,
            norm=nn.LayerNorm(8),
            enable_nested_tensor=False,
        )
        self.h = nn.Linear(8, 3)

    def forward(self, x):
        return self.h(self.enc(self.e(x))[:, 0])


train(det(ViT()), randn(2, 3, 8, 8), lambda o: F.cross_entropy(o, torch.tensor([0, 2])))
# transformer with masks
tr = det(nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True))
src, tgt = randn(2, 5, 8), randn(2, 4, 8)
mask = nn.Transformer.generate_square_subsequent_mask(4)
kp = torch.zeros(2, 5, dtype=torch.bool)
kp[0, 4] = True
say(tr(src, tgt, tgt_mask=mask, src_key_padding_mask=kp, memory_key_padding_mask=kp))
mha = det(nn.MultiheadAttention(8, 2, batch_first=True))
o, w = mha(src, src, src, need_weights=True, average_attn_weights=False)
say(o, w)
# GCN / message passing
ei = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
x = randn(3, 4)
W = nn.Linear(4, 2)
det(W)
deg = torch.zeros(3).index_add_(0, ei[1], torch.ones(4))
norm = deg.pow(-0.5)
norm[norm == float("inf")] = 0
msg = W(x)[ei[0]] * (norm[ei[0]] * norm[ei[1]]).unsqueeze(-1)
out = torch.zeros(3, 2).index_add(0, ei[1], msg)
out2 = torch.zeros(3, 2).scatter_add(0, ei[1].unsqueeze(-1).expand(-1, 2), msg)
out3 = torch.zeros(3, 2).scatter_reduce(0, ei[1].unsqueeze(-1).expand(-1, 2), msg, reduce="amax", include_self=False)
(out + out2 + out3).sum().backward()
say(out, out2, out3, W.weight.grad)
att = F.softmax(torch.where(torch.eye(3) > 0, F.leaky_relu(x @ x.T, 0.2), torch.tensor(-9e15)), dim=1)
say(att)
# diffusion
T = 10
betas = torch.linspace(1e-4, 0.02, T)
alphas = 1.0 - betas
ac = torch.cumprod(alphas, dim=0)
acp = F.pad(ac[:-1], (1, 0), value=1.0)


def extract(a, t, sh):
    b = t.shape[0]
    return a.gather(-1, t.cpu()).reshape(b, *((1,) * (len(sh) - 1))).to(t.device)


class Sin(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.d = d

    def forward(s, t):
        h = s.d // 2
        e = math.log(10000) / (h - 1)
        e = torch.exp(torch.arange(h, device=t.device) * -e)
        e = t[:, None] * e[None, :]
        return torch.cat((e.sin(), e.cos()), dim=-1)


x0, t = randn(4, 3), torch.tensor([0, 3, 5, 9])
noise = randn(4, 3)
xt = extract(ac.sqrt(), t, x0.shape) * x0 + extract((1 - ac).sqrt(), t, x0.shape) * noise
mlp = det(nn.Sequential(nn.Linear(3 + 4, 8), nn.GELU(), nn.GroupNorm(2, 8), nn.Linear(8, 3)))
train(mlp, torch.cat([xt, Sin(4)(t)], 1), lambda o: F.smooth_l1_loss(o, noise))
# realNVP
s, tt = det(nn.Linear(1, 1)), det(nn.Linear(1, 1))
z = randn(5, 2)
z1, z2 = z.chunk(2, dim=1)
ls = torch.tanh(s(z1))
y = torch.cat([z1, z2 * ls.exp() + tt(z1)], 1)
ll = (-0.5 * (y**2 + math.log(2 * math.pi))).sum(1) + ls.sum(1)
(-ll.mean()).backward()
say(ll, s.weight.grad)
# MoE
gate, ex = det(nn.Linear(4, 3)), nn.ModuleList([det(nn.Linear(4, 4), 0.1 * (i + 1)) for i in range(3)])
h = randn(6, 4)
w, i = torch.topk(F.softmax(gate(h), -1), 2)
r = torch.zeros_like(h)
for e in range(3):
    b, k = torch.where(i == e)
    if b.numel():
        r[b] += w[b, k, None] * ex[e](h[b])
r.sum().backward()
say(r, gate.weight.grad)


# LSTM time series, teacher
class LSTMNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 6, 2, batch_first=True, dropout=0.0)
        self.fc = nn.Linear(6, 1)

    def forward(self, x):
        h0 = torch.zeros(2, x.size(0), 6).to(x.device)
        c0 = torch.zeros(2, x.size(0), 6).requires_grad_()
        out, (hn, cn) = self.lstm(x, (h0.detach(), c0.detach()))
        return self.fc(out[:, -1, :])


train(det(LSTMNet()), torch.sin(torch.linspace(0, 6, 24)).view(3, 8, 1), lambda o: F.mse_loss(o, torch.ones(3, 1)), 3)


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(2, 3, 3, padding=2, dilation=1)
        self.r = nn.PReLU()
        self.i = nn.InstanceNorm1d(3, affine=True)

    def forward(self, x):
        return self.i(self.r(self.c(x)[:, :, :-2]))


train(det(TCN()), randn(2, 2, 6), lambda o: o.pow(2).sum() + o.sum() * 0.1, 2)
dw = det(
    nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=4, padding="same"),
        nn.Hardswish(),
        nn.Conv2d(4, 4, 1),
        nn.AdaptiveMaxPool2d(2),
        nn.PixelShuffle(2),
    )
)
say(dw(randn(1, 4, 6, 6)))


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(c, 2),
            nn.ReLU(),
            nn.Linear(2, c),
            nn.Sigmoid(),
            nn.Unflatten(1, (c, 1, 1)),
        )

    def forward(self, x):
        return x * self.fc(x)


say(det(SE(4))(randn(1, 4, 3, 3)))
print(
    F.grid_sample(
        randn(1, 1, 3, 3),
        F.affine_grid(torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]), (1, 1, 3, 3), align_corners=False),
        align_corners=False,
    ).shape,
    F.interpolate(randn(1, 1, 4, 4), scale_factor=2).shape,
    F.unfold(randn(1, 1, 4, 4), 2).shape,
)
# MDN, RBF, siamese, attention pooling
pi, mu, sg = randn(4, 3).softmax(-1), randn(4, 3), randn(4, 3).exp()
yv = randn(4, 1)
say(-torch.logsumexp(torch.log(pi) - torch.log(sg) - 0.5 * ((yv - mu) / sg) ** 2, dim=1).mean())
net = det(nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList([nn.Linear(2, 2)])}))
print(net)
pl = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(2)])
print(pl, nn.ParameterDict({"x": nn.Parameter(torch.ones(1))}))
