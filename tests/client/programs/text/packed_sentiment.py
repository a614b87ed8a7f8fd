import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(2)
reviews = [torch.randint(1, 40, (int(n),)) for n in torch.randint(4, 15, (80,))]
scores = [float((r < 15).float().mean() > 0.35) for r in reviews]


def collate_batch(batch):
    texts, labels = zip(*sorted(batch, key=lambda pair: len(pair[0]), reverse=True))
    return pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts]), torch.tensor(labels)


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 24, padding_idx=0)
        self.rnn = nn.LSTM(24, 32, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(64, 1)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(self.embedding(text), lengths, batch_first=True)
        packed_output, (hidden, cell) = self.rnn(packed)
        output, output_lengths = pad_packed_sequence(packed_output, batch_first=True)
        assert output_lengths.equal(lengths)
        return self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)).squeeze(1)


model = Sentiment()
loader = DataLoader(list(zip(reviews, scores)), batch_size=16, shuffle=True, collate_fn=collate_batch)
criterion, optimizer = nn.BCEWithLogitsLoss(), torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    epoch_loss = epoch_acc = 0
    for text, lengths, label in loader:
        optimizer.zero_grad()
        predictions = model(text, lengths)
        loss = criterion(predictions, label)
        acc = (torch.round(torch.sigmoid(predictions)) == label).float().mean()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
        epoch_acc += acc.item()
    print(
        f"Epoch: {epoch + 1:02} | Train Loss: {epoch_loss / len(loader):.3f} | Train Acc: {epoch_acc / len(loader) * 100:.2f}%"
    )
