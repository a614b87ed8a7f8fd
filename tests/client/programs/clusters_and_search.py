import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from _kit import *

torch.manual_seed(0)
centres = ([0.0, 0.0], [3.0, 3.0], [0.0, 4.0])
points = torch.cat(
    [torch.randn(40, 2, dtype=torch.float64) * 0.5 + torch.tensor(c, dtype=torch.float64) for c in centres]
)


def k_means(x, k, steps=50):
    means = x[torch.randperm(len(x))[:k]].clone()
    for step in range(steps):
        nearest = torch.cdist(x, means).argmin(1)
        moved = means.clone()
        for j in range(k):
            mine = nearest == j
            if mine.any():
                moved[j] = x[mine].mean(0)
        if torch.allclose(moved, means):
            break
        means = moved
    return means, nearest, step


means, nearest, steps = k_means(points, 3)
say(means, torch.bincount(nearest), steps)
share, mean, var = torch.full((3,), 1 / 3, dtype=torch.float64), points[::40].clone(), torch.ones(3, 2).double()
for _ in range(8):
    density = (-0.5 * ((points[:, None] - mean) ** 2 / var + var.log() + math.log(2 * math.pi))).sum(-1) + share.log()
    each = torch.logsumexp(density, 1)
    weight = (density - each[:, None]).exp()
    count = weight.sum(0)
    share, mean = count / len(points), weight.T @ points / count[:, None]
    var = weight.T @ points**2 / count[:, None] - mean**2 + 1e-6
say(each.mean(), share, mean)

# A Kalman filter over a list of measurements, read one by one.
move, see = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double(), torch.tensor([[1.0, 0.0]]).double()
state, spread = torch.zeros(2, 1).double(), torch.eye(2).double() * 10
measured, estimates = torch.arange(20.0).double() * 0.5 + torch.randn(20).double(), []
for i in range(len(measured)):
    state, spread = move @ state, move @ spread @ move.T + torch.eye(2).double() * 0.01
    gain = spread @ see.T @ torch.inverse(see @ spread @ see.T + 1)
    state = state + gain @ (measured[i] - see @ state)
    spread = (torch.eye(2).double() - gain @ see) @ spread
    estimates.append(state[0].item())
say(*estimates)


class Next(nn.Module):
    def __init__(self, words=12, width=16):
        super().__init__()
        self.width = width
        self.embed, self.cell, self.out = nn.Embedding(words, width), nn.LSTMCell(width, width), nn.Linear(width, words)

    def forward(self, word, state=None):
        state = self.cell(self.embed(word), state)
        return F.log_softmax(self.out(state[0]), -1), state


def beam_search(model, word, width=3, length=6):
    beams = [([word], 0.0, None)]
    for _ in range(length):
        longer = []
        for words, score, state in beams:
            scores, after = model(torch.tensor([words[-1]]), state)
            best, which = scores[0].topk(width)
            for p, i in zip(best, which):
                longer.append((words + [i.item()], score + p.item(), after))
        beams = sorted(longer, key=lambda beam: -beam[1])[:width]
    return beams[0][:2]


model = det(Next().double())
with torch.no_grad():
    for word in range(4):
        say(*beam_search(model, word))


class Pairs(Dataset):
    """Numbers of NumPy and Python, tensors and their rows: what a batch of each becomes."""

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return points[i], np.float64(i / 2), i, torch.tensor([i, i + 1]), [np.float32(i), 1.5], torch.tensor(i).float()


for batch in DataLoader(Pairs(), batch_size=4):
    print([part.dtype for part in batch[:4]], [part.dtype for part in batch[4]], batch[1], batch[5])
say(
    torch.tensor([np.float64(0.5), 1.0]), torch.tensor([row[0] for row in points[:3]]), torch.tensor([points[0, :1], 2])
)
truth, guess = torch.randint(0, 3, (30,)), torch.randint(0, 3, (30,))
table = torch.zeros(3, 3, dtype=torch.int64)
for t, p in zip(truth.view(-1), guess.view(-1)):
    table[t.long(), p.long()] += 1
print(table, table.diag().float() / table.sum(1))
