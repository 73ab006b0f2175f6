"""DistributedDataParallel: the same model on every rank, trained on different data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..autograd import is_grad_enabled
from ..backends.device import CPU, device, on
from ..backends.door import in_force
from ..core.flat_buffer import bind_gradients, grouped
from ..core.tensor import Tensor, increment_version, raw_of
from ..nn.module import Module
from .collectives import all_reduce, broadcast
from .join import Join, Joinable, JoinHook
from .object_collectives import all_gather_object
from .process_group import ProcessGroup
from .reducer import Reducer
from .world import get_global_rank, get_rank, get_world_size
from .world import group as default_group

FIRST_BUCKET = 1 << 20  # bytes
MEGABYTE = 1 << 20
LOCAL, REDUCE, REDUCE_AND_BROADCAST = 1, 2, 3  # the plan of a rank for an iteration; 0 if it has joined


class DistributedDataParallel(Module, Joinable):
    """Wraps a model: each `backward()` averages its gradients over all ranks.

        model = DistributedDataParallel(model)
        optimizer = mytorch.optim.AdamW(model.parameters())

    All ranks must have the same model (names, shapes and dtypes are compared; the values of rank 0 are
    broadcast) and run the same number of backward passes. Gradients are slices of the optimizer's flat
    vectors, which are reduced in place.

    Args:
        module: the model.
        device_ids, output_device, dim: accepted for PyTorch's callers; a rank has one device, the model's.
        broadcast_buffers: broadcast the buffers of rank 0 at the start, and before each forward pass in
            training mode whose gradients will be averaged. Earlier graphs see the new values.
        init_sync: compare the models, and broadcast the parameters of rank 0.
        process_group: the ranks that train together; all if None.
        bucket_cap_mb: megabytes of gradients per all-reduce; 25 if None, and 1 for the first bucket.
        find_unused_parameters: some parameters may get no gradient in a backward pass. If another rank
            used one, its gradient is the mean with zeros for this rank; if no rank did, it has none.
        check_reduction: accepted; reductions are always checked.
        gradient_as_bucket_view: accepted; gradients always are views.
        static_graph: as `find_unused_parameters`.
        skip_all_reduce_unused_params: with `find_unused_parameters`: all ranks leave out the same ones, so
            nothing is sent for those.
        forward_sync_buffers: overrides `broadcast_buffers` for forward passes; buffers are broadcast at the
            start in any case.

    Raises:
        RuntimeError: no parameter requires a gradient, or another rank has another model.
        ValueError: an invalid argument.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[int | str | device] | None = None,
        output_device: int | str | device | None = None, dim: int = 0, broadcast_buffers: bool = True,
        init_sync: bool = True, process_group: ProcessGroup | None = None, bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = True, static_graph: bool = False, *,
        skip_all_reduce_unused_params: bool = False, forward_sync_buffers: bool | None = None,
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
        self.require_backward_grad_sync = self.forward_syncs = True
        self.completes_next: Callable[[], bool] | None = None  # the Accelerator: whether a window ends
        self._divides_by_world_size = True  # see `join`
        if init_sync:
            check_same_model(module, self.process_group, with_buffers)
            buffers = module.buffers() if with_buffers else ()
            broadcast_tensors([*module.parameters(), *buffers], self.process_group)
        self._make_reducer()

    def _make_reducer(self) -> None:
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
        in_force().once("DDP: compile the module in it")
        bind_gradients(self.reducer.params)  # now: gradients must not move during the backward pass
        if is_grad_enabled():
            self._begin_iteration()
        return self.module(*args, **kwargs)

    def _begin_iteration(self) -> None:
        reducer, source = self.reducer, 0
        self.forward_syncs = self.require_backward_grad_sync  # for the backward passes until the next forward
        reducer.enabled = self.forward_syncs and (self.completes_next is None or self.completes_next())
        plan = REDUCE if reducer.enabled else LOCAL
        if reducer.enabled:
            reducer.check_finished()
            self._check_frozen()
            if self.broadcast_buffers and self.module.training and any(True for _ in self.module.buffers()):
                plan = REDUCE_AND_BROADCAST
        Join.notify_join_context(self)
        reducer.active = None
        if self._join_config is not None:
            ranks = self._exchange_plans(plan)[1]
            source = ranks[-1]
            reducer.active = None if self._divides_by_world_size else len(ranks)
        if plan == REDUCE_AND_BROADCAST:
            self._broadcast_buffers(source)

    def _check_frozen(self) -> None:
        for name, p in self._frozen:
            if p.requires_grad:
                raise RuntimeError(
                    f"DistributedDataParallel: {name} required no gradient when the model was wrapped, and "
                    "does now; its gradient would not be averaged: wrap the model again"
                )

    def _broadcast_buffers(self, source: int) -> None:
        """Broadcasts the buffers without a new version: most keep their values, and saved ones stay valid."""
        broadcast_tensors(list(self.module.buffers()), self.process_group, source, bump_version=False)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context manager: gradients accumulate locally; the next backward pass outside averages the sums."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """Averages gradients with `hook(state, bucket)` (see `comm_hooks`); before the first backward pass.

        Raises:
            TypeError: it isn't callable.
            RuntimeError: a hook is registered already.
        """
        if not callable(hook):
            raise TypeError(f"register_comm_hook(): expected a function, got {type(hook).__name__}")
        if self.reducer.has_own_hook:
            raise RuntimeError("register_comm_hook() can only be called once")
        self.reducer.set_hook(state, hook)

    # Copies and pickles belong to the default group, as in PyTorch.

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not default_group.WORLD or self.reducer.has_own_hook:
            raise RuntimeError(
                "DistributedDataParallel can't be copied or pickled with another process_group than the "
                "default or a communication hook; copy `.module`"
            )
        own = ("process_group", "reducer", "_frozen", "completes_next")
        return {k: v for k, v in self.__dict__.items() if k not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.process_group, self.completes_next = default_group.WORLD, None
        self._make_reducer()

    # Uneven numbers of batches: see join.py.

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Context manager for a training loop with more iterations on some ranks than on others (see `Join`).

        At its end all ranks get the model of a rank that trained until the end.

        Args:
            divide_by_initial_world_size: divide the sum of gradients by the number of all ranks, so that all
                samples have the same weight; False: by the number of ranks that still train.
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
                "join(): skip_all_reduce_unused_params=True: a rank without data doesn't know what is skipped"
            )
        self._divides_by_world_size = kwargs.get("divide_by_initial_world_size", True)
        return _JoinedModel(self)

    @property
    def join_process_group(self) -> ProcessGroup | None:
        return self.process_group

    def _exchange_plans(self, own: int) -> tuple[int, list[int]]:
        """Exchanges what the ranks do in this iteration, 0 for nothing.

        Returns:
            The plan of the ranks that do something, and these ranks.

        Raises:
            RuntimeError: they have different plans.
        """
        plans = np.zeros(get_world_size(self.process_group), np.int64)
        plans[get_rank(self.process_group)] = own
        all_reduce(plans, group=self.process_group)
        ranks = [rank for rank, plan in enumerate(plans.tolist()) if plan]
        if len({*plans.tolist()} - {0}) > 1:
            names = (
                "has joined",
                "is in no_sync()",
                "averages gradients",
                "averages gradients and sends buffers",
            )
            text = ", ".join(f"rank {rank} {names[plan]}" for rank, plan in enumerate(plans.tolist()))
            raise RuntimeError(f"DistributedDataParallel: the ranks don't do the same in join(): {text}")
        return int(plans.max()), ranks


class _JoinedModel(JoinHook):
    """Makes the collective calls of forward and backward passes on a rank without data."""

    def __init__(self, model: DistributedDataParallel):
        self.model = model

    def main_hook(self) -> None:
        plan, ranks = self.model._exchange_plans(0)
        if plan == REDUCE_AND_BROADCAST:
            self.model._broadcast_buffers(ranks[-1])
        if plan >= REDUCE:
            self.model.reducer.active = None if self.model._divides_by_world_size else len(ranks)
            self.model.reducer.follow()

    def post_hook(self, is_last_joiner: bool) -> None:
        model = self.model
        source = model._exchange_plans(int(is_last_joiner))[1][-1]
        buffers = model.module.buffers() if model.broadcast_buffers else ()
        broadcast_tensors([*model.module.parameters(), *buffers], model.process_group, source)


def _check_devices(
    module: Module, device_ids: Sequence[int | str | device] | None, output_device: int | str | device | None
) -> None:
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError(f"device_ids can only be None or contain a single element, got {device_ids}")
    devices = {p.device for p in module.parameters()}
    if (device_ids or output_device is not None) and (CPU in devices or len(devices) > 1):
        raise ValueError(
            f"device_ids={device_ids} and output_device={output_device} are for a model on one GPU, this one "
            f"is on {', '.join(sorted(map(str, devices)))}"
        )


def check_same_model(module: Module, group: ProcessGroup | None = None, buffers: bool = True) -> None:
    """Compares names, shapes and dtypes of parameters and buffers over the ranks.

    Raises:
        RuntimeError: they differ; raised on all ranks, with the first difference.
    """
    own = [
        (name, tuple(t.shape), str(t.dtype), t.requires_grad)
        for name, t in (*module.named_parameters(), *(module.named_buffers() if buffers else ()))
    ]
    found: list = [None] * get_world_size(group)
    all_gather_object(found, own, group=group)
    for rank, described in enumerate(found):
        if described != found[0]:
            pairs = zip(found[0], described, strict=False)
            lengths = f"{len(found[0])}", f"{len(described)}"
            first, other = next((p for p in pairs if p[0] != p[1]), lengths)
            raise RuntimeError(
                "DistributedDataParallel: the models differ. (name, shape, dtype, requires_grad) or number "
                f"of tensors on rank 0: {first}, on rank {rank}: {other}"
            )


def broadcast_tensors(
    tensors: list[Tensor], group: ProcessGroup | None = None, src: int = 0, bump_version: bool = True
) -> None:
    """Broadcasts the tensors of the group's rank `src`, in one message for each group (see `group_of`).

    Args:
        bump_version: increment the version counters, so that graphs that saved the old values raise.
    """
    for group_tensors in grouped(tensors):
        with on(group_tensors[0].device):
            vector = np.concatenate([raw_of(t).reshape(-1) for t in group_tensors])
            broadcast(vector, get_global_rank(group or default_group.WORLD, src), group=group)
            start = 0
            is_source = get_rank(group) == src and group_tensors[0].device.kind.ranks == 1
            for t in group_tensors:
                stop = start + t.data.size
                if not is_source:
                    raw_of(t)[...] = vector[start:stop].reshape(t.data.shape)
                if bump_version:
                    increment_version(t)
                start = stop
