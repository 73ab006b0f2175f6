"""mytorch and PyTorch under the same names, with the same model and data, on the ranks of one job."""

import importlib
import os
import sys
import warnings
from pathlib import Path

import numpy as np

SIZES = {"a": (4, 5), "b": (3, 4), "c": (3, 4)}


class Library:
    """The same names for both."""

    def __init__(self, name):
        self.torch = importlib.import_module(name)
        self.dist = importlib.import_module(f"{name}.distributed")
        self.is_torch = name == "torch"
        if self.is_torch:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
            from torch.distributed.algorithms.join import Join
            from torch.distributed.optim import ZeroRedundancyOptimizer
            from torch.nn.parallel import DistributedDataParallel
        else:
            from mytorch.distributed import DistributedDataParallel, Join, ZeroRedundancyOptimizer
            from mytorch.distributed import comm_hooks as default_hooks
        self.DDP, self.Join, self.Zero = DistributedDataParallel, Join, ZeroRedundancyOptimizer
        self.hooks = default_hooks
        self.checkpoint = importlib.import_module(f"{name}.utils.checkpoint").checkpoint

    def start(self):
        if self.is_torch:
            store = Path(sys.argv[1]) / "store"
            ranks = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
            self.dist.init_process_group("gloo", init_method=f"file://{store}", **ranks)
        else:
            self.dist.init_process_group()
        self.rank, self.world = self.dist.get_rank(), self.dist.get_world_size()

    def tensor(self, value):
        return self.torch.tensor(np.array(value, np.float32))

    def numbers(self, seed, *shape):
        return self.tensor(np.random.default_rng(seed).standard_normal(shape))

    def x(self, step, rank=None):
        """A batch of its own for each rank."""
        return self.numbers(100 * step + (self.rank if rank is None else rank), 6, 5)

    def model(self, **options):
        """Two branches behind one layer, a number that is applied to both, and a buffer that counts."""
        lib, nn = self, self.torch.nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                for i, (name, (rows, columns)) in enumerate(SIZES.items()):
                    layer = nn.Linear(columns, rows, bias=name == "c")
                    layer.weight = nn.Parameter(lib.numbers(i, rows, columns) * 0.5)
                    if layer.bias is not None:
                        layer.bias = nn.Parameter(lib.numbers(i + 10, rows))
                    setattr(self, name, layer)
                self.scale = nn.Parameter(lib.tensor(1.5))
                self.norm = nn.BatchNorm1d(4)
                self.register_buffer("factor", lib.tensor([lib.rank + 1.0]))
                self.checkpoints = False

            def inner(self, x):
                return self.norm(self.a(x)).tanh() * self.scale

            def forward(self, x, which="bc"):
                h = lib.checkpoint(self.inner, x, use_reentrant=False) if self.checkpoints else self.inner(x)
                return tuple(getattr(self, name)(h) * self.factor for name in which)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch has another name for broadcast_buffers
            return self.DDP(Model(), **options)

    def loss(self, model, step, which="bc", rank=None):
        return sum((y * y).mean() for y in model(self.x(step, rank), which))


def named(model):
    model = getattr(model, "module", model)
    return dict(model.named_parameters())


def grads(model):
    return {f"grad.{n}": p.grad.numpy().copy() for n, p in named(model).items() if p.grad is not None}


def values(model):
    model = getattr(model, "module", model)
    return {name: np.asarray(value.detach().numpy()).copy() for name, value in model.state_dict().items()}


def make_optimizer(lib, model, name, zero=False, **options):
    kind, options = getattr(lib.torch.optim, name), {"lr": 0.01, **options}
    return lib.Zero(model.parameters(), kind, **options) if zero else kind(model.parameters(), **options)


def error_of(call):
    try:
        call()
    except Exception as error:
        return {"error": type(error).__name__}
    return {"error": ""}
