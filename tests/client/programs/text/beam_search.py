import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, BOS, EOS = 16, 0, 1


class Decoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed, self.cell, self.out = nn.Embedding(VOCAB, width), nn.GRUCell(width, width), nn.Linear(width, VOCAB)

    def forward(self, token, hidden):
        hidden = self.cell(self.embed(token), hidden)
        return F.log_softmax(self.out(hidden), dim=-1), hidden


model = Decoder()
opt = torch.optim.Adam(model.parameters(), lr=0.02)
sequence = torch.tensor([0, 5, 3, 8, 5, 4, 1])
for _ in range(20):
    hidden, loss = torch.zeros(1, 32), 0
    for now, following in zip(sequence[:-1], sequence[1:]):
        scores, hidden = model(now.view(1), hidden)
        loss = loss + F.nll_loss(scores, following.view(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")


@torch.no_grad()
def beam_search(beam=3, steps=10):
    beams, done = [([BOS], 0.0, torch.zeros(1, 32))], []
    for _ in range(steps):
        candidates = []
        for tokens, score, hidden in beams:
            scores, new_hidden = model(torch.tensor([tokens[-1]]), hidden)
            values, indices = scores[0].topk(beam)
            for value, index in zip(values, indices):
                candidates.append((tokens + [index.item()], score + value.item(), new_hidden))
        candidates.sort(key=lambda c: c[1], reverse=True)
        beams = []
        for candidate in candidates[:beam]:
            (done if candidate[0][-1] == EOS else beams).append(candidate)
        if not beams:
            break
    return sorted(done, key=lambda c: c[1] / len(c[0]), reverse=True)


for tokens, score, _ in beam_search():
    print(tokens, f"{score:.4f}")


@torch.no_grad()
def nucleus(p=0.9, temperature=1.5):
    token, hidden, out = torch.tensor([BOS]), torch.zeros(1, 32), []
    for _ in range(12):
        scores, hidden = model(token, hidden)
        ordered, indices = torch.sort(F.softmax(scores / temperature, -1), descending=True)
        ordered[ordered.cumsum(-1) - ordered > p] = 0
        token = indices.gather(-1, torch.multinomial(ordered / ordered.sum(-1, keepdim=True), 1))[0]
        out.append(token.item())
    return out


print(nucleus(), nucleus())
