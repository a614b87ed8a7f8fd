import torch
import numpy as np
from _kit import *

data = [[1, 2], [3, 4]]
x_data = torch.tensor(data)
np_array = np.array(data)
x_np = torch.from_numpy(np_array)
x_ones = torch.ones_like(x_data)
x_rand = torch.rand_like(x_data, dtype=torch.float)
print(f"Ones Tensor: \n {x_ones} \n", x_rand.shape)
shape = (
    2,
    3,
)
print(torch.ones(shape), torch.zeros(shape), torch.rand(shape).shape)
tensor = torch.rand(3, 4)
print(f"Shape of tensor: {tensor.shape}")
print(f"Datatype of tensor: {tensor.dtype}")
print(f"Device tensor is stored on: {tensor.device}")
if torch.accelerator.is_available() if hasattr(torch, "accelerator") else torch.cuda.is_available():
    tensor = tensor.to("cpu")
tensor = torch.ones(4, 4)
print(f"First row: {tensor[0]}")
print(f"First column: {tensor[:, 0]}")
print(f"Last column: {tensor[..., -1]}")
tensor[:, 1] = 0
print(tensor)
t1 = torch.cat([tensor, tensor, tensor], dim=1)
print(t1)
y1 = tensor @ tensor.T
y2 = tensor.matmul(tensor.T)
y3 = torch.rand_like(y1)
torch.matmul(tensor, tensor.T, out=y3)
z1 = tensor * tensor
z2 = tensor.mul(tensor)
z3 = torch.rand_like(tensor)
torch.mul(tensor, tensor, out=z3)
print(y1, y2, y3, z1, z2, z3)
agg = tensor.sum()
agg_item = agg.item()
print(agg_item, type(agg_item))
print(tensor, "\n")
tensor.add_(5)
print(tensor)
t = torch.ones(5)
n = t.numpy()
print(n)
print(
    torch.is_tensor(t), torch.numel(t), t.element_size(), t.nelement(), t.dim(), t.ndim, t.size(), t.size(0), t.type()
)
print(torch.arange(0, 10, 2), torch.linspace(0, 1, 5), torch.eye(3), torch.full((2, 2), 3.14), torch.empty(2, 0))
print(t.unsqueeze(0).shape, t.view(-1, 1).shape, t[None].squeeze().shape, t.reshape(5, 1).expand(5, 3).shape)
print(torch.stack([t, t]).permute(1, 0).contiguous().is_contiguous())
a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
print(
    a.max(dim=1),
    a.argmax(),
    torch.topk(a, 1),
    a.sort(descending=True),
    torch.where(a > 2, a, 0.0),
    a.masked_fill(a > 2, -1),
    torch.nonzero(a > 2),
    torch.unique(torch.tensor([1, 1, 2])),
)
print(
    torch.einsum("ij,jk->ik", a, a),
    torch.bmm(a[None], a[None]),
    torch.outer(a[0], a[1]),
    torch.dot(a[0], a[1]),
    torch.norm(a),
    a.norm(p=1),
    a.std(),
    a.var(dim=0),
    torch.allclose(a, a),
    torch.equal(a, a),
    (a == a).all(),
)
print(
    a.bool(),
    a.int(),
    a.long(),
    a.half(),
    a.tolist(),
    a.dtype.is_floating_point,
    torch.finfo(torch.float32).eps,
    torch.iinfo(torch.int64).max,
)
b = a.clone()
b[b > 2] = 0
print(b, a.new_zeros(2), a.new_tensor([1.0]), a.new_full((2,), 7))
print(
    torch.split(torch.arange(6), 2),
    torch.chunk(torch.arange(6), 3),
    torch.tril(a),
    torch.triu(a),
    torch.diag(a),
    torch.cumsum(a, 0),
    torch.flip(a, [0]),
    torch.roll(a, 1),
    torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij"),
)
print(
    torch.gather(a, 1, torch.tensor([[0], [1]])),
    torch.zeros(2, 3).scatter_(1, torch.tensor([[0], [2]]), 1.0),
    torch.nn.functional.one_hot(torch.tensor([0, 2]), 3),
    torch.bincount(torch.tensor([0, 1, 1])),
    torch.clamp(a, 2, 3),
    a.pow(2),
    a**2,
    2**a,
    -a,
    a // 2,
    a % 2,
    1 / a,
)
print(torch.get_default_dtype(), torch.__version__ is not None, torch.get_num_threads() > 0)
