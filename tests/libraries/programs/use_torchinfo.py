"""A summary of a convolutional network with its sizes and counts."""

from torch import nn
from torchinfo import summary

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
found = summary(model, input_size=(2, 3, 16, 16), verbose=0)
assert found.total_params == 3 * 8 * 9 + 8 + 8 * 10 + 10, found
assert "Conv2d" in str(found)
assert "[2, 8, 14, 14]" in str(found)
