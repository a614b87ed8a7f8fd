import torch, copy
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from _kit import *

torch.set_default_dtype(torch.float64)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super(ContentLoss, self).__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, tf):
        super().__init__()
        self.target = gram_matrix(tf).detach()

    def forward(self, input):
        G = gram_matrix(input)
        self.loss = F.mse_loss(G, self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = (
    det(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
    )
    .eval()
    .requires_grad_(False)
)
content, style = randn(1, 3, 8, 8).sigmoid(), randn(1, 3, 8, 8).sigmoid()
model = nn.Sequential(Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
cl, sl = [], []
i = 0
for layer in cnn.children():
    if isinstance(layer, nn.Conv2d):
        i += 1
        name = "conv_{}".format(i)
    elif isinstance(layer, nn.ReLU):
        name = "relu_{}".format(i)
        layer = nn.ReLU(inplace=False)
    else:
        name = f"pool_{i}"
    model.add_module(name, layer)
    if name == "conv_2":
        c = ContentLoss(model(content).detach())
        model.add_module("content_loss_{}".format(i), c)
        cl.append(c)
    if name.startswith("conv"):
        s = StyleLoss(model(style).detach())
        model.add_module("style_loss_{}".format(i), s)
        sl.append(s)
print(model)
img = content.clone()
img.requires_grad_(True)
model.eval()
model.requires_grad_(False)
optimizer = optim.LBFGS([img])
run = [0]
while run[0] <= 40:

    def closure():
        with torch.no_grad():
            img.clamp_(0, 1)
        optimizer.zero_grad()
        model(img)
        style_score = 0
        content_score = 0
        for s in sl:
            style_score += s.loss
        for c in cl:
            content_score += c.loss
        style_score *= 1000
        loss = style_score + content_score
        loss.backward()
        run[0] += 1
        if run[0] % 10 == 0:
            say(style_score.item(), content_score.item())
        return style_score + content_score

    optimizer.step(closure)
x = torch.tensor([-1.2, 1.0], requires_grad=True)
o = torch.optim.LBFGS([x], lr=1, max_iter=20, line_search_fn="strong_wolfe")


def cl2():
    o.zero_grad()
    l = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    l.backward()
    return l


for _ in range(5):
    say(o.step(cl2).item())
say(x)
