"""DistributedDataParallel: the same model on every rank, trained on different data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd import is_grad_enabled
from ..backends.device import CPU, device, on
from ..core.tensor import Tensor
from ..nn.module import Module
from ..optim.flat_buffer import bind_gradients
from .collectives import all_reduce, broadcast
from .join import Join, Joinable, JoinHook
from .objects import all_gather_object
from .reducer import Reducer
from .world import get_global_rank, get_rank, get_world_size
from .world import group as default_group

FIRST_BUCKET = 1 << 20  # bytes
MEGABYTE = 1 << 20
COMPUTES, REDUCES, SENDS_BUFFERS = 1, 2, 3  # what a rank does in an iteration; 0 if it has joined


class DistributedDataParallel(Module, Joinable):
    """Wraps a model: after each `backward()`, its gradients are the means of those of all ranks.

        model = DistributedDataParallel(model)
        optimizer = mytorch.optim.AdamW(model.parameters())

    Every rank must begin with the same model (names, shapes and dtypes are compared; the values of rank 0 are
    sent to all) and go through as many backward passes. Gradients lie in the vectors of the optimizer, from
    where they are sent and where they are received.

    Args:
        module: the model.
        device_ids, output_device, dim: accepted as PyTorch's; a rank has one device, the model's.
        broadcast_buffers: send the buffers of rank 0 to all at the start, and before each forward pass of a
            model in training mode whose gradients will be averaged. Graphs that were made before see them.
        init_sync: compare the models, and send the parameters of rank 0 to all.
        process_group: the ranks that train together; all of them if None.
        bucket_cap_mb: megabytes of gradients that travel together; 25 if None, and 1 for the first bucket.
        find_unused_parameters: a backward pass may give some parameters no gradient. Those that another rank
            used have the mean all the same, those that nobody used have none.
        check_reduction: accepted; reductions are always checked.
        gradient_as_bucket_view: accepted; it is always so.
        static_graph: the same parameters get no gradient each time; as `find_unused_parameters`.
        skip_all_reduce_unused_params: with `find_unused_parameters`, the same ones on all ranks: nothing is
            sent for them.
        forward_sync_buffers: as `broadcast_buffers`, which it takes the place of, except that buffers are
            sent at the start whatever it is.

    Raises:
        RuntimeError: no parameter requires a gradient, or another rank has another model.
        ValueError: an argument that doesn't fit.
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
        *,
        skip_all_reduce_unused_params: bool = False,
        forward_sync_buffers: bool | None = None,
    ):
        super().__init__()
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when no parameter requires a gradient")
        if bucket_cap_mb is not None and not bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb must be positive, got {bucket_cap_mb}")
        _check_devices(module, device_ids, output_device)
        self.module = module
        self.process_group = process_group if process_group is not None else default_group.WORLD
        with_buffers = broadcast_buffers or forward_sync_buffers is not None
        self.broadcast_buffers = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.bucket_cap_mb = bucket_cap_mb
        self.require_backward_grad_sync = True
        self._divides_by_all = True  # see `join`
        if init_sync:
            check_same_model(module, self.process_group, with_buffers)
            buffers = module.buffers() if with_buffers else ()
            send_tensors([*module.parameters(), *buffers], self.process_group)
        self._watch_gradients()

    def _watch_gradients(self) -> None:
        named = list(self.module.named_parameters())
        self._frozen = [(name, p) for name, p in named if not p.requires_grad]
        names, params = zip(*[(name, p) for name, p in named if p.requires_grad], strict=True)
        cap = MEGABYTE * (25 if self.bucket_cap_mb is None else self.bucket_cap_mb)
        self.reducer = Reducer(
            params,
            names,
            self.process_group,
            FIRST_BUCKET if self.bucket_cap_mb is None else cap,
            cap,
            self.find_unused_parameters or self.static_graph,
            self.skip_all_reduce_unused_params,
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        bind_gradients(self.reducer.params)  # now: in the middle of backward gradients must not move
        if is_grad_enabled():
            self._begin_iteration()
        return self.module(*args, **kwargs)

    def _begin_iteration(self) -> None:
        reducer, source = self.reducer, 0
        reducer.enabled = self.require_backward_grad_sync  # for the backward passes until the next forward
        plan = REDUCES if reducer.enabled else COMPUTES
        if reducer.enabled:
            reducer.check_finished()
            self._check_frozen()
            if self.broadcast_buffers and self.module.training and any(True for _ in self.module.buffers()):
                plan = SENDS_BUFFERS
        Join.notify_join_context(self)
        reducer.active = None
        if self._join_config is not None:
            ranks = self._tell(plan)[1]
            source = ranks[-1]
            reducer.active = None if self._divides_by_all else len(ranks)
        if plan == SENDS_BUFFERS:
            self._send_buffers(source)

    def _check_frozen(self) -> None:
        for name, p in self._frozen:
            if p.requires_grad:
                raise RuntimeError(
                    f"DistributedDataParallel: {name} required no gradient when the model was wrapped, and "
                    "does now; its gradient would not be averaged: wrap the model again"
                )

    def _send_buffers(self, source: int) -> None:
        """Graphs that were made before aren't told: most buffers are what they were."""
        send_tensors(list(self.module.buffers()), self.process_group, source, count=False)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes inside add up on each rank; the next one outside averages the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: Callable) -> None:
        """Average gradients by `hook(state, bucket)` (see `comm_hooks`); before the first backward pass.

        Raises:
            TypeError: it isn't callable.
            RuntimeError: there is a hook already.
        """
        if not callable(hook):
            raise TypeError(f"register_comm_hook(): expected a function, got {type(hook).__name__}")
        if self.reducer.has_own_hook:
            raise RuntimeError("register_comm_hook() can only be called once")
        self.reducer.set_hook(state, hook)

    # Copies. They belong to the default group, as in PyTorch.

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not default_group.WORLD or self.reducer.has_own_hook:
            raise RuntimeError(
                "DistributedDataParallel can't be copied or pickled with a process_group of its own or a "
                "communication hook; copy `.module`"
            )
        return {k: v for k, v in self.__dict__.items() if k not in ("process_group", "reducer", "_frozen")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.process_group = default_group.WORLD
        self._watch_gradients()

    # Ranks with more data than others.

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Context around a training loop that is longer on some ranks than on others (see `Join`).

        In the end all ranks have the model of one that trained until the end.

        Args:
            divide_by_initial_world_size: gradients are the sums over the ranks that still train, divided by
                how many ranks there are, so that all samples weigh the same; False: by how many still train.
            enable, throw_on_early_termination: see `Join`.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        if self.skip_all_reduce_unused_params:
            raise ValueError(
                "join(): skip_all_reduce_unused_params=True: a rank without data can't know what is skipped"
            )
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _JoinedModel(self)

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def _tell(self, mine: int) -> tuple[int, list[int]]:
        """Tell the others what this rank does in this iteration, 0 for nothing.

        Returns:
            What the ranks do that do something, and which ones these are.

        Raises:
            RuntimeError: they don't do the same.
        """
        plans = np.zeros(get_world_size(self.process_group), np.int64)
        plans[get_rank(self.process_group)] = mine
        all_reduce(plans, group=self.process_group)
        ranks = [rank for rank, plan in enumerate(plans.tolist()) if plan]
        if len({*plans.tolist()} - {0}) > 1:
            what = ("has joined", "is in no_sync()", "averages gradients", "and sends buffers, too")
            said = ", ".join(f"rank {rank} {what[plan]}" for rank, plan in enumerate(plans.tolist()))
            raise RuntimeError(f"DistributedDataParallel: the ranks don't do the same in join(): {said}")
        return int(plans.max()), ranks


class _JoinedModel(JoinHook):
    """What a model does on a rank without data: the collectives of forward and backward passes."""

    def __init__(self, model: DistributedDataParallel):
        self.model = model

    def main_hook(self) -> None:
        plan, ranks = self.model._tell(0)
        if plan == SENDS_BUFFERS:
            self.model._send_buffers(ranks[-1])
        if plan >= REDUCES:
            self.model.reducer.active = None if self.model._divides_by_all else len(ranks)
            self.model.reducer.follow()

    def post_hook(self, is_last_joiner: bool) -> None:
        model = self.model
        source = model._tell(int(is_last_joiner))[1][-1]
        buffers = model.module.buffers() if model.broadcast_buffers else ()
        send_tensors([*model.module.parameters(), *buffers], model.process_group, source)


def _check_devices(module: Module, device_ids: Any, output_device: Any) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError(f"device_ids can only be None or contain a single element, got {device_ids}")
    places = {p.device for p in module.parameters()}
    if (device_ids or output_device is not None) and (CPU in places or len(places) > 1):
        raise ValueError(
            f"device_ids={device_ids} and output_device={output_device} are for a model on one GPU, this one "
            f"is on {', '.join(sorted(map(str, places)))}"
        )


def check_same_model(module: Module, group: Any = None, buffers: bool = True) -> None:
    """Compare names, shapes and dtypes of all parameters, and of all buffers, over the ranks.

    Raises:
        RuntimeError: they differ; on all ranks, with the first difference.
    """
    mine = [
        (name, tuple(t.shape), str(t.dtype), t.requires_grad)
        for name, t in (*module.named_parameters(), *(module.named_buffers() if buffers else ()))
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


def send_tensors(tensors: list[Tensor], group: Any = None, src: int = 0, count: bool = True) -> None:
    """Give every rank the values of the tensors of the group's rank `src`, in few long messages.

    Args:
        count: let graphs that need the old values notice, on all ranks alike.
    """
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
                t._version.count += count
                start = stop
