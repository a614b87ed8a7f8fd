"""Attributions of a model's answer to its inputs."""

import torch
from captum.attr import DeepLift, GuidedGradCam, InputXGradient, IntegratedGradients, Occlusion, Saliency

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(108, 4))
net.eval()
x = torch.rand(2, 1, 8, 8, requires_grad=True)
found, delta = IntegratedGradients(net).attribute(x, target=1, n_steps=20, return_convergence_delta=True)
assert found.shape == x.shape and delta.abs().max() < 0.05
for method in (Saliency, InputXGradient, DeepLift):
    assert torch.isfinite(method(net).attribute(x, target=1)).all()
assert GuidedGradCam(net, net[0]).attribute(x, target=2).shape == x.shape
hidden = Occlusion(net).attribute(x, target=0, sliding_window_shapes=(1, 4, 4), strides=(1, 4, 4))
assert hidden.abs().sum() > 0
