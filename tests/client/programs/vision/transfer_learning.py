import copy

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler

torch.manual_seed(0)


def backbone():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 100),
    )


x = {"train": torch.randn(64, 3, 32, 32), "val": torch.randn(32, 3, 32, 32)}
y = {phase: (data[:, 0].mean((1, 2)) > 0).long() for phase, data in x.items()}


def train_model(model, criterion, optimizer, scheduler, num_epochs=3):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            model.train() if phase == "train" else model.eval()
            running_loss, running_corrects = 0.0, 0
            for inputs, labels in zip(x[phase].split(16), y[phase].split(16)):
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == "train":
                scheduler.step()
            epoch_loss = running_loss / len(x[phase])
            epoch_acc = running_corrects.double() / len(x[phase])
            print(f"{epoch} {phase} Loss: {epoch_loss:.4f} Acc: {epoch_acc:.4f}")
            if phase == "val" and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
    print(f"Best val Acc: {best_acc:4f}")
    model.load_state_dict(best_model_wts)
    return model


for frozen in (False, True):
    model = backbone()
    if frozen:
        for param in model.parameters():
            param.requires_grad = False
    num_ftrs = model[-1].in_features
    model[-1] = nn.Linear(num_ftrs, 2)
    optimizer = optim.SGD((model[-1] if frozen else model).parameters(), lr=0.01, momentum=0.9)
    train_model(model, nn.CrossEntropyLoss(), optimizer, lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1))
