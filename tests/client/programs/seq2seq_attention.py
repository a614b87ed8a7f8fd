import torch, random
import torch.nn as nn
from torch import optim
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader, RandomSampler, SequentialSampler
from _kit import *

torch.set_default_dtype(torch.float64)
SOS, EOS, MAX = 0, 1, 5
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.0):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))


class BahdanauAttention(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.Wa = nn.Linear(h, h)
        self.Ua = nn.Linear(h, h)
        self.Va = nn.Linear(h, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, encoder_outputs, encoder_hidden, target_tensor=None):
        batch_size = encoder_outputs.size(0)
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long, device=device).fill_(SOS)
        decoder_hidden = encoder_hidden
        decoder_outputs = []
        attentions = []
        for i in range(MAX):
            o, decoder_hidden, a = self.forward_step(decoder_input, decoder_hidden, encoder_outputs)
            decoder_outputs.append(o)
            attentions.append(a)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = o.topk(1)
                decoder_input = topi.squeeze(-1).detach()
        return F.log_softmax(torch.cat(decoder_outputs, dim=1), dim=-1), decoder_hidden, torch.cat(attentions, dim=1)

    def forward_step(self, input, hidden, enc):
        embedded = self.embedding(input)
        query = hidden.permute(1, 0, 2)
        context, w = self.attention(query, enc)
        out, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
        return self.out(out), hidden, w


enc, dec = det(EncoderRNN(9, 6)).to(device), det(AttnDecoderRNN(6, 7)).to(device)
print(enc, dec)
data = TensorDataset(randint(0, 9, (8, MAX)).to(device), randint(0, 7, (8, MAX)).to(device))
loader = DataLoader(data, sampler=SequentialSampler(data), batch_size=4)
print(len(DataLoader(data, sampler=RandomSampler(data), batch_size=3)))
eo, do = optim.Adam(enc.parameters(), lr=0.01), optim.Adam(dec.parameters(), lr=0.01)
criterion = nn.NLLLoss()
for epoch in range(5):
    for inp, tgt in loader:
        eo.zero_grad()
        do.zero_grad()
        eout, eh = enc(inp)
        d, _, _ = dec(eout, eh, tgt)
        loss = criterion(d.view(-1, d.size(-1)), tgt.view(-1))
        loss.backward()
        eo.step()
        do.step()
        say(loss.item())
with torch.no_grad():
    eout, eh = enc(inp)
    d, _, att = dec(eout, eh)
    _, topi = d.topk(1)
    print(topi.squeeze().tolist())
    say(att)
    for idx in topi.squeeze()[0]:
        if idx.item() == EOS:
            break
