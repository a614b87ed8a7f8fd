"""Graph convolutions and attention, over edges and over a sparse matrix."""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
data = Data(x=torch.randn(4, 5), edge_index=edges, y=torch.tensor([0, 1, 0, 1]))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = GCNConv(5, 8), GATConv(8, 4, heads=2), SAGEConv(8, 2)

    def forward(self, data):
        x = self.first(data.x, data.edge_index).relu()
        x = self.second(x, data.edge_index).relu()
        return self.third(x, data.edge_index)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
losses = []
for _ in range(8):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(data), data.y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
