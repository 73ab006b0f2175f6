"""
The program of `mytorchrun test` on each rank: checks of training on several processes.

Each check returns its failure on every rank, "" if it passed; rank 0 prints a line for it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

import mytorch
from mytorch import distributed as dist
from mytorch import nn, optim
from mytorch.accelerate import Accelerator, set_seed
from mytorch.amp.precision import HALVES, half_dtype
from mytorch.backends.device import cuda_device, is_available
from mytorch.distributed.ddp import DistributedDataParallel
from mytorch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

IN_BFLOAT16 = "mixed precision in bfloat16"
_TOLERANCE = 1e-5  # of sums in another order


def main() -> None:
    """Runs all checks; exits with code 1 if one failed."""
    started = not dist.is_initialized()
    if started:
        dist.init_process_group()
    count = dist.get_world_size()
    _print(f"{count} process{'es' * (count > 1)} on {_device().type}")
    if count == 1:
        _print("(a single process sends nothing: --num_processes 2 tests that, too)")
    chosen = dict(CHECKS)
    try:
        half_dtype("bf16")
    except ImportError as error:
        if chosen.pop(IN_BFLOAT16, None):
            _print(f"(no {IN_BFLOAT16}: {error})")
    failed = [name for name, check in chosen.items() if not _passes(name, check)]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(chosen)} checks failed: {', '.join(failed)}")
    _print(f"all {len(chosen)} checks passed")
    if started:
        dist.destroy_process_group()


def _passes(name: str, check: Callable[[], str]) -> bool:
    """Runs a check, and prints its line. An error ends all ranks: others may wait for this one."""
    try:
        reason = check()
    except Exception as error:
        text = str(error).partition("\n")[0]
        print(f"{_mark(False)} {name}: rank {dist.get_rank()}: {type(error).__name__}: {text}", flush=True)
        raise
    reasons: list = [None] * dist.get_world_size()
    dist.all_gather_object(reasons, reason)
    wrong = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(reasons) if text)
    _print(f"{_mark(not wrong)} {name}{': ' * bool(wrong)}{wrong}")
    return not wrong


def _mark(good: bool) -> str:
    """Returns a check mark or a cross, or words if the terminal's encoding has neither."""
    try:
        "✓✗".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "ok" if good else "FAILED"
    return "✓" if good else "✗"


def _print(text: str) -> None:
    if dist.get_rank() == 0:
        print(text, flush=True)


def _device() -> mytorch.device:
    return cuda_device(int(os.environ.get("LOCAL_RANK", "0"))) if is_available() else mytorch.device("cpu")


def _differ(
    what: str, got: mytorch.Tensor | ArrayLike, expected: mytorch.Tensor | ArrayLike, tolerance: float = 0.0
) -> str:
    """Returns by how much two arrays differ; "" if by no more than the tolerance."""
    got, expected = (x.detach().cpu().numpy() if isinstance(x, mytorch.Tensor) else np.asarray(x)
                     for x in (got, expected))
    if got.shape != expected.shape:
        return f"{what} has shape {got.shape}, expected {expected.shape}"
    error = np.abs(got.astype(np.float64) - expected).max(initial=0)
    return "" if error <= tolerance else f"{what} is off by {error:.3g}"


def _first(*reasons: str) -> str:
    return next((reason for reason in reasons if reason), "")


def _model() -> nn.Module:
    """Returns the same model on every rank."""
    with mytorch.random.fork_rng():
        mytorch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def _samples(count: int) -> tuple[mytorch.Tensor, mytorch.Tensor]:
    """Returns inputs (count, 6) and targets (count, 3), the same on every rank."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((count, 6)).astype(np.float32)
    return mytorch.tensor(x), mytorch.tensor(np.sin(x[:, :3] * 2))


def _loss(model: nn.Module, x: mytorch.Tensor, y: mytorch.Tensor) -> mytorch.Tensor:
    return nn.functional.mse_loss(model(x), y)


def _weights(model: nn.Module) -> np.ndarray:
    return np.concatenate([p.detach().float().cpu().numpy().reshape(-1) for p in model.parameters()])


def collectives() -> str:
    """Checks sums, maxima, broadcasts, gathers and scatters of numbers that differ between ranks."""
    rank, size, device = dist.get_rank(), dist.get_world_size(), _device()
    mine = mytorch.arange(size, device=device).float() + 10 * rank  # 10 rank + column
    table = 10 * np.arange(size)[:, None] + np.arange(size)
    total, largest, first = mine.clone(), mine.clone(), mine.clone()
    dist.all_reduce(total)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    dist.broadcast(first, src=0)
    rows = [mytorch.empty_like(mine) for _ in range(size)]
    dist.all_gather(rows, mine)
    part = mytorch.empty(1, device=device)
    dist.reduce_scatter_tensor(part, mine)
    objects: list = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    return _first(
        _differ("all_reduce", total, table.sum(0)),
        _differ("all_reduce(MAX)", largest, table.max(0)),
        _differ("broadcast", first, table[0]),
        _differ("all_gather", mytorch.stack(rows), table),
        _differ("reduce_scatter", part, table.sum(0)[rank : rank + 1]),
        "" if objects == [{"rank": i} for i in range(size)] else f"all_gather_object gave {objects}",
    )


def ddp_gradients() -> str:
    """Checks that DDP on parts of a batch computes the gradients of one process with the whole batch."""
    rank, size, device = dist.get_rank(), dist.get_world_size(), _device()
    x, y = (t.to(device) for t in _samples(4 * size))
    alone, together = _model().to(device), DistributedDataParallel(_model().to(device))
    _loss(alone, x, y).backward()
    mine = slice(4 * rank, 4 * rank + 4)
    _loss(together, x[mine], y[mine]).backward()
    pairs = zip(alone.named_parameters(), together.parameters(), strict=True)
    return _first(*(_differ(f"gradient of {n}", q.grad, p.grad, _TOLERANCE) for (n, p), q in pairs))


def accumulation() -> str:
    """Checks that accumulated micro-batches lead to the weights of one process with large batches."""
    size = dist.get_world_size()
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=not is_available())
    model, optimizer, loader = _prepared(accelerator, 8 * size, 2)
    for x, y in loader:
        _update(accelerator, model, optimizer, x, y)
    alone = _model()
    reference = optim.AdamW(alone.parameters(), lr=0.01)
    x, y = _samples(8 * size)
    for start in (0, 4 * size):
        part = slice(start, start + 4 * size)
        _loss(alone, x[part], y[part]).backward()
        reference.step()
        reference.zero_grad()
    return _differ("a weight", _weights(accelerator.unwrap_model(model)), _weights(alone), 100 * _TOLERANCE)


def _prepared(accelerator: Accelerator, count: int, batch_size: int, shuffle: bool = False) -> tuple:
    model = _model()
    loader = DataLoader(TensorDataset(*_samples(count)), batch_size, shuffle=shuffle)
    return accelerator.prepare(model, optim.AdamW(model.parameters(), lr=0.01), loader)


def _update(
    accelerator: Accelerator, model: nn.Module, optimizer: optim.Optimizer,
    x: mytorch.Tensor, y: mytorch.Tensor,
) -> float:
    with accelerator.accumulate(model):
        loss = _loss(model, x, y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def sharding() -> str:
    """Checks that the processes together see each sample once, in order, also of an uneven data set."""
    size = dist.get_world_size()
    accelerator = Accelerator(cpu=not is_available())
    loader = accelerator.prepare(DataLoader(TensorDataset(mytorch.arange(4 * size + 1)), 2))
    seen = [accelerator.gather_for_metrics(batch) for (batch,) in loader]
    return _differ("an epoch", mytorch.cat(seen), np.arange(4 * size + 1))


def mixed_precision() -> str:
    """Checks that a float16 model learns, is the same on all ranks, and skips a step with an inf on one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    (accelerator, model, optimizer, loader), reason = _learned("fp16")
    before, scale = _weights(model), accelerator.scaler.get_scale()
    (x, y) = next(iter(loader))
    _update(accelerator, model, optimizer, x, y * (float("inf") if rank == size - 1 else 1.0))
    after = accelerator.scaler.get_scale()
    return _first(
        reason,
        "" if accelerator.optimizer_step_was_skipped else "a step with an infinite gradient was made",
        _differ("the model after a skipped step", _weights(model), before),
        "" if after < scale else f"the loss scale stayed at {after:g} after an infinite gradient",
    )


def bfloat16() -> str:
    """Checks that a bfloat16 model learns, and is the same on all ranks."""
    return _learned("bf16")[1]


def _learned(precision: str) -> tuple[tuple, str]:
    """Trains a half-precision model; returns the prepared objects, and the failure."""
    size = dist.get_world_size()
    accelerator = Accelerator(mixed_precision=precision, cpu=not is_available())
    model, optimizer, loader = _prepared(accelerator, 8 * size, 8)
    losses = [_update(accelerator, model, optimizer, x, y) for _ in range(100) for x, y in loader]
    everyone: list = [None] * size
    dist.all_gather_object(everyone, _weights(model))
    dtypes, expected = {str(p.dtype) for p in model.parameters()}, {HALVES[precision]}
    return (accelerator, model, optimizer, loader), _first(
        "" if dtypes == expected else f"the model is of {sorted(dtypes)}",
        "" if losses[-1] < 0.5 * losses[0] else f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g}",
        _differ("a rank's model", np.stack(everyone), np.stack([everyone[0]] * size)),
    )


def checkpoints() -> str:
    """Checks that training resumes exactly from a checkpoint in the middle of an epoch."""
    set_seed(3)
    accelerator = Accelerator(cpu=not is_available())
    model, optimizer, loader = _prepared(accelerator, 12 * dist.get_world_size(), 2, shuffle=True)
    with _shared_folder() as folder:
        for i, (x, y) in enumerate(loader):
            _update(accelerator, model, optimizer, x, y)
            if i == 1:
                accelerator.save_state(folder)
        expected = _weights(model)
        accelerator.load_state(folder)
        steps = 0
        for x, y in loader:
            _update(accelerator, model, optimizer, x, y)
            steps += 1
    return _first(
        _differ("the number of steps after loading", steps, 4),
        _differ("a weight", _weights(model), expected),
    )


@contextmanager
def _shared_folder() -> Iterator[str]:
    """Context with a folder for all ranks; with several machines the current one must be shared."""
    several = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) < dist.get_world_size()
    box: list = [None]
    if dist.get_rank() == 0:
        box[0] = tempfile.mkdtemp(prefix="mytorch-test-", dir=os.getcwd() if several else None)
    dist.broadcast_object_list(box, src=0)
    try:
        yield f"{box[0]}/state"
        dist.barrier()
    finally:
        if dist.get_rank() == 0:
            shutil.rmtree(box[0], ignore_errors=True)


CHECKS: dict[str, Callable[[], str]] = {
    "collectives": collectives,
    "gradients of DDP equal those of one process": ddp_gradients,
    "gradient accumulation": accumulation,
    "data sharding": sharding,
    "mixed precision": mixed_precision,
    IN_BFLOAT16: bfloat16,
    "checkpoints": checkpoints,
}

if __name__ == "__main__":
    main()
