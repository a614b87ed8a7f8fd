import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.manual_seed(3)
content_img, style_img = torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32)


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super().__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


cnn = (
    nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(inplace=True),
    )
    .requires_grad_(False)
    .eval()
)

model, content_losses, style_losses, i = nn.Sequential(), [], [], 0
for layer in cnn.children():
    if isinstance(layer, nn.Conv2d):
        i += 1
        name = f"conv_{i}"
    elif isinstance(layer, nn.ReLU):
        name, layer = f"relu_{i}", nn.ReLU(inplace=False)
    else:
        name = f"pool_{i}"
    model.add_module(name, layer)
    if name == "conv_3":
        content_losses.append(ContentLoss(model(content_img).detach()))
        model.add_module("content_loss", content_losses[-1])
    if name.startswith("conv"):
        style_losses.append(StyleLoss(model(style_img).detach()))
        model.add_module(f"style_loss_{i}", style_losses[-1])

input_img = content_img.clone().requires_grad_(True)
optimizer = optim.LBFGS([input_img])
run = [0]
while run[0] <= 40:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = sum(sl.loss for sl in style_losses) * 1e5
        content_score = sum(cl.loss for cl in content_losses)
        loss = style_score + content_score
        loss.backward()
        run[0] += 1
        if run[0] == 1 or run[0] == 20:
            print(f"run {run[0]}: Style Loss : {style_score.item():.3f} Content Loss: {content_score.item():.4f}")
        return style_score + content_score

    optimizer.step(closure)
with torch.no_grad():
    input_img.clamp_(0, 1)
print(model)
print("mean", f"{input_img.mean().item():.2f}")
