import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.fc = nn.Linear(8 * 3 * 3, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.fc(torch.flatten(F.max_pool2d(x, 2, stride=1), 1))


net = Net()
print(net)
with torch.no_grad():
    for number, p in enumerate(net.parameters()):
        values = torch.linspace(-1, 1, p.numel()).reshape(p.shape)
        p.copy_(torch.sin(values * (number + 3)) * 0.3)
images = torch.cos(torch.arange(2 * 1 * 12 * 12, dtype=torch.float32)).reshape(2, 1, 12, 12)
labels = torch.tensor([1, 3])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
try:
    net(images)
except RuntimeError as error:
    print("mat1 and mat2 shapes cannot be multiplied" in str(error))
net.fc = nn.Linear(8, 5)
with torch.no_grad():
    net.fc.weight.copy_(torch.linspace(-0.2, 0.2, 40).reshape(5, 8))
    net.fc.bias.zero_()


def features(x):
    x = F.max_pool2d(F.relu(net.conv1(x)), 2)
    return F.relu(net.conv2(x)).mean(dim=(2, 3))


optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    out = net.fc(features(images))
    loss = criterion(out, labels)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}", out.shape, net.conv1.weight.grad.shape)
print(net.conv1.bias.grad)
print(sum(p.numel() for p in net.parameters()))
