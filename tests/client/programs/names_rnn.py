import torch, string
import torch.nn as nn
import torch.nn.functional as F
from _kit import *

torch.set_default_dtype(torch.float64)
all_letters = string.ascii_letters + " .,;'"
n_letters = len(all_letters)
n_hidden = 12


def letterToIndex(letter):
    return all_letters.find(letter)


def lineToTensor(line):
    tensor = torch.zeros(len(line), 1, n_letters)
    for li, letter in enumerate(line):
        tensor[li][0][letterToIndex(letter)] = 1
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
        hidden = F.tanh(self.i2h(input) + self.h2h(hidden))
        output = self.softmax(self.h2o(hidden))
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


cats = ["Czech", "German", "Arabic"]
rnn = det(RNN(n_letters, n_hidden, 3))
criterion = nn.NLLLoss()
learning_rate = 0.005


def categoryFromOutput(output):
    top_n, top_i = output.topk(1)
    category_i = top_i[0].item()
    return cats[category_i], category_i


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


for k, name in enumerate(["Novak", "Schmidt", "Nassar", "Dvorak"]):
    output, loss = train(torch.tensor([k % 3], dtype=torch.long), lineToTensor(name))
    say(output, loss)
    print(categoryFromOutput(output))


class CharRNN(nn.Module):
    def __init__(self, i, h, o):
        super(CharRNN, self).__init__()
        self.rnn = nn.RNN(i, h)
        self.h2o = nn.Linear(h, o)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, line_tensor):
        rnn_out, hidden = self.rnn(line_tensor)
        return self.softmax(self.h2o(hidden[0]))


m = det(CharRNN(n_letters, 8, 3))
print(m)
opt = torch.optim.SGD(m.parameters(), lr=0.15)
for i in range(3):
    m.zero_grad()
    batch_loss = 0
    for name in ["abc", "Defg"]:
        batch_loss += criterion(m(lineToTensor(name)), torch.tensor([1]))
    batch_loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 3)
    opt.step()
    opt.zero_grad()
    say(batch_loss.item() / 2)
confusion = torch.zeros(3, 3)
confusion[0][1] += 1
confusion[1, 1] += 2
for i in range(3):
    denom = confusion[i].sum()
    if denom > 0:
        confusion[i] = confusion[i] / denom
print(confusion)
