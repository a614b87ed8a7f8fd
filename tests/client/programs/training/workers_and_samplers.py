import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": torch.tensor([float(i), float(i) ** 2]), "i": i, "name": f"item {i}"}


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 12, step))


if __name__ == "__main__":
    torch.manual_seed(0)
    for batch in DataLoader(Squares(10), batch_size=4, shuffle=True):
        print(batch["i"].tolist(), batch["x"].sum().item(), batch["name"][0])
    for batch in DataLoader(Squares(8), batch_size=4, num_workers=2):
        print(batch["x"].shape, batch["i"])
    print(sorted(torch.cat(list(DataLoader(Stream(), batch_size=3, num_workers=2))).tolist()))
    sampler = WeightedRandomSampler([1.0] * 5 + [10.0] * 5, 12, replacement=True)
    print([int(i) for batch in DataLoader(Squares(10), batch_size=6, sampler=sampler) for i in batch["i"]])
    both = ConcatDataset([Squares(3), Subset(Squares(10), [7, 9])])
    print(len(both), [both[i]["i"] for i in range(len(both))])
    print(next(iter(DataLoader(both, batch_size=None)))["name"])
