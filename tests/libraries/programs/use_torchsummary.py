"""A summary of a convolutional network, printed."""

from torch import nn
from torchsummary import summary

summary(
    nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)), (3, 16, 16), device="cpu"
)
