"""Accelerator: the same training script for a CPU, a GPU and several processes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .. import distributed as dist
from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..amp.precision import cast_around, half_dtype, half_parameters, read_precision
from ..backends.device import DeviceLike
from ..core.array import Array
from ..core.tensor import RemovableHandle, Tensor
from ..distributed.ddp import DistributedDataParallel, broadcast_tensors, check_same_model
from ..nn import fused_ops
from ..nn.module import Module
from ..optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from ..optim.optimizer import Optimizer
from ..utils.data import DataLoader
from . import world
from .gradient_state import GradientState
from .gradients import Gradients, check_steps
from .joining import Joining
from .loader import PreparedLoader, SkippedLoader, skip_first_batches
from .memory import clear
from .optimizer import AcceleratedOptimizer
from .processes import Processes
from .saving import Saving
from .scheduler import AcceleratedScheduler
from .shared_grad_scaler import SharedScaler
from .stateful import Schedule
from .tracking import LogWith, Tracking
from .weights import Weights


class Accelerator(Processes, Gradients, Joining, Weights, Saving, Tracking):
    """Prepares models, optimizers, loaders and schedules for the device and the processes of the run.

        accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()

    Gradients accumulate by themselves: while a window of batches isn't complete, `clip_grad_norm_`, `step`
    and `zero_grad` do nothing. `accumulate()` does the same for code that wants to say it.

    The interface is that of Hugging Face's Accelerate. `mytorchrun launch` starts several processes.

    Args: the first four, where None, are read from the environment that `mytorchrun launch` sets.
        gradient_accumulation_steps: micro-batches of each update; 1 by default.
        mixed_precision: "fp16" or True trains a float16 model with float32 master weights and a loss scale;
            "bf16" a bfloat16 model, which needs no loss scale; "no" or False.
        log_wandb: log to Weights & Biases, as `log_with="wandb"`. (`log` starts the trackers, unless
            `init_trackers` did, which names the run.)
        cpu: use no GPU.
        log_with: "jsonl", "wandb", "tensorboard", a Tracker, or a list of these.
        project_dir: the folder of trackers' files, and of checkpoints saved without a folder.
        device: "cpu", "cuda" or, for a single process, "cuda:N"; instead of `cpu`.
        fused: demand that there are fused kernels for the device.
        device_placement: move models and batches to the device.
        split_batches: a prepared loader's batch size is the total of all processes, not that of each.
        even_batches: all processes get the same number of batches, for which some samples are repeated at
            the end of a pass. False repeats none: see `join_uneven_inputs`.
        step_scheduler_with_optimizer: schedules count updates; if False, calls.
        ddp_kwargs, scaler_kwargs: options of DistributedDataParallel, and of GradScaler, for "fp16".

    Attributes:
        scaler: the GradScaler; None without "fp16".

    Raises:
        ValueError: an unknown precision or tracker; a device without data, or one GPU for several processes;
            `fused` without kernels.
        RuntimeError: the device doesn't exist.
        ImportError: "bf16" without the package ml_dtypes; a tracker without its package.
    """

    def __init__(
        self, gradient_accumulation_steps: int | None = None, mixed_precision: bool | str | None = None,
        log_wandb: bool | None = None, cpu: bool | None = None, *, log_with: LogWith = None,
        project_dir: str | os.PathLike | None = None, device: DeviceLike = None, fused: bool = False,
        device_placement: bool = True, split_batches: bool = False, even_batches: bool = True,
        step_scheduler_with_optimizer: bool = True, ddp_kwargs: Mapping[str, Any] | None = None,
        scaler_kwargs: Mapping[str, Any] | None = None,
    ):
        setting = world.setting
        gradient_accumulation_steps = setting(
            "GRADIENT_ACCUMULATION_STEPS", gradient_accumulation_steps, 1, int
        )
        mixed_precision = setting("MIXED_PRECISION", mixed_precision, "no")
        log_wandb = setting("LOG_WANDB", log_wandb, False, world.is_true)
        cpu = setting("CPU", cpu, False, world.is_true)
        check_steps(gradient_accumulation_steps)
        self.mixed_precision = read_precision(mixed_precision)
        Saving.__init__(self)
        Tracking.__init__(self, log_with, log_wandb, project_dir)
        self._started = world.start()
        self.check_trackers()
        self.device = world.own_device(device, cpu)
        if fused and (reason := fused_ops.why_not(self.device.type)):
            raise ValueError(f"fused=True, but {reason}")
        is_scaled = self.mixed_precision == "fp16"
        self.scaler = SharedScaler(self.device, **(scaler_kwargs or {})) if is_scaled else None
        self.device_placement, self._ddp_kwargs = device_placement, ddp_kwargs or {}
        self.split_batches, self.even_batches = split_batches, even_batches
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self.gradient_state = GradientState(gradient_accumulation_steps)
        self._reset()

    def _reset(self) -> None:
        self.gradient_state.reset()
        self._models: list[Module] = []
        self._optimizers: list[AcceleratedOptimizer] = []
        self._schedulers: list[AcceleratedScheduler] = []
        self._loaders: list[PreparedLoader] = []
        self._float32_values: dict[Tensor, Array] = {}  # until an optimizer takes them
        self._casts: dict[Module, list[RemovableHandle]] = {}
        self._has_checked = True
        if self.scaler is not None:
            self.scaler.optimizers.clear()

    # Preparing.

    def prepare(self, *objects: Any, device_placement: Sequence[bool] | None = None) -> Any:
        """Returns models, optimizers, loaders and schedules prepared, in the order of the arguments.

        Args:
            device_placement: for each object whether to move it to the device; the Accelerator's if None.

        Raises:
            TypeError: another object, such as a class or a list.
            ValueError: `device_placement` has another length; a half-precision model comes after its
                optimizer.
        """
        placed = [self.device_placement] * len(objects) if device_placement is None else device_placement
        if len(placed) != len(objects):
            raise ValueError(f"prepare(): {len(objects)} objects, but device_placement is {placed}")
        kinds = (  # models first: optimizers want their parameters
            (Module, self.prepare_model),
            ((Optimizer, MixedPrecisionOptimizer), self.prepare_optimizer),
            ((DataLoader, PreparedLoader, SkippedLoader), self.prepare_data_loader),
            ((LRScheduler, ReduceLROnPlateau, AcceleratedScheduler), self.prepare_scheduler),
        )
        for obj in objects:
            if not any(isinstance(obj, kind) for kind, _ in kinds):
                raise TypeError(
                    f"prepare(): expected a Module, an Optimizer, a DataLoader or a schedule, got {obj!r} "
                    f"of type {type(obj).__name__}"
                )
        done = list(objects)
        for kind, prepare in kinds:
            for i, obj in enumerate(objects):
                if isinstance(obj, kind):
                    done[i] = prepare(obj, placed[i])
        return done[0] if len(done) == 1 else tuple(done)

    def prepare_model(
        self, model: Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Module:
        """Returns the model on the device, with mixed precision in half, with several processes in DDP.

        Args:
            evaluation_mode: the model isn't trained and needs no DDP.
        """
        for known in self._models:
            if self.unwrap_model(known) is self.unwrap_model(model):
                return known
        if self.device_placement if device_placement is None else device_placement:
            model.to(self.device)
        if world.world_size() > 1:
            check_same_model(model)
            broadcast_tensors([*model.parameters(), *model.buffers()])  # while they are float32
        half = half_dtype(self.mixed_precision)
        if half is not None:
            params = set(model.parameters())
            if any(not params.isdisjoint(optimizer.model_parameters()) for optimizer in self._optimizers):
                raise ValueError(
                    "prepare(): with mixed precision a model comes before its optimizer, or in the same call"
                )
            self._float32_values.update(half_parameters(model, half))
            self._casts[self.unwrap_model(model)] = cast_around(model, half)
        trains = not evaluation_mode and any(p.requires_grad for p in model.parameters())
        if world.world_size() > 1 and trains and not isinstance(model, DistributedDataParallel):
            model = DistributedDataParallel(model, **{"init_sync": False, **self._ddp_kwargs})
            model.completes_next = self.gradient_state.completes_next
        self._models.append(model)
        return model

    def prepare_optimizer(
        self, optimizer: Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        """Returns the optimizer wrapped; with mixed precision it updates float32 copies of the weights."""
        for known in self._optimizers:
            if optimizer in (known, known.optimizer, _inner(known.optimizer)):
                return known
        if isinstance(optimizer, AcceleratedOptimizer):  # of another Accelerator, or of this one before
            optimizer = optimizer.optimizer
        half = half_dtype(self.mixed_precision)
        is_half = any(p.dtype == half for group in optimizer.param_groups for p in group["params"])
        if half is not None and is_half and not isinstance(optimizer, MixedPrecisionOptimizer):
            optimizer = MixedPrecisionOptimizer(optimizer, self._float32_values)
        prepared = AcceleratedOptimizer(optimizer, self.gradient_state, self.scaler)
        self._optimizers.append(prepared)
        self._has_checked = False
        return prepared

    def prepare_scheduler(
        self, scheduler: Schedule, device_placement: bool | None = None
    ) -> AcceleratedScheduler:
        """Returns the schedule wrapped: it steps with its optimizer."""
        for known in self._schedulers:
            if scheduler in (known, known.scheduler):
                return known
        if isinstance(scheduler, AcceleratedScheduler):
            scheduler = scheduler.scheduler
        mine = [o for o in self._optimizers if scheduler.optimizer in (o, o.optimizer, _inner(o.optimizer))]
        prepared = AcceleratedScheduler(
            scheduler, mine or self._optimizers, self.gradient_state, self.step_scheduler_with_optimizer
        )
        self._schedulers.append(prepared)
        return prepared

    def prepare_data_loader(
        self, data_loader: DataLoader | PreparedLoader | SkippedLoader, device_placement: bool | None = None
    ) -> PreparedLoader | SkippedLoader:
        """Returns the loader of this process's part of each batch, on the device."""
        if isinstance(data_loader, SkippedLoader):
            prepared = self.prepare_data_loader(data_loader.loader, device_placement)
            is_new = prepared is not data_loader.loader
            return SkippedLoader(prepared, data_loader.num_batches) if is_new else data_loader
        for known in self._loaders:
            if data_loader in (known, known.original):
                return known
        placed = self.device_placement if device_placement is None else device_placement
        if isinstance(data_loader, PreparedLoader):
            prepared = data_loader
            prepared.gradient_state = self.gradient_state
        else:
            target = self.device if placed else None
            prepared = PreparedLoader(
                data_loader, target, self.gradient_state, self.split_batches, self.even_batches
            )
        self._loaders.append(prepared)
        return prepared

    def _check_models(self) -> None:
        """Warns, before the first backward pass, of parameters whose gradients are not averaged."""
        if self._has_checked or world.world_size() == 1:
            return
        self._has_checked = True
        averaged = {p for model in self._models for p in model.parameters()}
        for optimizer in self._optimizers:
            others = [p for p in optimizer.model_parameters() if p.requires_grad and p not in averaged]
            if others:
                warnings.warn(
                    f"{len(others)} parameters of {type(_inner(optimizer.optimizer)).__name__} are of no "
                    "model that went through prepare(): their gradients are not averaged over the processes",
                    stacklevel=4,
                )

    def unwrap_model(self, model: Module, keep_fp32_wrapper: bool = True) -> Module:
        """Returns the original model.

        Args:
            keep_fp32_wrapper: False removes the hooks that cast inputs and outputs with mixed precision.
        """
        while isinstance(model, DistributedDataParallel):
            model = model.module
        if not keep_fp32_wrapper:
            for handle in self._casts.pop(model, ()):
                handle.remove()
        return model

    # The rest of a run.

    def skip_first_batches(
        self, dataloader: DataLoader | PreparedLoader, num_batches: int = 0
    ) -> SkippedLoader:
        """Returns the loader without the first batches of each epoch: to resume in the middle of one.

        After `load_state`, which restores the positions of loaders, nothing has to be skipped; batches before
        the restored position aren't returned again, and none is skipped twice.
        """
        return skip_first_batches(dataloader, num_batches)

    def free_memory(self, *objects: object) -> list:
        """Drops everything that was prepared, frees memory, and returns None for each object."""
        self.wait_for_checkpoint()
        self._reset()
        clear()
        return [None] * len(objects)

    clear = free_memory

    def end_training(self) -> None:
        """Waits for the last checkpoint, closes the trackers, and leaves the process group."""
        self.wait_for_checkpoint()
        self._finish_trackers()
        if self._started and dist.is_initialized():
            world.leave()
            self._started = False


def _inner(optimizer: Optimizer | MixedPrecisionOptimizer) -> Optimizer:
    return optimizer.optimizer if isinstance(optimizer, MixedPrecisionOptimizer) else optimizer
