import torch
import torch.nn as nn

torch.manual_seed(0)


def box_iou(boxes1, boxes2):
    area1 = (boxes1[:, 2] - boxes1[:, 0]) * (boxes1[:, 3] - boxes1[:, 1])
    area2 = (boxes2[:, 2] - boxes2[:, 0]) * (boxes2[:, 3] - boxes2[:, 1])
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (area1[:, None] + area2 - inter)


def nms(boxes, scores, threshold):
    order, keep = scores.argsort(descending=True), []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        ious = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
        order = order[1:][ious <= threshold]
    return torch.tensor(keep)


xy = torch.rand(40, 2) * 50
boxes = torch.cat([xy, xy + torch.rand(40, 2) * 20 + 5], dim=1)
print("kept", nms(boxes, torch.rand(40), 0.3).tolist())

images = torch.zeros(64, 1, 24, 24)
targets = torch.zeros(64, 4)
for i in range(64):
    x, y = torch.randint(0, 14, (2,)).tolist()
    w, h = torch.randint(4, 10, (2,)).tolist()
    images[i, 0, y : y + h, x : x + w] = 1
    targets[i] = torch.tensor([x, y, x + w, y + h]) / 24
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, 2),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3, 2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(400, 64),
    nn.ReLU(),
    nn.Linear(64, 4),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    pred = model(images)
    loss = nn.functional.smooth_l1_loss(pred, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 3 == 2:
        iou = box_iou(pred.detach(), targets).diag()
        print(epoch, f"loss {loss.item():.4f} mean iou {iou.mean().item():.3f}")
