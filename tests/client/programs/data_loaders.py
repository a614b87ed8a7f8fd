import torch
from torch.utils.data import *
from torch.utils.data import (
    DataLoader,
    Dataset,
    TensorDataset,
    Subset,
    ConcatDataset,
    random_split,
    IterableDataset,
    WeightedRandomSampler,
    BatchSampler,
    SubsetRandomSampler,
    default_collate,
)
from torch.utils import data
from _kit import *


class FaceLandmarks(Dataset):
    def __init__(self, n, transform=None):
        self.n = n
        self.transform = transform

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        if torch.is_tensor(idx):
            idx = idx.tolist()
        sample = {
            "image": np.full((2, 2), idx, dtype=np.float64),
            "landmarks": torch.tensor([idx, idx + 1]),
            "id": idx,
            "name": f"n{idx}",
            "score": idx / 2,
        }
        return self.transform(sample) if self.transform else sample


ds = FaceLandmarks(7)
dl = DataLoader(ds, batch_size=3, shuffle=False, num_workers=0, drop_last=False, pin_memory=False)
for i, b in enumerate(dl):
    print(i, b["image"].size(), b["image"].dtype, b["landmarks"].tolist(), b["id"], b["name"], b["score"])
print(
    len(dl),
    len(DataLoader(ds, 3, drop_last=True)),
    sorted(x for b in DataLoader(ds, 2, shuffle=True) for x in b["id"].tolist()),
)
td = TensorDataset(torch.arange(6.0).reshape(6, 1), torch.arange(6))
tr, te = random_split(td, [4, 2])
print(len(tr), len(te), isinstance(tr, Subset), td[1])
f = random_split(td, [0.5, 0.5], generator=torch.Generator().manual_seed(0))
print([len(x) for x in f])
print(
    [y.tolist() for x, y in DataLoader(ConcatDataset([td, td]), batch_size=5)],
    [y.tolist() for x, y in DataLoader(Subset(td, [0, 5]), batch_size=1)],
)
ws = WeightedRandomSampler([0.1, 0.9, 0.0], 10, replacement=True)
print(len(list(ws)), 2 not in list(ws))
print(list(BatchSampler(SequentialSampler(range(7)), 3, True)), sorted(SubsetRandomSampler([1, 4])))


class It(IterableDataset):
    def __iter__(self):
        return iter(range(5))


print([b.tolist() for b in DataLoader(It(), batch_size=2)])


def collate(batch):
    return torch.stack([x for x, _ in batch]), torch.LongTensor([int(y) for _, y in batch])


print([y for x, y in DataLoader(td, batch_size=4, collate_fn=collate)])
it = iter(DataLoader(td, batch_size=4))
print(next(it)[1], next(it)[1])
print(next(iter(DataLoader(td, batch_size=None)))[1])
print(
    default_collate([(1, 2.0, "a"), (3, 4.0, "b")]),
    default_collate([torch.ones(2), torch.zeros(2)]),
    [x.tolist() for x in DataLoader(torch.arange(5), batch_size=2)],
    [x.tolist() for x in DataLoader([1, 2, 3], batch_size=2)],
)
train = DataLoader(dataset=td, batch_sampler=BatchSampler(RandomSampler(td), 2, False))
print(len(train))
print(train.batch_size, train.dataset is td, DataLoader(td, 2).batch_size)
from torch.utils.data.dataloader import default_collate as dc
from torch.utils.data.sampler import SubsetRandomSampler as S2

x, y = next(iter(DataLoader(td, 6)))
print(x.dtype, y.dtype)


def data_iter(bs, X, y):
    idx = list(range(len(X)))
    for i in range(0, len(X), bs):
        j = torch.tensor(idx[i : min(i + bs, len(X))])
        yield X[j], y[j]


print([b for _, b in data_iter(4, x, y)])
perm = torch.randperm(6)
print(x[perm].shape)
print(
    torch.FloatTensor([1, 2]),
    torch.LongTensor([1]),
    torch.Tensor([1.5]),
    torch.Tensor(2, 3).shape,
    torch.BoolTensor([True]),
    torch.IntTensor([3]),
    torch.DoubleTensor([1.0]),
    isinstance(x, torch.FloatTensor),
)
