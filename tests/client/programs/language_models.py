import math, torch
import torch.nn as nn
import torch.nn.functional as F
from torch import nn, Tensor
from torch.nn import TransformerEncoder, TransformerEncoderLayer
from _kit import *

torch.set_default_dtype(torch.float64)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pe[: x.size(0)]
        return self.dropout(x)


class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers, dropout=0.5):
        super().__init__()
        self.model_type = "Transformer"
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        el = TransformerEncoderLayer(d_model, nhead, d_hid, dropout)
        self.transformer_encoder = TransformerEncoder(el, nlayers, enable_nested_tensor=False)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self):
        initrange = 0.1
        self.embedding.weight.data.uniform_(-initrange, initrange)
        self.linear.bias.data.zero_()
        self.linear.weight.data.uniform_(-initrange, initrange)

    def forward(self, src, src_mask=None):
        src = self.embedding(src) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        if src_mask is None:
            src_mask = nn.Transformer.generate_square_subsequent_mask(len(src))
        return self.linear(self.transformer_encoder(src, src_mask))


def batchify(data, bsz):
    seq_len = data.size(0) // bsz
    data = data[: seq_len * bsz]
    return data.view(bsz, seq_len).t().contiguous()


data = batchify(randint(0, 11, (100,)), 4)
bptt = 6


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


model = det(TransformerModel(11, 8, 2, 16, 2, 0.0), 0.1)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.95)
model.train()
total = 0.0
for batch, i in enumerate(range(0, data.size(0) - 1, bptt)):
    d, t = get_batch(data, i)
    out = model(d)
    loss = criterion(out.view(-1, 11), t)
    optimizer.zero_grad()
    loss.backward()
    say(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))
    optimizer.step()
    total += loss.item()
    say(loss.item())
    print(f"ppl {math.exp(loss.item()):8.2f}")
scheduler.step()
model.eval()
with torch.inference_mode():
    say(model(data[:5]))


# nanoGPT
class Head(nn.Module):
    def __init__(self, n, hs, bs):
        super().__init__()
        self.key = nn.Linear(n, hs, bias=False)
        self.query = nn.Linear(n, hs, bias=False)
        self.value = nn.Linear(n, hs, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(bs, bs)))

    def forward(self, x):
        B, T, C = x.shape
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class CausalSelfAttention(nn.Module):
    def __init__(self, n, h):
        super().__init__()
        self.c_attn = nn.Linear(n, 3 * n)
        self.c_proj = nn.Linear(n, n)
        self.h = h
        self.n = n

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n, dim=2)
        k = k.view(B, T, self.h, C // self.h).transpose(1, 2)
        q = q.view(B, T, self.h, C // self.h).transpose(1, 2)
        v = v.view(B, T, self.h, C // self.h).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(11, 8),
                wpe=nn.Embedding(10, 8),
                drop=nn.Dropout(0.0),
                h=nn.ModuleList(
                    [
                        nn.ModuleDict(
                            dict(
                                ln=nn.LayerNorm(8),
                                att=CausalSelfAttention(8, 2),
                                mlp=nn.Sequential(nn.Linear(8, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 8)),
                            )
                        )
                        for _ in range(2)
                    ]
                ),
                ln_f=nn.LayerNorm(8, bias=False),
            )
        )
        self.lm_head = nn.Linear(8, 11, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init)
        self.head = Head(8, 4, 10)

    def _init(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.normal_(m.weight, mean=0.0, std=0.02)
            if m.bias is not None:
                torch.nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for blk in self.transformer.h:
            x = x + blk["att"](blk["ln"](x))
            x = x + blk.mlp(blk.ln(x)) if hasattr(blk, "mlp") else x
        x = self.transformer.ln_f(x)
        self.head(x)
        if targets is not None:
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return self.lm_head(x[:, [-1], :]), None

    @torch.no_grad()
    def generate(self, idx, n, top_k=3):
        for _ in range(n):
            logits, _ = self(idx[:, -10:])
            logits = logits[:, -1, :]
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            torch.multinomial(probs, num_samples=1)
            nxt = probs.argmax(-1, keepdim=True)
            idx = torch.cat((idx, nxt), dim=1)
        return idx


g = det(GPT())
print(len(list(g.parameters())), list(g.state_dict())[:3])
pd = {pn: p for pn, p in g.named_parameters() if p.requires_grad}
groups = [
    {"params": [p for p in pd.values() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in pd.values() if p.dim() < 2], "weight_decay": 0.0},
]
opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), fused=False)
for _ in range(6):
    x = randint(0, 11, (3, 8))
    _, loss = g(x[:, :-1], x[:, 1:].contiguous())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(g.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    say(loss.item())
print(g.generate(torch.zeros((1, 1), dtype=torch.long), 5).tolist())
