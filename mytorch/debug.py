"""What is in the graph of a loss, and what the workers of a program have done: printed, to be read."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from .autograd.tape import backward_order, kept_text, shape_text, text_of_bytes
from .core.graph import shown_name
from .core.tensor import Tensor
from .stream import page

if TYPE_CHECKING:
    from .nn import Module


def print_tape(loss: Tensor, model: Module | None = None) -> None:
    """Prints the graph from a loss back to its leaves, in the order in which `backward()` would run it.

    A line is an operation: its number (in the order of the forward pass), its name, the shape of its result,
    the numbers of its inputs, and what it keeps for its vjp beside its leaves.

    Args:
        model: names the leaves that are its parameters.

    Raises:
        TypeError: `loss` is no Tensor, or `model` no Module.

    >>> w = mytorch.ones(2, 3, requires_grad=True)
    >>> mytorch.debug.print_tape((w * w).exp().sum())
    #4  sum   float32[]     <- #3
    #3  exp   float32[2,3]  <- #2      keeps 24 B
    #2  mul   float32[2,3]  <- #1, #1
    #1  leaf  float32[2,3]
    """
    print(tape_text(loss, model))


def tape_text(loss: Tensor, model: Module | None = None) -> str:
    """Returns what `print_tape` prints."""
    if not isinstance(loss, Tensor):
        raise TypeError(f"print_tape(): expected a Tensor, got {type(loss).__name__}")
    if model is not None and not hasattr(model, "named_parameters"):
        raise TypeError(f"print_tape(): the model is a Module, got {type(model).__name__}")
    if loss.node is None:
        return "no operation was recorded: the tensor requires no gradient"
    nodes = backward_order(loss.node)
    numbers = {node: len(nodes) - i for i, node in enumerate(nodes)}
    leaves = {} if model is None else {p.node: name for name, p in model.named_parameters()}
    rows = []
    for node in nodes:
        what = shown_name(node.name) if node.parents else leaves.get(node, "leaf")
        parents = ", ".join(f"#{numbers[p]}" for p in node.parents if p is not None)
        inputs = f"<- {parents}" if parents else ""
        rows.append((f"#{numbers[node]}", what, shape_text(node), inputs, kept_text(node)))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[4]]).rstrip() for row in rows)


def print_worker_stats(file: TextIO | None = None) -> None:
    """Prints what the workers of this process's DataLoaders, and the ranks of its job, have done so far.

    Of a DataLoader: batches that were taken, seconds that the program waited for them, and for each worker
    its batches, memory, and what it loads now. Call it within the loop: workers end with it, and nothing is
    known of them then, unless the DataLoader has `persistent_workers=True`. Of the ranks (those with a page,
    see `mytorchrun top`): operations, seconds spent on communication and on data, memory, and the last
    operation.

    Args:
        file: by default the standard output.

    Raises:
        TypeError: `file` is no file.
    """
    if file is not None and not hasattr(file, "write"):
        raise TypeError(f"print_worker_stats(): expected a file to write to, got {type(file).__name__}")
    print("\n".join([*_loader_lines(), *_rank_lines()]), file=file or sys.stdout)


def _loader_lines() -> list[str]:
    pool_module = sys.modules.get(f"{__package__}.utils.data.pool")
    lines = []
    for pool in [] if pool_module is None else list(pool_module.POOLS):
        if not pool.workers:
            continue  # it was closed
        waited = f"waited {pool.waited:.3f} s for {pool.taken} batches"
        lines.append(f"DataLoader of {type(pool.job.recipe.dataset).__name__}: {waited}")
        for worker in pool.workers:
            pid = worker.process.pid
            facts = f"{worker.status[1]} batches, {text_of_bytes(page.resident_memory(pid))}"
            lines.append(f"  worker {worker.id} (pid {pid}): {facts}, {pool.current(worker) or 'waits'}")
    return lines or ["no DataLoader has workers now: without persistent_workers=True they end with the loop"]


def _rank_lines() -> list[str]:
    pages = page.read_pages()
    own = next((reading for reading in pages if reading.pid == os.getpid()), None)
    if own is None:
        memory = text_of_bytes(page.resident_memory(os.getpid()))
        return [f"this process (pid {os.getpid()}): {memory}; it has no page (mytorch.stream.publish())"]
    lines = [f"job {own.job}"]
    for rank in pages:
        if rank.job == own.job:
            waits = f"communication {rank.seconds['communication']:.3f} s, data {rank.seconds['data']:.3f} s"
            now = f"{rank.operation or 'nothing yet'}{' runs' if rank.is_running else ''}"
            facts = f"{rank.count} operations, {waits}, {text_of_bytes(rank.resident)}, {now}"
            lines.append(f"  rank {rank.rank} (pid {rank.pid}): {facts}")
    return lines
