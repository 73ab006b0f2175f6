"""What test_ddp.py runs on every rank."""

from functools import partial

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.accelerate import MixedPrecisionOptimizer, half_parameters
from mytorch.amp import GradScaler
from mytorch.distributed.comm_hooks import allreduce_hook, fp16_compress_hook
from mytorch.distributed.ddp import DistributedDataParallel
from tests.distributed.ddp_refused import REFUSED
from tests.distributed.on_ranks import run_cases
from tests.distributed.training import (
    adamw,
    error_of,
    grads_of,
    loss_of,
    network,
    rank,
    share,
    train,
    weights_of,
    world,
)


def gradients(**options):
    model = DistributedDataParallel(network(), **options)
    loss_of(model, 0).backward()
    return grads_of(model)


def gradients_in_the_optimizers_vector():
    model = DistributedDataParallel(network())
    optimizer = adamw(model.parameters())
    loss_of(model, 0).backward()
    first = grads_of(model)
    optimizer.add_param_group({"params": [mytorch.ones(1, requires_grad=True)]})
    optimizer.param_groups[0]["params"].reverse()  # the vector is laid out anew, in another order
    optimizer.zero_grad()
    optimizer.flat_buffers()
    loss_of(model, 0).backward()
    in_place = all(p.grad_slot.holds(p.grad) for p in model.parameters())
    return {
        **grads_of(model),
        "same": all((first[k] == v).all() for k, v in grads_of(model).items()),
        "in_place": in_place,
    }


def gradients_assigned_before():
    """Gradients that were assigned before, in memory of their own: r everywhere on rank r."""
    model = DistributedDataParallel(network())
    loss = loss_of(model, 0)
    for p in model.parameters():
        p.grad = np.full(tuple(p.shape), rank(), np.float32)
    loss.backward()
    return {name: grad - (world() - 1) / 2 for name, grad in grads_of(model).items()}


def training():
    model = DistributedDataParallel(network())
    optimizer = adamw(model.parameters())
    return {"losses": train(model, optimizer), **weights_of(model)}


def compiled():
    """The model in DDP runs as programs; without a warning, which would say that it doesn't."""
    model = DistributedDataParallel(mytorch.compile(network(), fullgraph=True))
    optimizer = adamw(model.parameters())
    return {"losses": train(model, optimizer), **weights_of(model.module._orig_mod)}


def no_sync():
    model = DistributedDataParallel(network())
    with model.no_sync():
        loss_of(model, 0).backward()
        alone = grads_of(model)
        loss_of(model, 1).backward()
    loss_of(model, 2).backward()
    return {**grads_of(model), "alone": alone["0.bias"]}


class Branches(nn.Module):
    """Goes one way or the other; one layer is never used."""

    def __init__(self):
        super().__init__()
        mytorch.manual_seed(1)
        self.left, self.right, self.never = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x, left):
        return self.left(x) if left else self.right(x)


def unused(everywhere=False):
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    out = {}
    for step in range(2):  # the second round must not see the first one's
        model.zero_grad()
        x, y = share(step)
        ((model(x, everywhere or rank() % 2 == 0) - y) ** 2).mean().backward()
        out = grads_of(model)
    return out


def unfinished():
    model = DistributedDataParallel(Branches())
    x, _ = share(0)
    model(x, True).sum().backward()
    return error_of(lambda: model(x, True))


def twice():
    model = DistributedDataParallel(Branches())
    x, _ = share(0)
    model(x, True).sum().backward()
    return error_of(model.module.left(x).sum().backward)


def different_models():
    return error_of(lambda: DistributedDataParallel(network(width=19 + (rank() == 1))))


def different_values():
    return weights_of(DistributedDataParallel(network(seed=rank())))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        mytorch.manual_seed(2)
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.first(x)))


def tied():
    model = DistributedDataParallel(Tied())
    optimizer = adamw(model.parameters())
    return {"losses": train(model, optimizer, 5), **weights_of(model)}


def buffers():
    mytorch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))
    x, _ = share(0)
    model(x)
    mine = model.module[1].running_mean.numpy().copy()
    model(x)  # begins with those of rank 0
    return {"mine": mine, "next": model.module[1].running_mean.numpy().copy()}


class LastUnused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.last = network(), nn.Linear(19, 19)

    def forward(self, x):
        return self.used(x)


def small_buckets(model, **options):
    """The order of the buckets, and how many gradients were there when each began."""
    model = DistributedDataParallel(model, bucket_cap_mb=1e-4, **options)
    seen = []

    def hook(state, bucket):
        there = sum(p.grad is not None for p in model.parameters())
        seen.append((bucket.index(), bucket.is_last(), bucket.buffer().numel() * 4, there))
        return allreduce_hook(state, bucket)

    model.register_comm_hook(None, hook)
    loss_of(model, 0).backward()
    return {**grads_of(model), "seen": seen}


def compressed():
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, fp16_compress_hook)
    loss_of(model, 0).backward()
    return grads_of(model)


def mixed_precision():
    """Rank 1 meets an inf in the third step: all ranks leave it out."""
    model = network()
    inner = adamw(model.parameters())
    optimizer = MixedPrecisionOptimizer(inner, half_parameters(model))
    model = DistributedDataParallel(model)
    scaler, scales = GradScaler(init_scale=2.0**8, growth_interval=4), []
    for step in range(8):
        optimizer.zero_grad()
        x, y = share(step)
        loss = ((model(x.half()).float() - y) ** 2).mean()
        scaler.scale(loss * (float("inf") if step == 2 and rank() == world() - 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"scales": scales, **weights_of(model)}


def scaler_alone():
    """Gradients that were not averaged: one rank has an inf."""
    p = mytorch.tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([p], lr=1.0), GradScaler(init_scale=4.0)
    scaler.scale(p * (float("inf") if rank() == world() - 1 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    return {"value": p.item(), "scale": scaler.get_scale()}


def many_backwards(finds_unused=False):
    """Two forward passes, a backward pass for each, and the first graph once more."""
    model = DistributedDataParallel(network(), find_unused_parameters=finds_unused)
    first, second = loss_of(model, 0), loss_of(model, 1)
    first.backward(retain_graph=True)
    second.backward()
    first.backward()
    return grads_of(model)


def evaluated_alone():
    """Rank 0 runs the model itself, while the others wait for its next forward pass."""
    mytorch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))
    with model.join():
        pass  # afterwards a forward pass is what it was: nothing that the others must know of
    if rank() == 0:
        model.eval()
        with mytorch.no_grad():
            model(share(0)[0])
        loss_of(model, 1)  # also when it is recorded
        model.train()
    loss_of(model, 0).backward()
    return grads_of(model)


def own_buffers():
    """Of other shapes on other ranks."""
    model = network()
    model.register_buffer("mine", mytorch.full((rank() + 1,), float(rank())))
    DistributedDataParallel(model, broadcast_buffers=False)
    return {"mine": model.mine.numpy()}


def own_hook():
    """A hook with state of its own, which sends the sum, and sees the optimizer's memory."""
    model, seen = DistributedDataParallel(network()), []
    optimizer = adamw(model.parameters())

    def hook(state, bucket):
        state.append(
            all(np.shares_memory(p.grad.numpy(), bucket.buffer().numpy()) for p in bucket.parameters())
        )
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return dist.Future(work, bucket.buffer)

    model.register_comm_hook(seen, hook)
    loss_of(model, 0).backward()
    optimizer.step()
    return {name: grad / world() for name, grad in grads_of(model).items()} | {"seen": seen}


def images(step=0):
    x = np.random.default_rng(step).standard_normal((world() * 2 + 1, 3, 4, 2)).astype(np.float32) + 1
    return mytorch.tensor(x[rank() :: world()].copy(), requires_grad=True)


def norm():
    mytorch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(3, momentum=None), nn.Sequential(nn.Tanh(), nn.BatchNorm2d(3)))
    with mytorch.no_grad():
        for p in model.parameters():
            p.normal_()
    return model


def sync_batch_norm():
    """The sum of all samples' losses on one process: PyTorch's, too, leaves averaging to DDP."""
    model = nn.SyncBatchNorm.convert_sync_batchnorm(norm())
    for step in range(2):
        model.zero_grad()
        x = images(step)
        (model(x) ** 3).sum().backward()
    grads = {f"{name}.grad": p.grad for name, p in model.named_parameters()}
    for grad in grads.values():
        dist.all_reduce(grad)
    with mytorch.no_grad():
        evaluated = model.eval()(images())
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    here = {"x.grad": x.grad.numpy(), "evaluated": evaluated.numpy()}
    return {**here, **state, **{name: grad.numpy() for name, grad in grads.items()}}


def refused(name):
    return error_of(REFUSED[name]())


CASES = {
    "gradients": gradients, "gradients_in_the_optimizers_vector": gradients_in_the_optimizers_vector,
    "gradients_assigned_before": gradients_assigned_before, "training": training,
    "compiled": compiled, "scaler_alone": scaler_alone, "sync_batch_norm": sync_batch_norm,
    "no_sync": no_sync, "unused": unused, "unused_everywhere": lambda: unused(True),
    "unfinished": unfinished, "twice": twice, "different_models": different_models,
    "different_values": different_values, "tied": tied, "buffers": buffers,
    "small_buckets": lambda: small_buckets(network()),
    "small_buckets_unused": lambda: small_buckets(LastUnused(), find_unused_parameters=True),
    "compressed": compressed, "mixed_precision": mixed_precision, "evaluated_alone": evaluated_alone,
    "many_backwards": many_backwards, "many_backwards_unused": lambda: many_backwards(True),
    "own_buffers": own_buffers, "own_hook": own_hook, **{name: partial(refused, name) for name in REFUSED},
}

if __name__ == "__main__":
    mytorch.use_fused(False)  # parity_program.py runs kernels, whose loading takes longer than all this
    dist.init_process_group()
    run_cases(CASES, rank())
