"""What test_futures.py runs on every rank."""

import mytorch
import mytorch.distributed as dist
from mytorch import nn
from mytorch.distributed import DistributedDataParallel, comm_hooks
from tests.distributed.on_ranks import run_cases


def ones(size=2):
    return mytorch.ones(size) * (dist.get_rank() + 1)


def results():
    """What each operation has written, as returned by its Work, its Future and the callback."""
    world, rank = dist.get_world_size(), dist.get_rank()
    parts, wide, own = [mytorch.zeros(2) for _ in range(world)], mytorch.zeros(2 * world), mytorch.zeros(2)
    started = {
        "all_reduce": dist.all_reduce(ones(), async_op=True),
        "broadcast": dist.broadcast(ones(), 1, async_op=True),
        "reduce": dist.reduce(ones(), 0, async_op=True),
        "all_gather": dist.all_gather(parts, ones(), async_op=True),
        "all_gather_into_tensor": dist.all_gather_into_tensor(wide, ones(), async_op=True),
        "gather": dist.gather(ones(), [own, own + 0] if rank == 0 else None, 0, async_op=True),
        "scatter": dist.scatter(own + 0, [ones(), ones() * 5] if rank == 0 else None, 0, async_op=True),
        "reduce_scatter": dist.reduce_scatter(own + 0, [ones(), ones() * 5], async_op=True),
        "reduce_scatter_tensor": dist.reduce_scatter_tensor(own + 0, ones(4), async_op=True),
        "all_to_all": dist.all_to_all([own + 0, own + 0], [ones(), ones() * 5], async_op=True),
        "all_to_all_single": dist.all_to_all_single(own + 0, ones(), async_op=True),
        "barrier": dist.barrier(async_op=True),
    }
    if rank == 0:
        dist.send(ones(), 1)
    else:
        started["irecv"] = dist.irecv(own + 0, 0)
    out = {}
    for name, work in started.items():
        calls = []
        chained = work.get_future().then(lambda future, seen=calls: seen.append(1) or len(future.value()))
        lengths = [chained.wait(), chained.value(), len(calls), chained.done()]
        assert list(map(id, work.result())) == list(map(id, work.get_future().wait()))
        out[name] = [*lengths, *[value for tensor in work.result() for value in tensor.tolist()]]
    return out


def grads(hook):
    mytorch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    if hook is not None:
        model.register_comm_hook(None, hook)
    model(mytorch.randn(5, 3) * (dist.get_rank() + 1)).sum().backward()
    return {name.removeprefix("module."): p.grad.numpy() for name, p in model.named_parameters()}


def as_pytorchs_documentation(state, bucket):
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def chained(state, bucket):
    """The sum is divided by the function that comes after it."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda future: future.value()[0] / dist.get_world_size()).then(lambda f: f.value() * 1)


def failing(state, bucket):
    def fail(future):
        raise ZeroDivisionError("in the function")

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(fail)


def error():
    try:
        grads(failing)
    except ZeroDivisionError as found:
        return {"error": str(found)}
    return {"error": ""}


HOOKS = {"none": None, "documented": as_pytorchs_documentation, "chained": chained}
HOOKS["bfloat16"] = comm_hooks.bf16_compress_hook
CASES = {"results": results, "error": error}
CASES |= {name: (lambda hook=hook: grads(hook)) for name, hook in HOOKS.items()}

if __name__ == "__main__":
    dist.init_process_group()
    run_cases(CASES, dist.get_rank())
