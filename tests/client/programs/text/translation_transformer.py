import torch
import torch.nn as nn

torch.manual_seed(0)
SRC_VOCAB, TGT_VOCAB, PAD, BOS, EOS = 20, 22, 0, 1, 2


class Seq2SeqTransformer(nn.Module):
    def __init__(self, emb=32):
        super().__init__()
        self.src, self.tgt = nn.Embedding(SRC_VOCAB, emb), nn.Embedding(TGT_VOCAB, emb)
        self.position = nn.Parameter(torch.randn(1, 16, emb) * 0.1)
        self.transformer = nn.Transformer(emb, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.generator = nn.Linear(emb, TGT_VOCAB)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        out = self.transformer(
            self.src(src) + self.position[:, : src.size(1)],
            self.tgt(tgt) + self.position[:, : tgt.size(1)],
            tgt_mask=mask,
            src_key_padding_mask=(src == PAD),
            memory_key_padding_mask=(src == PAD),
        )
        return self.generator(out)


lengths = torch.randint(3, 8, (48,))
src = torch.randint(3, SRC_VOCAB, (48, 8)) * (torch.arange(8) < lengths[:, None])
tgt = torch.cat([torch.full((48, 1), BOS), (src + 2) * (src != PAD), torch.full((48, 1), PAD)], 1)
tgt[torch.arange(48), lengths + 1] = EOS
model = Seq2SeqTransformer()
for p in model.parameters():
    if p.dim() > 1:
        nn.init.xavier_uniform_(p)
loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
for epoch in range(4):
    total = 0.0
    for i in range(0, 48, 16):
        logits = model(src[i : i + 16], tgt[i : i + 16, :-1])
        loss = loss_fn(logits.reshape(-1, TGT_VOCAB), tgt[i : i + 16, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"Epoch: {epoch}, Train loss: {total / 3:.3f}")
model.eval()
with torch.no_grad():
    ys = torch.full((1, 1), BOS)
    for _ in range(8):
        word = model(src[:1], ys)[:, -1].argmax(1).item()
        ys = torch.cat([ys, torch.full((1, 1), word)], dim=1)
        if word == EOS:
            break
print(ys.flatten().tolist())
