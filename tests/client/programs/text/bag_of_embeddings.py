import torch
from torch import nn
from torch.utils.data import DataLoader, random_split

torch.manual_seed(0)


class TextClassificationModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, sparse=False)
        self.fc = nn.Linear(embed_dim, num_class)
        self.init_weights()

    def init_weights(self):
        initrange = 0.5
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.fc.weight.data.uniform_(-initrange, initrange)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def sample(i):
    label = i % 4
    words = (torch.randn(int(torch.randint(5, 25, (1,)))) * 8 + 20 + 20 * label).long().clamp(0, 99)
    return label + 1, words


def collate_batch(batch):
    label_list, text_list, offsets = [], [], [0]
    for _label, _text in batch:
        label_list.append(_label - 1)
        text_list.append(_text)
        offsets.append(_text.size(0))
    return torch.tensor(label_list, dtype=torch.int64), torch.cat(text_list), torch.tensor(offsets[:-1]).cumsum(dim=0)


data = [sample(i) for i in range(160)]
train_data, valid_data = random_split(data, [128, 32])
train_loader = DataLoader(train_data, batch_size=16, shuffle=True, collate_fn=collate_batch)
valid_loader = DataLoader(valid_data, batch_size=16, collate_fn=collate_batch)
model = TextClassificationModel(100, 64, 4)
criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.1)
total_accu = None
for epoch in range(1, 5):
    model.train()
    for label, text, offsets in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(text, offsets), label)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    model.eval()
    total_acc = total_count = 0
    with torch.no_grad():
        for label, text, offsets in valid_loader:
            total_acc += (model(text, offsets).argmax(1) == label).sum().item()
            total_count += label.size(0)
    if total_accu is not None and total_accu > total_acc / total_count:
        scheduler.step()
    else:
        total_accu = total_acc / total_count
    print(f"| end of epoch {epoch:3d} | loss {loss.item():.4f} | valid accuracy {total_acc / total_count:8.3f}")
