"""Image models of several families: forward, backward, a step, their transforms and schedules."""

import timm
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

torch.manual_seed(0)
x = torch.randn(2, 3, 64, 64)
for name in ("resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224", "convnext_atto", "efficientnet_lite0"):
    size = {"img_size": 64} if name.startswith("vit") else {}
    model = timm.create_model(name, num_classes=5, **size)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3]))
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss).item(), name
    features = model.forward_features(x)
    assert features.shape[0] == 2
scheduler = CosineLRScheduler(optimizer, t_initial=10)
scheduler.step(1)
state = model.state_dict()
torch.save(state, "timm.pth")
model.load_state_dict(torch.load("timm.pth", weights_only=True))
