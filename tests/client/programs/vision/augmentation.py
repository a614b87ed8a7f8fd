import math
import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

random.seed(7)
torch.manual_seed(7)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class RandomFlip:
    def __call__(self, image):
        return image.flip(-1) if random.random() < 0.5 else image


class RandomCrop:
    def __init__(self, size, padding):
        self.size, self.padding = size, padding

    def __call__(self, image):
        image = F.pad(image, [self.padding] * 4)
        top = random.randint(0, image.shape[-2] - self.size)
        left = random.randint(0, image.shape[-1] - self.size)
        return image[..., top : top + self.size, left : left + self.size]


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image):
        return (image - self.mean) / self.std


class Rotate:
    def __call__(self, image):
        angle = random.uniform(-15, 15) / 180 * math.pi
        theta = torch.tensor([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]])
        grid = F.affine_grid(theta[None], [1, *image.shape], align_corners=False)
        return F.grid_sample(image[None], grid, align_corners=False)[0]


class Images(Dataset):
    def __init__(self, n, transform):
        self.images, self.labels, self.transform = torch.rand(n, 3, 20, 20), torch.randint(3, (n,)), transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.transform(self.images[i]), self.labels[i].item()


transform = Compose([RandomFlip(), RandomCrop(20, 2), Rotate(), Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])])
loader = DataLoader(Images(96, transform), batch_size=16, shuffle=True, drop_last=True)
for epoch in range(2):
    for batch, (images, labels) in enumerate(loader):
        mean, std = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3))
        print(epoch, batch, tuple(images.shape), labels.tolist(), [round(v, 3) for v in mean.tolist() + std.tolist()])
