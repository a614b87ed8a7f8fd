import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(42)
images = torch.rand(60, 1, 16, 16)
labels = (images[:, 0, :, :8].mean((1, 2)) > images[:, 0, :, 8:].mean((1, 2))).long()
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 2), nn.LogSoftmax(1))
opt = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(15):
    opt.zero_grad()
    F.nll_loss(model(images), labels).backward()
    opt.step()


def fgsm_attack(image, epsilon, data_grad):
    return torch.clamp(image + epsilon * data_grad.sign(), 0, 1)


def test(model, epsilon):
    correct, adv_examples = 0, []
    for data, target in zip(images.split(1), labels.split(1)):
        data = data.clone()
        data.requires_grad = True
        output = model(data)
        init_pred = output.max(1, keepdim=True)[1]
        if init_pred.item() != target.item():
            continue
        loss = F.nll_loss(output, target)
        model.zero_grad()
        loss.backward()
        perturbed = fgsm_attack(data, epsilon, data.grad.data)
        final_pred = model(perturbed).max(1, keepdim=True)[1]
        if final_pred.item() == target.item():
            correct += 1
        elif len(adv_examples) < 5:
            adv_examples.append((init_pred.item(), final_pred.item(), perturbed.squeeze().detach().cpu().numpy()))
    print(f"Epsilon: {epsilon}\tTest Accuracy = {correct} / {len(images)} = {correct / len(images):.3f}")
    return adv_examples


model.eval()
for eps in [0, 0.02, 0.05]:
    for before, after, picture in test(model, eps):
        print(before, "->", after, f"{picture.mean():.3f}")
