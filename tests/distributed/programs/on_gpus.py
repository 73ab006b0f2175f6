"""Collectives of arrays on GPUs, one a rank, against NumPy; `standin` runs it without any GPU, over MPI."""

import os
import sys

import numpy as np

STANDIN = "standin" in sys.argv
if STANDIN:
    from tests import strict_cupy

    strict_cupy.install(device_count=8)

import mytorch  # noqa: E402
import mytorch.distributed as dist  # noqa: E402
from mytorch.distributed import ReduceOp  # noqa: E402

local = int(os.environ["LOCAL_RANK"])
mytorch.cuda.set_device(local)
dist.init_process_group("mpi" if STANDIN else "nccl")
rank, size = dist.get_rank(), dist.get_world_size()
cuda = f"cuda:{local}"


def numbers(of, dtype="float32"):
    return np.random.default_rng(of).integers(1, 5, (3, 4)).astype(dtype)


def here(of, dtype="float32"):
    return mytorch.tensor(numbers(of, dtype), device=cuda)


def same(found, expected):
    np.testing.assert_array_equal(found.cpu().numpy(), expected)
    assert found.device == cuda and found.dtype == expected.dtype


def total(dtype="float32"):
    return np.stack([numbers(of, dtype) for of in range(size)]).sum(0).astype(dtype)


for dtype in ("float16", "float32", "float64", "int8", "int32", "int64"):
    x = here(rank, dtype)
    dist.all_reduce(x)
    same(x, total(dtype))
x = here(rank)
dist.all_reduce(x, ReduceOp.AVG)
np.testing.assert_allclose(x.cpu().numpy(), total() / size, rtol=1e-6)
x = here(rank)
dist.broadcast(x, size - 1)
same(x, numbers(size - 1))
out = mytorch.zeros(3 * size, 4, device=cuda)
dist.all_gather_into_tensor(out, here(rank))
same(out, np.concatenate([numbers(of) for of in range(size)]))
mine = mytorch.zeros(3, 4, device=cuda)
dist.reduce_scatter_tensor(mine, out * (rank + 1))
same(mine, numbers(rank) * np.float32(size * (size + 1) / 2))
outs = [mytorch.zeros(3, 4, device=cuda) for _ in range(size)]
dist.all_to_all(outs, [here(rank * size + to) for to in range(size)])
for of in range(size):
    same(outs[of], numbers(of * size + rank))
ops = [
    dist.P2POp(dist.isend, here(rank), (rank + 1) % size),
    dist.P2POp(dist.irecv, x, (rank - 1) % size),
]
for work in dist.batch_isend_irecv(ops):
    work.wait()
same(x, numbers((rank - 1) % size))
works = [(y := here(rank) * i, dist.all_reduce(y, async_op=True)) for i in range(10)]
for i, (y, work) in enumerate(works):
    work.wait()
    same(y * 2, total() * i * 2)  # work that follows in the current stream
if STANDIN:
    from tests.distributed.programs import staged  # noqa: F401 - its assertions
dist.barrier()
print("well")
