import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

random.seed(1)
torch.manual_seed(1)
SOS_token, EOS_token, WORDS, MAX_LENGTH = 0, 1, 12, 8


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, dropout_p=0.1):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input):
        return self.gru(self.dropout(self.embedding(input)))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa, self.Ua, self.Va = (nn.Linear(hidden_size, n) for n in (hidden_size, hidden_size, 1))

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)
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
        decoder_input = torch.empty(batch_size, 1, dtype=torch.long).fill_(SOS_token)
        hidden, outputs, attentions = encoder_hidden, [], []
        for i in range(MAX_LENGTH):
            embedded = self.embedding(decoder_input)
            context, weights = self.attention(hidden.permute(1, 0, 2), encoder_outputs)
            output, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
            output = self.out(output)
            outputs.append(output)
            attentions.append(weights)
            if target_tensor is not None:
                decoder_input = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = output.topk(1)
                decoder_input = topi.squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1), hidden, torch.cat(attentions, dim=1)


pairs = []
for _ in range(64):
    words = [random.randint(2, WORDS - 1) for _ in range(random.randint(2, MAX_LENGTH - 1))]
    pad = [EOS_token] * (MAX_LENGTH - len(words))
    pairs.append((words + pad, words[::-1] + pad))
inputs, targets = (torch.tensor(side) for side in zip(*pairs))
encoder, decoder = EncoderRNN(WORDS, 48), AttnDecoderRNN(48, WORDS)
enc_opt, dec_opt = (optim.Adam(m.parameters(), lr=5e-3) for m in (encoder, decoder))
criterion = nn.NLLLoss()
for epoch in range(6):
    total = 0
    for i in range(0, 64, 16):
        enc_opt.zero_grad()
        dec_opt.zero_grad()
        outputs, hidden = encoder(inputs[i : i + 16])
        decoded, _, _ = decoder(outputs, hidden, targets[i : i + 16])
        loss = criterion(decoded.view(-1, decoded.size(-1)), targets[i : i + 16].view(-1))
        loss.backward()
        enc_opt.step()
        dec_opt.step()
        total += loss.item()
    print(f"({epoch} {epoch * 100 // 6}%) {total / 4:.4f}")
encoder.eval()
with torch.no_grad():
    decoded, _, attentions = decoder(*encoder(inputs[:2]))
    for ids in decoded.topk(1)[1].squeeze(-1):
        print(ids.tolist())
