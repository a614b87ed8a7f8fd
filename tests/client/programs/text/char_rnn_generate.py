import torch
import torch.nn as nn

text = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. " * 6
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
itos = {i: c for c, i in stoi.items()}
data = torch.tensor([stoi[c] for c in text])


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=96, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, 32)
        self.rnn = nn.LSTM(32, hidden, layers, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.rnn(self.embed(x), state)
        return self.fc(out), state


torch.manual_seed(0)
model = CharRNN(len(chars))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()
seq_len = 32
for step in range(30):
    start = torch.randint(0, len(data) - seq_len - 1, (16,))
    x = torch.stack([data[s : s + seq_len] for s in start])
    y = torch.stack([data[s + 1 : s + seq_len + 1] for s in start])
    logits, _ = model(x)
    loss = criterion(logits.view(-1, len(chars)), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5)
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.3f}")

model.eval()
with torch.no_grad():
    x, state, out = torch.tensor([[stoi["t"]]]), None, "t"
    for _ in range(40):
        logits, state = model(x, state)
        x = logits[:, -1].argmax(-1, keepdim=True)
        out += itos[x.item()]
print(out)
