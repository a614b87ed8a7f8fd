"""Filters, colours, warps and augmentations, with gradients."""

import kornia
import torch

torch.manual_seed(0)
image = torch.rand(2, 3, 16, 16, requires_grad=True)
grey = kornia.color.rgb_to_grayscale(image)
assert grey.shape == (2, 1, 16, 16)
blurred = kornia.filters.gaussian_blur2d(image, (3, 3), (1.0, 1.0))
edges = kornia.filters.sobel(blurred)
edges.mean().backward()
assert image.grad.abs().sum() > 0
angle = torch.tensor([30.0, 60.0], requires_grad=True)
turned = kornia.geometry.transform.rotate(image.detach(), angle)
turned.mean().backward()
assert angle.grad.shape == (2,)
assert kornia.losses.ssim_loss(image.detach(), image.detach(), 5).item() < 1e-5
augment = kornia.augmentation.AugmentationSequential(
    kornia.augmentation.RandomHorizontalFlip(p=1.0), kornia.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0)
)
assert augment(image.detach()).shape == image.shape
H = torch.eye(3)[None].repeat(2, 1, 1)
assert kornia.geometry.transform.warp_perspective(image.detach(), H, (16, 16)).shape == image.shape
