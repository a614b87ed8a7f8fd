"""Data sets, samplers and the loader that makes batches (torch.utils.data).

Samples are drawn in the calling thread: a batch of a `TensorDataset` is one command per tensor. Other data sets upload
their values.
"""

from gradwire._base.wiring import names_of_paths
from gradwire.utils.data import dataloader, dataset, sampler
from gradwire.utils.data._collate import default_collate, default_convert
from gradwire.utils.data._distributed import DistributedSampler
from gradwire.utils.data.dataloader import DataLoader
from gradwire.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from gradwire.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "dataloader",
    "dataset",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
    "sampler",
]


def get_worker_info() -> None:
    """None: samples are drawn in the calling process."""
    return


__getattr__ = names_of_paths(__name__)
