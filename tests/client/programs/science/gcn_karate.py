import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(42)
n = 60
labels = torch.arange(n) % 3
edges = [
    (i, j) for i in range(n) for j in range(i) if torch.rand(1).item() < (0.25 if labels[i] == labels[j] else 0.02)
]
index = torch.tensor(edges).t()
index = torch.cat([index, index.flip(0), torch.arange(n).repeat(2, 1)], dim=1)
degree = torch.zeros(n).scatter_add_(0, index[0], torch.ones(index.shape[1]))
values = degree[index[0]].rsqrt() * degree[index[1]].rsqrt()
adj = torch.sparse_coo_tensor(index, values, (n, n))
features = torch.randn(n, 16) + F.one_hot(labels, 16).float()


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, input, adj):
        return torch.spmm(adj, torch.mm(input, self.weight)) + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(16, 16), GraphConvolution(16, 3)

    def forward(self, x, adj):
        x = F.dropout(F.relu(self.gc1(x, adj)), 0.5, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
train, test = torch.arange(0, 20), torch.arange(20, n)
for epoch in range(30):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss = F.nll_loss(output[train], labels[train])
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        model.eval()
        preds = model(features, adj)[test].max(1)[1].type_as(labels)
        print(
            f"Epoch: {epoch + 1:04d} loss_train: {loss.item():.4f} acc_test: {preds.eq(labels[test]).double().mean():.4f}"
        )
