import torch
from torch import nn

torch.manual_seed(0)


class ConvAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(16, 4, 3, stride=2, padding=1)
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(4, 16, 2, stride=2),
            nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


clean = torch.zeros(48, 1, 28, 28)
for i in range(48):
    clean[i, 0, i % 20 : i % 20 + 6, (3 * i) % 20 : (3 * i) % 20 + 8] = 1.0
model = ConvAutoencoder()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    train_loss = 0.0
    for images in torch.split(clean, 12):
        noisy = torch.clamp(images + 0.3 * torch.randn(*images.shape), 0.0, 1.0)
        optimizer.zero_grad()
        outputs = model(noisy)
        loss = criterion(outputs, images)
        loss.backward()
        optimizer.step()
        train_loss += loss.item() * images.size(0)
    print(f"Epoch: {epoch + 1} \tTraining Loss: {train_loss / len(clean):.5f}")
print(outputs.detach().numpy().shape, model.encoder(images).shape)
