import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
X = torch.randn(200, 10)
y = (X[:, :5].sum(1) > X[:, 5:].sum(1)).long() + (X[:, 0] > 1).long()
teacher = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))
student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))


def accuracy(model):
    model.eval()
    with torch.no_grad():
        return (model(X).argmax(dim=1) == y).float().mean().item()


optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
for epoch in range(10):
    for xb, yb in zip(X.split(50), y.split(50)):
        optimizer.zero_grad()
        loss = F.cross_entropy(teacher(xb), yb)
        loss.backward()
        optimizer.step()
print(f"teacher loss {loss.item():.4f} accuracy {accuracy(teacher):.3f}")
T, soft_weight, ce_weight = 2, 0.25, 0.75
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for epoch in range(10):
    student.train()
    running = 0.0
    for xb, yb in zip(X.split(50), y.split(50)):
        optimizer.zero_grad()
        with torch.no_grad():
            teacher_logits = teacher(xb)
        student_logits = student(xb)
        soft_targets = F.softmax(teacher_logits / T, dim=-1)
        soft_prob = F.log_softmax(student_logits / T, dim=-1)
        soft_loss = torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * (T**2)
        loss = soft_weight * soft_loss + ce_weight * F.cross_entropy(student_logits, yb)
        loss.backward()
        optimizer.step()
        running += loss.item()
    if epoch % 5 == 4:
        print(f"Epoch {epoch + 1}/10, Loss: {running / 4:.4f}")
print(f"student accuracy {accuracy(student):.3f}")
