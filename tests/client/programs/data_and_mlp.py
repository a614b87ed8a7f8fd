import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, Dataset, random_split
from _kit import *

torch.set_default_dtype(torch.float64)
device = "cuda" if torch.cuda.is_available() else "cpu"


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(8 * 8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10)
        )

    def forward(self, x):
        x = self.flatten(x)
        return self.linear_relu_stack(x)


model = NeuralNetwork().to(device)
print(model)
det(model)
for name, param in model.named_parameters():
    print(f"Layer: {name} | Size: {param.size()}")


class DS(Dataset):
    def __init__(self, n):
        self.x = randn(n, 1, 8, 8)
        self.y = randint(0, 10, (n,))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


train, test = DS(48), TensorDataset(randn(20, 1, 8, 8), randint(0, 10, (20,)))
train_dataloader = DataLoader(train, batch_size=16, shuffle=False)
test_dataloader = DataLoader(test, batch_size=8)
for X, y in test_dataloader:
    print(f"Shape of X [N, C, H, W]: {X.shape}")
    print(f"Shape of y: {y.shape} {y.dtype}")
    break
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)


def train_loop(dataloader, model, loss_fn, optimizer):
    size = len(dataloader.dataset)
    model.train()
    for batch, (X, y) in enumerate(dataloader):
        X, y = X.to(device), y.to(device)
        pred = model(X)
        loss = loss_fn(pred, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 1 == 0:
            loss, current = loss.item(), (batch + 1) * len(X)
            print(f"loss: {loss:>7f}  [{current:>5d}/{size:>5d}]")


def test_loop(dataloader, model, loss_fn):
    size = len(dataloader.dataset)
    num_batches = len(dataloader)
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for X, y in dataloader:
            pred = model(X.to(device))
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(torch.float).sum().item()
    test_loss /= num_batches
    correct /= size
    print(f"Test Error: \n Accuracy: {(100 * correct):>0.1f}%, Avg loss: {test_loss:>8f} \n")


for t in range(3):
    train_loop(train_dataloader, model, loss_fn, optimizer)
    test_loop(test_dataloader, model, loss_fn)
a, b = random_split(train, [40, 8], generator=torch.Generator().manual_seed(42))
print(len(a), len(b))
say(*model.parameters())
torch.save(model.state_dict(), FOLDER + "model.pth")
m2 = NeuralNetwork()
m2.load_state_dict(torch.load(FOLDER + "model.pth", weights_only=True))
m2.eval()
x, y = test[0][0], test[0][1]
with torch.no_grad():
    pred = m2(x)
    say(pred)
    print(pred[0].argmax(0).item())
pred_probab = nn.Softmax(dim=1)(pred)
say(pred_probab)
