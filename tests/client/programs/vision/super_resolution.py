from math import log10

import torch
import torch.nn as nn
import torch.nn.init as init
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 32, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(32, 32, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(32, 16, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return self.pixel_shuffle(self.conv4(x))

    def _initialize_weights(self):
        for conv in (self.conv1, self.conv2, self.conv3):
            init.orthogonal_(conv.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv4.weight)


torch.manual_seed(123)
ys, xs = torch.meshgrid(torch.linspace(0, 6, 32), torch.linspace(0, 6, 32), indexing="ij")
images = torch.stack([(torch.sin(xs * k) * torch.cos(ys / k) + 1) / 2 for k in range(1, 17)]).unsqueeze(1)
small = F.interpolate(images, scale_factor=0.5, mode="bicubic", align_corners=False)
model = Net(upscale_factor=2)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1, 9):
    epoch_loss = 0
    for input, target in zip(small.split(4), images.split(4)):
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / 4:.4f}")
with torch.no_grad():
    mse = criterion(model(small), images)
    print(f"===> Avg. PSNR: {10 * log10(1 / mse.item()):.2f} dB")
