"""What test_parity.py runs on every rank, with mytorch and, from parity_oracle.py, with PyTorch."""

import contextlib
import copy
from functools import partial

from tests.distributed.libraries import Library, error_of, grads, make_optimizer, named, values
from tests.distributed.on_ranks import run_cases
from tests.distributed.parity_uneven import UNEVEN_CASES

# One backward pass, or a few.


def one(lib, which="bc", used="bc", **options):
    """Forward returns the outputs `which`, the loss is made of `used`."""
    model = lib.model(**options)
    for step in range(2):
        model.zero_grad()
        outputs = dict(zip(which, model(lib.x(step), which), strict=True))
        sum((outputs[name] ** 2).mean() for name in used).backward()
    return {**grads(model), **values(model)}


def differs_by_rank(lib, **options):
    """Ranks go different ways, and others in the second step."""
    model = lib.model(find_unused_parameters=True, **options)
    out = {}
    for step in range(2):
        model.zero_grad()
        lib.loss(model, step, "bc"[(lib.rank + step) % 2]).backward()
        out.update({f"{step}.{name}": value for name, value in grads(model).items()})
    return out


def no_sync(lib, forward_in, backward_in, steps=2):
    """The last pass is outside; the ones before have their forward, their backward or both inside."""
    model = lib.model()
    for step in range(steps):
        with model.no_sync() if forward_in else contextlib.nullcontext():
            loss = lib.loss(model, step)
        with model.no_sync() if backward_in else contextlib.nullcontext():
            loss.backward()
    out = grads(model)
    lib.loss(model, steps).backward()
    return {**{f"before.{name}": value for name, value in out.items()}, **grads(model)}


def nested_no_sync(lib):
    model = lib.model()
    with model.no_sync():
        with model.no_sync():
            lib.loss(model, 0).backward()
        lib.loss(model, 1).backward()
        out = grads(model)
    lib.loss(model, 2).backward()
    return {**{f"before.{name}": value for name, value in out.items()}, **grads(model)}


def used_in_no_sync_only(lib):
    model = lib.model(find_unused_parameters=True)
    with model.no_sync():
        lib.loss(model, 0, "b").backward()
    lib.loss(model, 1, "c").backward()
    return grads(model)


def several_forwards(lib):
    model = lib.model()
    (lib.loss(model, 0) + lib.loss(model, 1) * 2).backward()
    return {**grads(model), **values(model)}


def backward_in_parts(lib):
    """Each of two backward passes computes the gradients of some parameters."""
    model = lib.model()
    b, c = model(lib.x(0))
    h = c.sum()
    b.sum().backward(inputs=[named(model)["b.weight"]], retain_graph=True)
    others = [p for name, p in named(model).items() if name != "b.weight"]
    h.backward(inputs=others)
    return grads(model)


def reached_without_gradient(lib):
    """A function that has none for one of its inputs."""
    nn = lib.torch.nn

    class Half(lib.torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, lost):
            return x + lost

        @staticmethod
        def backward(ctx, g):
            return g * 0.5, None

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.lost = nn.Parameter(lib.numbers(0, 5)), nn.Parameter(lib.numbers(1, 5))

        def forward(self, x):
            return Half.apply(self.used * x, self.lost)

    model = lib.DDP(Model(), find_unused_parameters=True)
    for step in range(2):
        model.zero_grad()
        model(lib.x(step)).sum().backward()
    return grads(model)


def frozen(lib, later):
    model = lib.model(find_unused_parameters=True)
    if later:
        lib.loss(model, 0).backward()
        model.zero_grad()
    named(model)["b.weight"].requires_grad_(False)
    lib.loss(model, 1).backward()
    return grads(model)


def checkpointed(lib):
    model = lib.model()
    model.module.checkpoints = True
    lib.loss(model, 0).backward()
    return grads(model)


def with_hooks(lib):
    """Of tensors: each rank changes its own gradient, and sees the parameter's before they are averaged."""
    model, seen = lib.model(), []
    named(model)["scale"].register_hook(lambda g: g * (lib.rank + 1))
    named(model)["b.weight"].register_hook(lambda g: seen.append(g.numpy().copy()))
    lib.loss(model, 0).backward()
    return {**grads(model), "seen": seen}


def strided_gradient(lib):
    """Gradients that the user assigned, not contiguous, accumulate."""
    model = lib.model()
    p = named(model)["a.weight"]
    p.grad = lib.numbers(lib.rank, 5, 4).T
    lib.loss(model, 0).backward()
    return grads(model)


def compressed(lib):
    model = lib.model()
    model.register_comm_hook(None, lib.hooks.fp16_compress_hook)
    lib.loss(model, 0).backward()
    return grads(model)


def dtypes(lib):
    """Parameters of several dtypes, one without elements."""
    nn, torch = lib.torch.nn, lib.torch

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = {"p16": torch.float16, "p32": torch.float32, "p64": torch.float64}
            for i, (name, dtype) in enumerate(kinds.items()):
                setattr(self, name, nn.Parameter(lib.numbers(i, 3, 5).to(dtype)))
            self.empty = nn.Parameter(torch.zeros(0))

        def forward(self, x):
            parts = [(x.to(p.dtype) @ p.T).double().sum() for p in (self.p16, self.p32, self.p64)]
            return sum(parts) + self.empty.sum()

    model = lib.DDP(Mixed())
    model(lib.x(0)).backward()
    return grads(model)


def buffers_without_broadcast(lib):
    return values(lib.model(broadcast_buffers=False))


def buffers_at_the_start(lib):
    model = lib.model(forward_sync_buffers=False)
    start = values(model)
    lib.loss(model, 0)
    return {**values(model), "start": start["factor"]}


def names(lib):
    model = lib.model()
    return {"state": sorted(model.state_dict()), "parameters": [name for name, _ in model.named_parameters()]}


def clipped(lib):
    model = lib.model()
    lib.loss(model, 0).backward()
    total = lib.torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return {**grads(model), "total": total.item()}


def copied(lib):
    model = copy.deepcopy(lib.model())
    lib.loss(model, 0).backward()
    return grads(model)


def evaluated_alone(lib):
    """Rank 0 evaluates in the middle of training, through the module."""
    model = lib.model()
    lib.loss(model, 0).backward()
    if lib.rank == 0:
        model.eval()
        with lib.torch.no_grad():
            lib.loss(model.module, 1)
        model.train()
    model.zero_grad()
    lib.loss(model, 2).backward()
    return grads(model)


def curve(lib, optimizer="SGD", zero=False, **options):
    """50 steps, and where they lead."""
    model, losses = lib.model(gradient_as_bucket_view=True), []
    optimizer = make_optimizer(lib, model, optimizer, zero, **options)
    for step in range(50):
        optimizer.zero_grad()
        loss = lib.loss(model, step % 7)
        loss.backward()
        lib.torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return {**values(model), "losses": losses}


# What is refused.


def unused_but_not_said(lib):
    model = lib.model()
    lib.loss(model, 0, "b").backward()
    return error_of(lambda: model(lib.x(1)))


def devices(lib):
    return error_of(lambda: lib.model(device_ids=[0]))


def second_hook(lib):
    model = lib.model()
    model.register_comm_hook(None, lib.hooks.allreduce_hook)
    return error_of(lambda: model.register_comm_hook(None, lib.hooks.allreduce_hook))


def copy_of_a_group(lib):
    model = lib.model(process_group=lib.dist.new_group())
    return error_of(lambda: copy.deepcopy(model))


SGD = {"optimizer": "SGD", "momentum": 0.9}
CASES = {
    "one": one, "one without buffers": partial(one, broadcast_buffers=False),
    "small buckets": partial(one, bucket_cap_mb=5e-5),
    "unused": partial(one, which="b", used="b", find_unused_parameters=True),
    "an output not in the loss": partial(one, used="b", find_unused_parameters=True),
    "the same one left out": partial(
        one, used="c", find_unused_parameters=True, skip_all_reduce_unused_params=True
    ),
    "reached without gradient": reached_without_gradient, "static graph": partial(one, static_graph=True),
    "differs by rank": differs_by_rank,
    "differs by rank, small buckets": partial(differs_by_rank, bucket_cap_mb=5e-5),
    "no_sync": partial(no_sync, forward_in=True, backward_in=True),
    "no_sync, forward inside": partial(no_sync, forward_in=True, backward_in=False),
    "no_sync, backward inside": partial(no_sync, forward_in=False, backward_in=True),
    "no_sync, nested": nested_no_sync, "no_sync, unused": used_in_no_sync_only,
    "several forwards": several_forwards, "backward in parts": backward_in_parts,
    "frozen": partial(frozen, later=False), "frozen later": partial(frozen, later=True),
    "checkpoint": checkpointed, "hooks": with_hooks, "strided": strided_gradient, "compressed": compressed,
    "dtypes": dtypes, "no buffers sent": buffers_without_broadcast,
    "buffers at the start": buffers_at_the_start,
    "names": names, "clipped": clipped, "copied": copied, "evaluated alone": evaluated_alone,
    "curve of SGD": partial(curve, **SGD), "curve of AdamW": partial(curve, optimizer="AdamW"),
    "error: unused": unused_but_not_said, "error: device_ids": devices, "error: second hook": second_hook,
    "error: copy": copy_of_a_group,
    "zero, curve of SGD": partial(curve, zero=True, **SGD),
    "zero, curve of AdamW": partial(curve, zero=True, optimizer="AdamW"),
    **UNEVEN_CASES,
}


def run(library):
    """All cases, on this rank."""
    library.start()
    run_cases({name: partial(case, library) for name, case in CASES.items()}, library.rank)


if __name__ == "__main__":
    run(Library("mytorch"))
