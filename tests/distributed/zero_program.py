"""What test_zero.py runs on every rank."""

import copy
from functools import partial

import numpy as np

import mytorch
import mytorch.distributed as dist
from mytorch import nn, optim
from mytorch.distributed.ddp import DistributedDataParallel
from mytorch.distributed.zero import ZeroRedundancyOptimizer
from tests.distributed.on_ranks import run_cases
from tests.distributed.training import (
    adamw,
    error_of,
    loss_of,
    mean_over_ranks,
    network,
    rank,
    train,
    weights_of,
    whole_batch,
    world,
)

OPTIMIZERS = {
    "AdamW": {"lr": 0.01}, "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True}, "Lion": {"lr": 0.003},
}
CLIPS = {"unclipped": None, "clip_grad_norm": "method", "clip_grad_norm_": "function"}


def clip(optimizer, model, how):
    if how == "method":
        optimizer.clip_grad_norm(0.1)
    elif how == "function":
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def trajectory(name, how):
    """25 steps; without a process group by the optimizer itself."""
    model, kind, options = network(), getattr(optim, name), OPTIMIZERS[name]
    if dist.is_initialized():
        model = DistributedDataParallel(model)
        optimizer = ZeroRedundancyOptimizer(model.named_parameters(), kind, **options)
    else:
        optimizer = kind(model.parameters(), **options)
    losses = []
    for step in range(25):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        clip(optimizer, model, CLIPS[how])
        optimizer.step()
        losses.append(mean_over_ranks(loss.item()))
    return {"losses": losses, **weights_of(model)}


def grouped():
    """Two groups, a schedule, clipping; and the whole state."""
    model = DistributedDataParallel(network())
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "lr": 0.02, "weight_decay": 0.0},
    ]
    optimizer = ZeroRedundancyOptimizer(groups, optim.AdamW, lr=0.01)
    schedule = optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    losses = []
    for step in range(10):
        losses += [mean_over_ranks(train_step(model, optimizer, step))]
        schedule.step()
    optimizer.consolidate_state_dict()
    state_dict = optimizer.state_dict() if rank() == 0 else {"state": {}}
    entries = {
        f"state.{i}.{k}": v.numpy() for i, entry in state_dict["state"].items() for k, v in entry.items()
    }
    return {"losses": losses, **weights_of(model), **entries}


def train_step(model, optimizer, step):
    optimizer.zero_grad()
    loss = loss_of(model, step)
    loss.backward()
    optimizer.clip_grad_norm(0.5)
    optimizer.step()
    return loss.item()


def resumed():
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


def memory(sizes):
    """Bytes of the vectors that this rank's optimizer keeps for parameters of these sizes."""
    params = [mytorch.zeros(size, requires_grad=True) for size in sizes]
    optimizer = ZeroRedundancyOptimizer(params, optim.AdamW)
    for p in params:
        p.grad = np.ones(tuple(p.shape), np.float32)
    optimizer.step()
    buffers = optimizer.optim.flat_buffers()
    return {
        "bytes": sum(vector.nbytes for buffer in buffers for vector in buffer.moments.values()),
        "updated": [float(p.detach().numpy().max()) for p in params],
    }


def hooks_of_the_state():
    model = network()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.SGD, lr=0.1, momentum=0.9)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda o, state: seen.append("after saving"))
    optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append("before loading"))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("after loading"))
    for to in range(world()):
        optimizer.consolidate_state_dict(to)
    optimizer.load_state_dict(optimizer.state_dict())
    return {"seen": seen}


def made():
    return ZeroRedundancyOptimizer(network().parameters(), optim.SGD, lr=0.1)


def after_a_step():
    """The state that was brought together isn't the state any more."""
    optimizer = made()
    for to in range(world()):
        optimizer.consolidate_state_dict(to)
    optimizer.state_dict()
    optimizer.step()
    return optimizer.state_dict


REFUSED = {
    "overlap": lambda: partial(ZeroRedundancyOptimizer, [], optim.SGD, overlap_with_ddp=True),
    "no such rank": lambda: partial(made().consolidate_state_dict, world()),
    "not consolidated": lambda: made().state_dict, "after a step": after_a_step,
    "copy": lambda: partial(copy.deepcopy, made()),
    "other groups": lambda: partial(
        made().load_state_dict, {"state": {}, "param_groups": [{"params": [0]}]}
    ),
}

EQUAL, UNEQUAL, FEW = [(30, 40)] * 12, [(64, 33), 17, (5, 5), 2048, 1, 100, (90, 7)], [48]
CASES = {
    **{f"{name}, {how}": partial(trajectory, name, how) for name in OPTIMIZERS for how in CLIPS},
    "grouped": grouped, "resumed": resumed, "hooks": hooks_of_the_state,
    **{f"memory of {len(sizes)}": partial(memory, sizes) for sizes in (EQUAL, UNEQUAL, FEW)},
    **{name: lambda make=make: error_of(make()) for name, make in REFUSED.items()},
}

if __name__ == "__main__":
    mytorch.use_fused(False)  # parity_program.py runs kernels, whose loading takes longer than all this
    dist.init_process_group()
    run_cases(CASES, rank())
