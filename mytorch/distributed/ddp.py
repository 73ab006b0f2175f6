"""DistributedDataParallel: the same model on every rank, trained on different data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd import is_grad_enabled
from ..device import device, on
from ..nn.module import Module
from ..tensor import Tensor
from .bucket import give_slots
from .collectives import broadcast
from .objects import all_gather_object
from .reducer import Reducer
from .world import get_global_rank, get_rank, get_world_size
from .world import group as default_group

FIRST_BUCKET = 1 << 20  # bytes
MEGABYTE = 1 << 20


class DistributedDataParallel(Module):
    """Wraps a model: after each `backward()`, its gradients are the means of those of all ranks.

        model = DistributedDataParallel(model)
        optimizer = mytorch.optim.AdamW(model.parameters())

    Every rank must begin with the same model (names, shapes and dtypes are compared; the values of rank 0 are
    sent to all) and go through as many backward passes. Gradients lie in the vectors of the optimizer, from
    where they are sent and where they are received.

    Args:
        module: the model.
        device_ids, output_device, dim: accepted as PyTorch's; a rank has one device, the model's.
        broadcast_buffers: send the buffers of rank 0 to all before each forward pass.
        init_sync: compare the models, and send the parameters of rank 0 to all.
        process_group: the ranks that train together; all of them if None.
        bucket_cap_mb: megabytes of gradients that travel together; 25 if None, and 1 for the first bucket.
        find_unused_parameters: some parameters may not take part in a forward pass.
        gradient_as_bucket_view: accepted; it is always so.
        static_graph: accepted; nothing depends on it.

    Raises:
        RuntimeError: no parameter requires a gradient, or another rank has another model.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
    ):
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(f"device_ids can only be None or contain a single element, got {device_ids}")
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise RuntimeError("DistributedDataParallel is not needed when no parameter requires a gradient")
        cap = MEGABYTE * (25 if bucket_cap_mb is None else bucket_cap_mb)
        if not cap > 0:
            raise ValueError(f"bucket_cap_mb must be positive, got {bucket_cap_mb}")
        self.module = module
        self.process_group = process_group if process_group is not None else default_group.WORLD
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.require_backward_grad_sync = True
        if init_sync:
            check_same_model(module, self.process_group)
            send_tensors([*module.parameters(), *module.buffers()], self.process_group)
        names, params = zip(*named, strict=True)
        first = int(min(FIRST_BUCKET, cap)) if bucket_cap_mb is None else int(cap)
        self.reducer = Reducer(params, names, self.process_group, first, int(cap), find_unused_parameters)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        syncs = self.require_backward_grad_sync and is_grad_enabled()
        give_slots(self.reducer.params)  # now: in the middle of backward gradients must not move
        if syncs:
            self.reducer.check_finished()
            if self.broadcast_buffers and self.module.training:
                send_tensors(list(self.module.buffers()), self.process_group)
        result = self.module(*args, **kwargs)
        if syncs and self.find_unused_parameters:
            self.reducer.expect(self._unused_in(result))
        return result

    def _unused_in(self, result: Any) -> list[Tensor]:
        """The parameters from which no path leads to the result."""
        reached = set()
        stack = [t.node for t in _tensors(result) if t.node is not None]
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack.extend([parent for parent in node.parents if parent is not None])
        return [p for p in self.reducer.params if p.node not in reached]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients add up on each rank; the next backward outside averages the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = self.reducer.enabled = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = self.reducer.enabled = before

    def register_comm_hook(self, state: Any, hook: Callable) -> None:
        """Average gradients by `hook(state, bucket)` (see `comm_hooks`)."""
        if not callable(hook):
            raise TypeError(f"register_comm_hook(): expected a function, got {type(hook).__name__}")
        self.reducer.set_hook(state, hook)


def check_same_model(module: Module, group: Any = None) -> None:
    """Compare names, shapes and dtypes of all parameters and buffers over the ranks.

    Raises:
        RuntimeError: they differ; on all ranks, with the first difference.
    """
    mine = [
        (name, tuple(t.shape), str(t.dtype), t.requires_grad)
        for name, t in (*module.named_parameters(), *module.named_buffers())
    ]
    found: list = [None] * get_world_size(group)
    all_gather_object(found, mine, group=group)
    for rank, theirs in enumerate(found):
        if theirs != found[0]:
            pairs = zip(found[0], theirs, strict=False)
            one, other = next((p for p in pairs if p[0] != p[1]), (f"{len(found[0])}", f"{len(theirs)}"))
            raise RuntimeError(
                "DistributedDataParallel: the models differ. (name, shape, dtype, requires_grad) or number "
                f"of tensors on rank 0: {one}, on rank {rank}: {other}"
            )


def send_tensors(tensors: list[Tensor], group: Any = None, src: int = 0) -> None:
    """Give every rank the values of the tensors of the group's rank `src`, in few long messages."""
    by_kind: dict[tuple[np.dtype, device], list[Tensor]] = {}
    for t in tensors:
        by_kind.setdefault((t.dtype, t.device), []).append(t)
    for (_, where), members in by_kind.items():
        with on(where):
            vector = np.concatenate([t.data._array.reshape(-1) for t in members])
            broadcast(vector, get_global_rank(group or default_group.WORLD, src), group=group)
            start, is_source = 0, get_rank(group) == src
            for t in members:
                stop = start + t.data.size
                if not is_source:
                    t.data._array[...] = vector[start:stop].reshape(t.data.shape)
                t._version.count += 1  # also at the source: all ranks must see the same tensors change
                start = stop


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested dicts, lists, tuples and objects with attributes."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "__dict__"):
        yield from _tensors(vars(value))
