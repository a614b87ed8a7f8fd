import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(0)
torch.manual_seed(0)
corpus = (
    "he is a king she is a queen he is a man she is a woman warsaw is poland capital berlin is germany capital "
    "paris is france capital"
).split()
vocabulary = sorted(set(corpus))
word2idx = {w: idx for idx, w in enumerate(vocabulary)}
window = 2
pairs = [
    (word2idx[corpus[i]], word2idx[corpus[i + j]])
    for i in range(len(corpus))
    for j in range(-window, window + 1)
    if j != 0 and 0 <= i + j < len(corpus)
]
pairs = np.array(pairs)


class SkipGram(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.target, self.context = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)

    def forward(self, centre, positive, negative):
        v = self.target(centre)
        score = (v * self.context(positive)).sum(1)
        bad = torch.bmm(self.context(negative), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(score) + F.logsigmoid(-bad).sum(1)).mean()


model = SkipGram(len(vocabulary), 16)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(25):
    order = np.random.permutation(len(pairs))
    total = 0.0
    for start in range(0, len(pairs), 32):
        batch = torch.from_numpy(pairs[order[start : start + 32]])
        negative = torch.randint(0, len(vocabulary), (len(batch), 5))
        loss = model(batch[:, 0], batch[:, 1], negative)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch % 5 == 4:
        print(f"Loss at epo {epoch}: {total:.3f}")
vectors = F.normalize(model.target.weight.detach(), dim=1)
similar = vectors[word2idx["king"]] @ vectors.t()
for value, index in zip(*similar.topk(4)):
    print(vocabulary[index], f"{value:.3f}")
