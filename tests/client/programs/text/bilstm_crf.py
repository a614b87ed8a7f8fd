import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(1)
START_TAG, STOP_TAG, EMBEDDING_DIM, HIDDEN_DIM = "<START>", "<STOP>", 5, 4


def argmax(vec):
    _, idx = torch.max(vec, 1)
    return idx.item()


def log_sum_exp(vec):
    max_score = vec[0, argmax(vec)]
    max_score_broadcast = max_score.view(1, -1).expand(1, vec.size()[1])
    return max_score + torch.log(torch.sum(torch.exp(vec - max_score_broadcast)))


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab_size, tag_to_ix):
        super().__init__()
        self.tag_to_ix, self.tagset_size = tag_to_ix, len(tag_to_ix)
        self.word_embeds = nn.Embedding(vocab_size, EMBEDDING_DIM)
        self.lstm = nn.LSTM(EMBEDDING_DIM, HIDDEN_DIM // 2, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(HIDDEN_DIM, self.tagset_size)
        self.transitions = nn.Parameter(torch.randn(self.tagset_size, self.tagset_size))
        self.transitions.data[tag_to_ix[START_TAG], :] = -10000
        self.transitions.data[:, tag_to_ix[STOP_TAG]] = -10000
        self.hidden = (torch.randn(2, 1, HIDDEN_DIM // 2), torch.randn(2, 1, HIDDEN_DIM // 2))

    def _forward_alg(self, feats):
        init_alphas = torch.full((1, self.tagset_size), -10000.0)
        init_alphas[0][self.tag_to_ix[START_TAG]] = 0.0
        forward_var = init_alphas
        for feat in feats:
            alphas_t = []
            for next_tag in range(self.tagset_size):
                emit_score = feat[next_tag].view(1, -1).expand(1, self.tagset_size)
                trans_score = self.transitions[next_tag].view(1, -1)
                alphas_t.append(log_sum_exp(forward_var + trans_score + emit_score).view(1))
            forward_var = torch.cat(alphas_t).view(1, -1)
        return log_sum_exp(forward_var + self.transitions[self.tag_to_ix[STOP_TAG]])

    def _get_lstm_features(self, sentence):
        embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
        lstm_out, _ = self.lstm(embeds, self.hidden)
        return self.hidden2tag(lstm_out.view(len(sentence), HIDDEN_DIM))

    def _score_sentence(self, feats, tags):
        score = torch.zeros(1)
        tags = torch.cat([torch.tensor([self.tag_to_ix[START_TAG]], dtype=torch.long), tags])
        for i, feat in enumerate(feats):
            score = score + self.transitions[tags[i + 1], tags[i]] + feat[tags[i + 1]]
        return score + self.transitions[self.tag_to_ix[STOP_TAG], tags[-1]]

    def neg_log_likelihood(self, sentence, tags):
        feats = self._get_lstm_features(sentence)
        return self._forward_alg(feats) - self._score_sentence(feats, tags)

    def forward(self, sentence):
        feats = self._get_lstm_features(sentence)
        backpointers = []
        forward_var = torch.full((1, self.tagset_size), -10000.0)
        forward_var[0][self.tag_to_ix[START_TAG]] = 0
        for feat in feats:
            scores = forward_var + self.transitions
            best, pointers = scores.max(1)
            forward_var = (best + feat).view(1, -1)
            backpointers.append(pointers.tolist())
        terminal_var = forward_var + self.transitions[self.tag_to_ix[STOP_TAG]]
        best_path = [argmax(terminal_var)]
        path_score = terminal_var[0][best_path[0]]
        for pointers in reversed(backpointers):
            best_path.append(pointers[best_path[-1]])
        best_path.pop()
        return path_score, best_path[::-1]


training_data = [
    (
        "the wall street journal reported today that apple corporation made money".split(),
        "B I I I O O O B I O O".split(),
    ),
    ("georgia tech is a university in georgia".split(), "B I O O O O B".split()),
]
word_to_ix = {}
for sentence, _ in training_data:
    for word in sentence:
        word_to_ix.setdefault(word, len(word_to_ix))
tag_to_ix = {"B": 0, "I": 1, "O": 2, START_TAG: 3, STOP_TAG: 4}
model = BiLSTM_CRF(len(word_to_ix), tag_to_ix)
optimizer = optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4)
sentences = [
    (torch.tensor([word_to_ix[w] for w in s]), torch.tensor([tag_to_ix[t] for t in t_])) for s, t_ in training_data
]
with torch.no_grad():
    print(model(sentences[0][0]))
for epoch in range(8):
    for sentence, targets in sentences:
        model.zero_grad()
        loss = model.neg_log_likelihood(sentence, targets)
        loss.backward()
        optimizer.step()
    print(epoch, f"{loss.item():.4f}")
with torch.no_grad():
    print(model(sentences[0][0]))
