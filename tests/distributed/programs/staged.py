"""Backend mpi with arrays on GPUs (strict stand-ins), which are copied to the CPU; on_gpus.py imports it."""

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch.distributed import mpi_context

rank, size = dist.get_rank(), dist.get_world_size()


def host(x):
    return x.cpu().numpy()


for dtype in ("float16", "float32", "int64", "bool"):
    x = mytorch.tensor(np.array([rank, 1, 0]).astype(dtype), device="cuda")
    dist.all_reduce(x)
    total = np.array([sum(range(size)), size, 0])
    np.testing.assert_array_equal(host(x), total.astype(dtype))
    assert x.device == f"cuda:{rank}" and x.dtype == dtype
x = mytorch.zeros(2, 3, device="cuda")
x[:, ::2] = rank + 1.0
dist.all_reduce(x[:, ::2], dist.ReduceOp.AVG)
np.testing.assert_array_equal(host(x), np.float32([[(size + 1) / 2, 0, (size + 1) / 2]] * 2))
y = mytorch.full((2,), float(rank), device="cuda")
dist.broadcast(y, 1)
np.testing.assert_array_equal(host(y), np.float32([1, 1]))
parts = [mytorch.zeros(2, device="cuda") for _ in range(size)]
dist.all_gather(parts, mytorch.full((2,), float(rank), device="cuda"))
np.testing.assert_array_equal(np.stack([host(p) for p in parts]), np.float32([[r, r] for r in range(size)]))
if rank == 0:
    dist.send(mytorch.ones(4, device="cuda"), 1)
elif rank == 1:
    z = mytorch.zeros(4, device="cuda")
    assert dist.recv(z) == 0
    np.testing.assert_array_equal(host(z), np.ones(4, np.float32))
unique_id = bytes(range(128)) if rank == 0 else None
assert mpi_context.broadcast_bytes(mpi_context.mpi_context().comm, unique_id, 10.0) == bytes(range(128))
dist.barrier()
