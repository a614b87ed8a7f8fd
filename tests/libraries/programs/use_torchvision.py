"""Models, transforms, datasets and utilities; compiled ops are refused by name."""

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import models, transforms
from torchvision.transforms import v2

torch.manual_seed(0)
x = torch.randn(2, 3, 64, 64)
for make in (models.resnet18, models.mobilenet_v3_small, models.shufflenet_v2_x0_5, models.squeezenet1_1):
    model = make(num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3]))
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss).item()
vit = models.VisionTransformer(32, 16, 1, 2, 32, 64, num_classes=3)
assert vit(torch.randn(1, 3, 32, 32)).shape == (1, 3)

image = Image.fromarray(np.arange(3 * 32 * 32, dtype=np.uint8).reshape(32, 32, 3))
pipeline = transforms.Compose(
    [
        transforms.RandomResizedCrop(24),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.1, 0.1),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.5] * 3),
    ]
)
assert pipeline(image).shape == (3, 24, 24)
newer = v2.Compose([v2.ToImage(), v2.RandomCrop(16), v2.ToDtype(torch.float32, scale=True)])
made = newer(image)
assert made.shape == (3, 16, 16) and made.max().item() <= 1
assert transforms.functional.resize(torch.rand(3, 8, 8), [4, 4]).shape == (3, 4, 4)
assert transforms.functional.rotate(torch.rand(3, 8, 8), 30.0).shape == (3, 8, 8)

data = torchvision.datasets.FakeData(6, (3, 16, 16), 3, transform=transforms.ToTensor())
images, labels = next(iter(torch.utils.data.DataLoader(data, batch_size=3)))
assert images.shape == (3, 3, 16, 16) and labels.shape == (3,)
assert torchvision.utils.make_grid(images).shape[0] == 3
torchvision.utils.save_image(images, "grid.png")
boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0]])
assert abs(torchvision.ops.box_iou(boxes, boxes)[0, 1].item() - 1 / 7) < 1e-6
assert torchvision.ops.sigmoid_focal_loss(torch.zeros(2), torch.ones(2)).shape == (2,)
try:
    torchvision.ops.nms(boxes, torch.tensor([0.5, 0.6]), 0.5)
except NotImplementedError as refused:
    assert "gradwire" in str(refused) and "nms" in str(refused)
else:
    raise AssertionError("nms is a compiled op")
