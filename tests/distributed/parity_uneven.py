"""What test_parity.py runs of join() and of ZeroRedundancyOptimizer's groups; see parity_program.py."""

import contextlib
from functools import partial

import numpy as np

from tests.distributed.libraries import error_of, grads, make_optimizer, named, values

UNEVEN = [3, 1, 4]  # batches for each rank


def join(lib, counts, zero=False, which="bc", accumulate=False, adam=False, options=None, **kwargs):
    """counts[rank] batches for each rank.

    PyTorch's ZeroRedundancyOptimizer steps with the joined rank's last gradients, not with those of the
    others, and so differs from AdamW itself: that is the oracle here.
    """
    zero = zero and not lib.is_torch
    model = lib.model(gradient_as_bucket_view=True, **(options or {}))
    settings = {} if adam else {"momentum": 0.9}
    optimizer = make_optimizer(lib, model, "AdamW" if adam else "SGD", zero, **settings)
    count = counts[lib.rank]
    joinables = [model, optimizer] if zero else [model]
    losses = []
    with lib.Join(joinables, **kwargs) if zero else model.join(**kwargs):
        for step in range(count):
            waits = accumulate and step % 2 == 0
            with model.no_sync() if waits else contextlib.nullcontext():
                if not (accumulate and step % 2):
                    optimizer.zero_grad()
                loss = lib.loss(model, step, which)
                loss.backward()
            losses.append(loss.item())
            if not waits:
                optimizer.step()
    return {**values(model), "losses": losses}


def join_throws(lib, counts):
    seen = []

    def run():
        model = lib.model()
        with model.join(throw_on_early_termination=True):
            for step in range(counts[lib.rank]):
                lib.loss(model, step).backward()
                seen.append(step)

    return {**error_of(run), "seen": seen}


def after_join(lib, counts):
    """Training continues."""
    model = lib.model()
    with model.join():
        for step in range(counts[lib.rank]):
            lib.loss(model, step).backward()
    model.zero_grad()
    lib.loss(model, 9).backward()
    return grads(model)


def zero_with_a_later_group(lib):
    model = lib.model()
    params = named(model)
    late = [params.pop(name) for name in ("b.weight", "scale")]
    optimizer = lib.Zero(list(params.values()), lib.torch.optim.AdamW, lr=0.01)
    for step in range(6):
        if step == 3:
            optimizer.add_param_group({"params": late, "lr": 0.1, "weight_decay": 0.0})
        optimizer.zero_grad()
        model.zero_grad()
        lib.loss(model, step).backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=lib.world - 1)
    out = values(model)
    if lib.rank == lib.world - 1:
        for _ in range(2):  # it can be had more than once
            state = optimizer.state_dict()
        out["lrs"] = [group["lr"] for group in state["param_groups"]]
        out["params"] = np.concatenate([group["params"] for group in state["param_groups"]])
        for i, entry in state["state"].items():
            out.update({f"state.{i}.{name}": np.asarray(value.numpy()) for name, value in entry.items()})
    return out


def zero_owners(lib):
    """How many elements of the state each rank has."""
    model = lib.model()
    optimizer = make_optimizer(lib, model, "AdamW", zero=True)
    lib.loss(model, 0).backward()
    optimizer.step()
    entries = optimizer.optim.state.values()
    return {"elements": sum(value.numel() for entry in entries for value in entry.values() if value.ndim)}


UNEVEN_CASES = {
    "join": partial(join, counts=UNEVEN), "join, even": partial(join, counts=[2, 2, 2]),
    "join, one has nothing": partial(join, counts=[0, 3, 2]),
    "join, divided by those who train": partial(join, counts=UNEVEN, divide_by_initial_world_size=False),
    "join, unused": partial(join, counts=UNEVEN, which="b", options={"find_unused_parameters": True}),
    "join, no_sync": partial(
        join, counts=[4, 2, 4], accumulate=True, options={"broadcast_buffers": False}
    ),
    "join, without buffers": partial(join, counts=UNEVEN, options={"broadcast_buffers": False}),
    "join, throws": partial(join_throws, counts=UNEVEN), "after join": partial(after_join, counts=UNEVEN),
    "join, AdamW": partial(join, counts=UNEVEN, adam=True),
    "join with zero": partial(join, counts=UNEVEN, adam=True, zero=True),
    "zero, a later group": zero_with_a_later_group, "zero, owners": zero_owners,
}
