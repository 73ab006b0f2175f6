"""What is in the graph of a loss, and what the workers of a program have done: printed, to be read."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .core.closure import closure_arrays
from .core.graph import Deferred, Node, owner_of
from .core.tensor import Tensor, raw_of
from .profiler.memory import text_of_bytes
from .stream import page
from .stream.instruction import dtype_name

if TYPE_CHECKING:
    from .nn import Module


def print_tape(loss: Tensor, model: Module | None = None) -> None:
    """Prints the graph from a loss back to its leaves, in the order in which `backward()` would run it.

    A line is an operation: its number (in the order of the forward pass), its name, the shape of its result,
    the numbers of its inputs, and what it keeps for its vjp beside its leaves.

    Args:
        model: names the leaves that are its parameters.

    Raises:
        TypeError: `loss` is no Tensor.

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
    if loss.node is None:
        return "no operation was recorded: the tensor requires no gradient"
    nodes = _backward_order(loss.node)
    numbers = {node: len(nodes) - i for i, node in enumerate(nodes)}
    leaves = {} if model is None else {p.node: name for name, p in model.named_parameters()}
    rows = []
    for node in nodes:
        what = node.name.lstrip("_") if node.parents else leaves.get(node, "leaf")
        parents = ", ".join(f"#{numbers[p]}" for p in node.parents if p is not None)
        inputs = f"<- {parents}" if parents else ""
        rows.append((f"#{numbers[node]}", what, _shape(node), inputs, _kept(node)))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[4]]).rstrip() for row in rows)


def _backward_order(root: Node) -> list[Node]:
    """Returns the nodes below `root`, each after all that it gets a gradient from."""
    order, seen, stack = [], {root}, [(root, iter(root.parents))]
    while stack:
        node, parents = stack[-1]
        for parent in parents:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append((parent, iter(parent.parents)))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def _shape(node: Node) -> str:
    if node.shape is None:
        return "several"
    device = "" if str(node.device) == "cpu" else f"@{node.device}"
    return f"{dtype_name(node.dtype)}[{','.join(map(str, node.shape))}]{device}"


def _kept(node: Node) -> str:
    """Returns what the vjp of a node holds beside its leaves: bytes, each array once."""
    if not node.parents:
        return ""
    if node.vjp is None:
        return "freed"
    if type(node.vjp) is Deferred:
        return "computed again in the backward pass"
    leaves = [p.tensor() for p in node.parents if p is not None and not p.parents and p.tensor is not None]
    there = [owner_of(raw_of(leaf)) for leaf in leaves if leaf is not None]
    arrays = [a for a in closure_arrays(node.vjp) if not any(owner_of(a) is owner for owner in there)]
    kept = {id(a): a.nbytes for a in arrays}
    return f"keeps {text_of_bytes(sum(kept.values()))}" if kept else ""


def print_worker_stats(file: Any = None) -> None:
    """Prints what the workers of this process's DataLoaders, and the ranks of its job, have done so far.

    Of a DataLoader: batches that were taken, seconds that the program waited for them, and for each worker
    its batches, memory, and what it loads now. Of the ranks (those with a page, see `mytorchrun top`):
    operations, seconds spent on communication and on data, memory, and the last operation.

    Args:
        file: by default the standard output.
    """
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
            facts = f"{worker.answered} batches, {text_of_bytes(page.resident_memory(pid))}"
            lines.append(f"  worker {worker.id} (pid {pid}): {facts}, {pool.current(worker) or 'waits'}")
    return lines or ["no DataLoader has workers"]


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
