import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
images = torch.rand(32, 1, 20, 20) * 0.2
labels = torch.arange(32) % 2
for i, label in enumerate(labels):
    if label == 1:
        images[i, 0, 3:8, 3:8] += 0.8
    else:
        images[i, 0, 12:17, 12:17] += 0.8
model = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(12):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
activations, gradients = {}, {}


def forward_hook(module, inputs, output):
    activations["value"] = output
    output.register_hook(lambda grad: gradients.update(value=grad))


handle = model[2].register_forward_hook(forward_hook)
for index in (0, 1):
    score = model(images[index : index + 1])[0, labels[index]]
    model.zero_grad()
    score.backward()
    weights = gradients["value"].mean(dim=(2, 3), keepdim=True)
    cam = F.relu((weights * activations["value"]).sum(1)).squeeze()
    cam = (cam - cam.min()) / (cam.max() - cam.min() + 1e-8)
    row, column = divmod(cam.argmax().item(), cam.shape[1])
    print(index, labels[index].item(), (row > 8) == (column > 8), f"{cam.mean().item():.3f}")
handle.remove()
images.requires_grad_(True)
saliency = torch.autograd.grad(model(images).gather(1, labels[:, None]).sum(), images)[0].abs().amax(1)
print(tuple(saliency.shape), f"{saliency.mean().item():.5f}")
