"""Metrics of classes and numbers, over several batches, with state in a module."""

import torch
import torchmetrics
from torch import nn
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score

torch.manual_seed(0)
target = torch.tensor([0, 1, 2, 2, 1])
guess = torch.tensor([0, 1, 1, 2, 1])
accuracy = MulticlassAccuracy(num_classes=3, average="micro")
for part in (slice(0, 2), slice(2, 5)):
    accuracy.update(guess[part], target[part])
assert abs(accuracy.compute().item() - 0.8) < 1e-6
accuracy.reset()
matrix = MulticlassConfusionMatrix(num_classes=3)(guess, target)
assert matrix.tolist() == [[1, 0, 0], [0, 2, 0], [0, 1, 1]]
assert 0.7 < MulticlassF1Score(num_classes=3)(guess, target).item() < 0.9
assert BinaryAUROC()(torch.tensor([0.1, 0.9, 0.8, 0.3]), torch.tensor([0, 1, 1, 0])).item() == 1.0
error = torchmetrics.MeanSquaredError()
assert abs(error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])).item() - 2.0) < 1e-6
collection = torchmetrics.MetricCollection([MulticlassAccuracy(num_classes=3), MulticlassF1Score(num_classes=3)])
assert set(collection(guess, target)) == {"MulticlassAccuracy", "MulticlassF1Score"}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.metric = MulticlassAccuracy(num_classes=3)


model = Model()
model.load_state_dict(model.state_dict())
assert (
    abs(torchmetrics.functional.pairwise_cosine_similarity(torch.ones(2, 3), torch.ones(2, 3))[0, 0].item() - 1) < 1e-6
)
