"""Datasets, samplers and the DataLoader."""

from ...aliases import lazily as _lazily
from . import collate, dataset, loader, sampler
from .collate import default_collate, default_convert
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    WorkerInfo,
    get_worker_info,
    random_split,
)
from .loader import DataLoader
from .pin import DevicePrefetcher
from .sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    ShufflingSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset",
    "DevicePrefetcher", "DistributedSampler", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "ShufflingSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerInfo", "default_collate",
    "default_convert", "get_worker_info", "random_split",
]

__getattr__, __dir__ = _lazily(globals())
