"""What test_ddp.py runs on every rank."""

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.accelerate import GradScaler, MixedPrecisionOptimizer, half_parameters
from mytorch.distributed.comm_hooks import allreduce_hook, fp16_compress_hook
from mytorch.distributed.ddp import DistributedDataParallel
from mytorch.distributed.zero import ZeroRedundancyOptimizer
from tests.distributed.on_ranks import run_cases

BATCH, STEPS = 12, 50


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def world():
    return dist.get_world_size() if dist.is_initialized() else 1


def network(seed=0, width=19):
    mytorch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, width), nn.Tanh(), nn.Linear(width, width, bias=False), nn.GELU(), nn.Linear(width, 3)
    )


def adamw(params):
    return optim.AdamW(params, lr=0.01)


def whole_batch(step):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((BATCH, 5)).astype(np.float32)
    return x, np.stack([x[:, 0] * x[:, 1], x.sum(1), np.sin(x[:, 2])], 1)


def share(step):
    """This rank's part of a batch: all have as many samples, so the mean of means is the mean."""
    return [mytorch.tensor(part[rank() :: world()].copy()) for part in whole_batch(step)]


def loss_of(model, step):
    x, y = share(step)
    return ((model(x) - y) ** 2).mean()


def grads_of(model):
    return {
        name.removeprefix("module."): p.grad.numpy().copy()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def weights_of(model):
    return {name.removeprefix("module."): p.detach().numpy().copy() for name, p in model.named_parameters()}


def mean_over_ranks(value):
    total = np.array([value], np.float64)
    if world() > 1:
        dist.all_reduce(total)
    return total[0] / world()


def train(model, optimizer, steps=STEPS):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(mean_over_ranks(loss.item()))
    return losses


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
    optimizer._lay_out()
    loss_of(model, 0).backward()
    in_place = all(p._slot.holds(p.grad) for p in model.parameters())
    return {
        **grads_of(model),
        "same": all((first[k] == v).all() for k, v in grads_of(model).items()),
        "in_place": in_place,
    }


def gradients_of_ones_own():
    """Gradients that were there before, in memory of their own: of rank r all r."""
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


def error_of(call):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return {"error": str(error)}
    return {"error": ""}


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


def small_buckets():
    """The order of the buckets, and how many gradients were there when each began."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-4)
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


def zero():
    model = DistributedDataParallel(network())
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "lr": 0.02, "weight_decay": 0.0},
    ]
    optimizer = ZeroRedundancyOptimizer(groups, optim.AdamW, lr=0.01)
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    losses = []
    for step in range(20):
        losses += [mean_over_ranks(train_step(model, optimizer, step))]
        schedule.step()
    state = sum(
        value.nbytes
        for entry in optimizer.optim.state.values()
        for name, value in entry.items()
        if value.ndim
    )
    optimizer.consolidate_state_dict()
    state_dict = optimizer.state_dict() if rank() == 0 else None
    out = {"losses": losses, "bytes": state, **weights_of(model)}
    if rank() == 0:
        out.update(
            {
                f"state.{i}.{k}": v.numpy()
                for i, entry in state_dict["state"].items()
                for k, v in entry.items()
            }
        )
    return out


def train_step(model, optimizer, step):
    optimizer.zero_grad()
    loss = loss_of(model, step)
    loss.backward()
    optimizer.clip_grad_norm(0.5)
    optimizer.step()
    return loss.item()


def zero_resumed():
    """State of a single AdamW, loaded by every rank."""
    model = network()
    optimizer = adamw(model.parameters())
    if world() > 1:
        for step in range(5):
            optimizer.zero_grad()
            x, y = map(mytorch.tensor, whole_batch(step))
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
        state = optimizer.state_dict()
        model = DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1.0)
        optimizer.load_state_dict(state)
    else:
        train(model, optimizer, 5)
    for step in range(5, 10):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return weights_of(model)


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
    """Gradients that nobody has averaged: one rank has an inf."""
    p = mytorch.tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([p], lr=1.0), GradScaler(init_scale=4.0)
    scaler.scale(p * (float("inf") if rank() == world() - 1 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    return {"value": p.item(), "scale": scaler.get_scale()}


CASES = {
    "gradients": gradients, "gradients_in_the_optimizers_vector": gradients_in_the_optimizers_vector,
    "gradients_of_ones_own": gradients_of_ones_own, "scaler_alone": scaler_alone, "training": training,
    "no_sync": no_sync, "unused": unused, "unused_everywhere": lambda: unused(True),
    "unfinished": unfinished, "twice": twice, "different_models": different_models,
    "different_values": different_values, "tied": tied, "buffers": buffers, "small_buckets": small_buckets,
    "compressed": compressed, "zero": zero, "zero_resumed": zero_resumed, "mixed_precision": mixed_precision,
}  # fmt: skip

if __name__ == "__main__":
    dist.init_process_group()
    run_cases(CASES, rank())
