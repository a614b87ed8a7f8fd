import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
window = torch.hann_window(64)
tones = torch.linspace(0.05, 0.4, 6)


def speak(letters):
    parts = [torch.sin(2 * torch.pi * tones[l - 1] * torch.arange(256.0)) for l in letters]
    return torch.cat(parts) + 0.05 * torch.randn(256 * len(letters))


targets = torch.stack([torch.randperm(6)[:4] + 1 for _ in range(16)])
waves = torch.stack([speak(t.tolist()) for t in targets])
spectra = torch.stft(waves, 64, 32, window=window, return_complex=True).abs().clamp_min(1e-5).log().transpose(1, 2)


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(33, 32, 3, stride=2, padding=1)
        self.rnn = nn.GRU(32, 32, bidirectional=True, batch_first=True)
        self.out = nn.Linear(64, 7)

    def forward(self, x):
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.out(self.rnn(x)[0]).log_softmax(-1)


model, ctc = Acoustic(), nn.CTCLoss(blank=0)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(20):
    log_probs = model(spectra)
    lengths = torch.full((16,), log_probs.shape[1], dtype=torch.long)
    loss = ctc(log_probs.transpose(0, 1), targets, lengths, torch.full((16,), 4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 5 == 4:
        print(step, f"{loss.item():.3f}")
best = log_probs.argmax(-1)
for row, target in zip(best[:4], targets):
    path = torch.unique_consecutive(row)
    print(path[path != 0].tolist(), target.tolist())
