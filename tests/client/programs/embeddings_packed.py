import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence, pad_packed_sequence, pack_sequence, unpad_sequence
from _kit import *

torch.set_default_dtype(torch.float64)
torch.manual_seed(1)
text = "When forty winters shall besiege thy brow And dig deep trenches in thy beauty's field".split()
vocab = sorted(set(text))
w2i = {w: i for i, w in enumerate(vocab)}
ngrams = [([text[i - 2], text[i - 1]], text[i]) for i in range(2, len(text))]


class NGram(nn.Module):
    def __init__(self, v, e, c):
        super().__init__()
        self.embeddings = nn.Embedding(v, e)
        self.linear1 = nn.Linear(c * e, 16)
        self.linear2 = nn.Linear(16, v)

    def forward(self, i):
        e = self.embeddings(i).view((1, -1))
        return F.log_softmax(self.linear2(F.relu(self.linear1(e))), dim=1)


m = det(NGram(len(vocab), 5, 2))
opt = optim.SGD(m.parameters(), lr=0.01)
lf = nn.NLLLoss()
losses = []
for epoch in range(2):
    total = 0
    for ctx, tgt in ngrams:
        ids = torch.tensor([w2i[w] for w in ctx], dtype=torch.long)
        m.zero_grad()
        loss = lf(m(ids), torch.tensor([w2i[tgt]], dtype=torch.long))
        loss.backward()
        opt.step()
        total += loss.item()
    say(total)
lstm = det(nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True))
seqs = [randn(n, 3) for n in (5, 3, 2)]
padded = pad_sequence(seqs, batch_first=True)
print(padded.shape)
lens = torch.tensor([5, 3, 2])
packed = pack_padded_sequence(padded, lens, batch_first=True)
out, (h, c) = lstm(packed)
o, l = pad_packed_sequence(out, batch_first=True)
say(o, h, c)
print(l, packed.batch_sizes)
packed = pack_padded_sequence(padded[[2, 0, 1]], [2, 5, 3], batch_first=True, enforce_sorted=False)
gru = det(nn.GRU(3, 4, batch_first=True))
o, h = gru(packed)
o, l = pad_packed_sequence(o, batch_first=True, total_length=6, padding_value=-1.0)
say(o, h)
print(l)
o.sum().backward()
say(gru.weight_ih_l0.grad)
ps = pack_sequence(seqs)
say(ps.data)
o, hh = det(nn.RNN(3, 2))(ps)
say(o.data, hh)


class LSTMTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(9, 6)
        self.lstm = nn.LSTM(6, 6)
        self.t = nn.Linear(6, 3)

    def forward(self, s):
        e = self.e(s)
        o, _ = self.lstm(e.view(len(s), 1, -1))
        return F.log_softmax(self.t(o.view(len(s), -1)), dim=1)


t = det(LSTMTagger())
o = optim.SGD(t.parameters(), lr=0.1)
for _ in range(3):
    t.zero_grad()
    loss = lf(t(torch.tensor([0, 1, 2, 3])), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    o.step()
    say(loss.item())
cell = det(nn.LSTMCell(3, 4))
hx, cx = torch.zeros(2, 4), torch.zeros(2, 4)
outs = []
for i in range(3):
    hx, cx = cell(padded[:2, i], (hx, cx))
    outs.append(hx)
say(torch.stack(outs))
emb = nn.EmbeddingBag(9, 3, sparse=False, mode="sum")
det(emb)
say(emb(torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 3])))
# skip-gram negative sampling
inp, outp = det(nn.Embedding(9, 4)), det(nn.Embedding(9, 4))
c, p, n = randint(0, 9, (5,)), randint(0, 9, (5,)), randint(0, 9, (5, 3))
loss = -(
    F.logsigmoid((inp(c) * outp(p)).sum(1)) + F.logsigmoid(-torch.bmm(outp(n), inp(c).unsqueeze(2)).squeeze(2)).sum(1)
).mean()
loss.backward()
say(loss, inp.weight.grad, outp.weight.grad)


# BiLSTM-CRF forward algorithm
def log_sum_exp(vec):
    mx = vec[0, vec.argmax()]
    return mx + torch.log(torch.sum(torch.exp(vec - mx.view(1, -1).expand(1, vec.size(1)))))


tr = nn.Parameter(randn(4, 4))
tr.data[0, :] = -10000
feats = randn(3, 4)
fv = torch.full((1, 4), -10000.0)
fv[0][1] = 0.0
for f in feats:
    fv = torch.cat(
        [log_sum_exp(fv + f[k].view(1, -1).expand(1, 4) + tr[k].view(1, -1)).view(1) for k in range(4)]
    ).view(1, -1)
a = log_sum_exp(fv)
a.backward()
say(a, tr.grad)
print(torch.nn.utils.rnn.PackedSequence)
# CTC
lp = randn(6, 2, 5).log_softmax(2).requires_grad_()
l = nn.CTCLoss()(lp, randint(1, 5, (2, 3)), torch.tensor([6, 6]), torch.tensor([3, 2]))
l.backward()
say(l, lp.grad)
