import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(4, out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(4, out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = DoubleConv(1, 8), nn.Sequential(nn.MaxPool2d(2), DoubleConv(8, 16))
        self.up, self.outc = Up(16, 8), nn.Conv2d(8, 1, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        return self.outc(self.up(self.down(x1), x1))


def dice_loss(pred, target, smooth=1.0):
    pred = torch.sigmoid(pred).contiguous()
    intersection = (pred * target).sum(dim=2).sum(dim=2)
    loss = 1 - (2.0 * intersection + smooth) / (pred.sum(dim=2).sum(dim=2) + target.sum(dim=2).sum(dim=2) + smooth)
    return loss.mean()


torch.manual_seed(0)
grid = torch.stack(torch.meshgrid(torch.arange(33), torch.arange(33), indexing="ij"))
centres = torch.randint(8, 25, (24, 2, 1, 1))
masks = ((grid - centres).pow(2).sum(1) < 36).float().unsqueeze(1)
images = masks * 0.5 + 0.5 * torch.rand(24, 1, 33, 33)
model = UNet()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
for epoch in range(3):
    for i in range(0, 24, 8):
        pred = model(images[i : i + 8])
        bce = F.binary_cross_entropy_with_logits(pred, masks[i : i + 8])
        loss = bce * 0.5 + dice_loss(pred, masks[i : i + 8]) * 0.5
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    iou = ((pred > 0) & (masks[i : i + 8] > 0)).sum() / ((pred > 0) | (masks[i : i + 8] > 0)).sum()
    print(f"epoch {epoch} loss {loss.item():.4f} iou {iou:.3f}")
