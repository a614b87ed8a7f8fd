import random

import torch
import torch.nn as nn

names = {
    "English": "Smith Jones Taylor Brown Wilson Evans Thomas Roberts Walker Wright".split(),
    "Italian": "Rossi Russo Ferrari Esposito Bianchi Romano Colombo Ricci Marino Greco".split(),
    "Russian": "Ivanov Smirnov Kuznetsov Popov Vasiliev Petrov Sokolov Mikhailov Novikov Fedorov".split(),
}
all_letters = sorted(set("".join(sum(names.values(), [])).lower()))
n_letters, categories = len(all_letters), list(names)
random.seed(0)
torch.manual_seed(0)


def line_to_tensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line.lower()):
        tensor[li][0][all_letters.index(letter)] = 1
    return tensor


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size, hidden_size)
        self.h2h = nn.Linear(hidden_size, hidden_size)
        self.h2o = nn.Linear(hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        hidden = torch.tanh(self.i2h(input) + self.h2h(hidden))
        return self.softmax(self.h2o(hidden)), hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


rnn, criterion, learning_rate = RNN(n_letters, 64, len(categories)), nn.NLLLoss(), 0.01


def train(category_tensor, line_tensor):
    hidden = rnn.initHidden()
    rnn.zero_grad()
    for i in range(line_tensor.size()[0]):
        output, hidden = rnn(line_tensor[i], hidden)
    loss = criterion(output, category_tensor)
    loss.backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.item()


current_loss = 0
for iter in range(1, 121):
    category = random.choice(categories)
    line = random.choice(names[category])
    output, loss = train(torch.tensor([categories.index(category)], dtype=torch.long), line_to_tensor(line))
    current_loss += loss
    if iter % 30 == 0:
        top_n, top_i = output.topk(1)
        guess = categories[top_i[0].item()]
        print(f"{iter} {current_loss / 30:.4f} {line} / {guess} {'✓' if guess == category else f'✗ ({category})'}")
        current_loss = 0
