import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)
prototypes = torch.randn(6, 1, 14, 14)
labels = torch.arange(120) % 6
images = prototypes[labels] + 0.7 * torch.randn(120, 1, 14, 14)
features = {}


def save(name):
    def hook(module, input, output):
        features[name] = output.detach()

    return hook


model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU())
model[4].register_forward_hook(save("fc"))
model[1].register_forward_hook(save("relu"))
with torch.no_grad():
    model(images)
for name, each in features.items():
    flat = F.normalize(each.flatten(1), dim=1)
    train, test = flat[:90], flat[90:]
    similarity = test @ train.T
    for k in (1, 5):
        votes = labels[:90][similarity.topk(k, dim=1).indices]
        predicted = torch.mode(votes, dim=1).values
        print(name, tuple(each.shape), "k =", k, "accuracy", f"{(predicted == labels[90:]).float().mean().item():.3f}")
confusion = torch.zeros(6, 6, dtype=torch.long)
for t, p in zip(labels[90:], predicted):
    confusion[t, p] += 1
print(confusion)
