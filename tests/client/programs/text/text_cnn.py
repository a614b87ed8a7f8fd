import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class TextCNN(nn.Module):
    def __init__(self, vocab, dim=32, kernels=(3, 4, 5), classes=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.convs1 = nn.ModuleList([nn.Conv2d(1, 24, (K, dim)) for K in kernels])
        self.dropout, self.fc1 = nn.Dropout(0.3), nn.Linear(len(kernels) * 24, classes)

    def forward(self, x):
        x = self.embed(x).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs1]
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
        return self.fc1(self.dropout(torch.cat(x, 1)))


lengths = torch.randint(8, 20, (96,))
text = torch.randint(1, 60, (96, 20)) * (torch.arange(20) < lengths[:, None])
labels = (text == 7).any(1).long() | (text == 13).any(1).long()
model = TextCNN(60)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(4):
    model.train()
    for i in range(0, 96, 24):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text[i : i + 24]), labels[i : i + 24])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(text)
        corrects = (torch.max(logits, 1)[1].view(labels.size()).data == labels.data).sum()
    print(
        f"Epoch[{epoch}] - loss: {loss.item():.6f}  acc: {100.0 * corrects / len(labels):.4f}%({corrects}/{len(labels)})"
    )
print(model.embed.weight[0].abs().sum())
