"""Accelerator: one training script for a laptop, a GPU, and many of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np

from .. import distributed as dist
from .._array import Array
from ..device import as_device, device, is_available
from ..distributed.ddp import DistributedDataParallel, check_same_model, send_tensors
from ..nn.module import Module
from ..nn.utils import clip_grad
from ..optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from ..optim.optimizer import Optimizer
from ..tensor import Tensor
from ..utils.data import DataLoader
from . import process
from .loader import PreparedLoader, SkippedLoader, skip_first_batches
from .memory import clear
from .mixed_precision import HALF, MixedPrecisionOptimizer, floats_to, half_parameters
from .optimizer import AcceleratedOptimizer
from .processes import Processes
from .saving import Saving
from .scaler import GradScaler
from .scheduler import AcceleratedScheduler
from .state import GradientState
from .tracking import Tracking

_PRECISIONS = {False: "no", None: "no", "no": "no", "fp32": "no", True: "fp16", "fp16": "fp16"}


class Accelerator(Processes, Saving, Tracking):
    """Prepares models, optimizers, loaders and schedules for whatever the script runs on.

        accelerator = Accelerator(gradient_accumulation_steps=4, mixed_precision="fp16")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

    The interface is that of Hugging Face's Accelerate. Several processes are started by `mytorchrun launch`.

    Args: the first four, where they are None, are what `mytorchrun launch` says (MYTORCH_MIXED_PRECISION, …).
        gradient_accumulation_steps: micro-batches for each update; 1.
        mixed_precision: "fp16" or True trains a float16 model with float32 weights behind it; "no" or False.
        log_wandb: log to Weights & Biases, as `log_with="wandb"`.
        cpu: use no GPU.
        log_with: "jsonl", "wandb", "tensorboard", a Tracker, or a list of these.
        project_dir: the folder of trackers' files.
        device_placement: move models and batches to the device.
        step_scheduler_with_optimizer: schedules count updates; False lets them count calls.
        ddp_kwargs, scaler_kwargs: options of DistributedDataParallel and of GradScaler.

    Raises:
        ValueError: an unknown precision or tracker, or bfloat16, which the arrays beneath don't have.
    """

    def __init__(
        self,
        gradient_accumulation_steps: int | None = None,
        mixed_precision: bool | str | None = None,
        log_wandb: bool | None = None,
        cpu: bool | None = None,
        *,
        log_with: Any = None,
        project_dir: Any = None,
        device_placement: bool = True,
        step_scheduler_with_optimizer: bool = True,
        ddp_kwargs: dict[str, Any] | None = None,
        scaler_kwargs: dict[str, Any] | None = None,
    ):
        setting = process.setting
        gradient_accumulation_steps = setting(
            "GRADIENT_ACCUMULATION_STEPS", gradient_accumulation_steps, 1, int
        )
        mixed_precision = setting("MIXED_PRECISION", mixed_precision, "no")
        log_wandb = setting("LOG_WANDB", log_wandb, False, process.is_true)
        cpu = setting("CPU", cpu, False, process.is_true)
        if not isinstance(gradient_accumulation_steps, int) or gradient_accumulation_steps < 1:
            raise ValueError(
                f"gradient_accumulation_steps must be a positive integer, got {gradient_accumulation_steps}"
            )
        self.mixed_precision = _read_precision(mixed_precision)
        Saving.__init__(self)
        Tracking.__init__(self, log_with, log_wandb, project_dir)
        self._started = process.start()
        self.device: device = as_device("cpu")
        if not cpu and is_available():
            self.device = as_device(f"cuda:{process.local_rank()}")
        self.gradient_state = GradientState(gradient_accumulation_steps)
        is_half = self.mixed_precision == "fp16"
        self.scaler = GradScaler(self.device, **(scaler_kwargs or {})) if is_half else None
        self.device_placement, self._ddp_kwargs = device_placement, ddp_kwargs or {}
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self._forget()

    def _forget(self) -> None:
        self._models: list[Module] = []
        self._optimizers: list[AcceleratedOptimizer] = []
        self._schedulers: list[AcceleratedScheduler] = []
        self._loaders: list[PreparedLoader] = []
        self._single: dict[Tensor, Array] = {}  # float32 values, until an optimizer has taken them over
        self._casts: dict[Module, list] = {}

    sync_gradients = property(lambda self: self.gradient_state.sync_gradients)
    sync_grad = sync_gradients
    gradient_accumulation_steps = property(lambda self: self.gradient_state.num_steps)

    # Preparing.

    def prepare(self, *objects: Any, device_placement: Any = None) -> Any:
        """Models, optimizers, loaders and schedules made ready; returned in the order that they came in.

        Args:
            device_placement: for each object whether it goes to the device; by default the Accelerator's.

        Raises:
            TypeError: something else, an optimizer's class or a list, say.
        """
        placed = device_placement or [self.device_placement] * len(objects)
        kinds = (
            (Module, self.prepare_model),
            ((Optimizer, MixedPrecisionOptimizer), self.prepare_optimizer),
            (DataLoader, self.prepare_data_loader),
            ((LRScheduler, ReduceLROnPlateau), self.prepare_scheduler),
        )
        done = list(objects)
        for obj in objects:
            known = (Module, Optimizer, MixedPrecisionOptimizer, DataLoader, LRScheduler, ReduceLROnPlateau)
            if not isinstance(obj, (*known, *_PREPARED)):
                raise TypeError(
                    f"prepare(): expected a Module, an Optimizer, a DataLoader or a schedule, got {obj!r} "
                    f"of type {type(obj).__name__}"
                )
        for kind, prepare in kinds:  # models first: optimizers want their parameters
            for i, obj in enumerate(objects):
                if isinstance(obj, kind) and not isinstance(obj, _PREPARED):
                    done[i] = prepare(obj, placed[i])
        return done[0] if len(done) == 1 else tuple(done)

    def prepare_model(self, model: Module, device_placement: bool | None = None) -> Module:
        """The model on the device, in half precision if that is wanted, and in DDP if there are others."""
        if any(self.unwrap_model(model, True) is self.unwrap_model(known, True) for known in self._models):
            return model
        if self.device_placement if device_placement is None else device_placement:
            model.to(self.device)
        if process.world_size() > 1:
            check_same_model(model)
            send_tensors([*model.parameters(), *model.buffers()])  # while they are float32
        if self.mixed_precision == "fp16":
            self._single.update(half_parameters(model))
            self._casts[model] = [
                model.register_forward_pre_hook(_halve_inputs, with_kwargs=True),
                model.register_forward_hook(_widen_outputs),
            ]
        if process.world_size() > 1 and any(p.requires_grad for p in model.parameters()):
            model = DistributedDataParallel(model, **{"init_sync": False, **self._ddp_kwargs})
        self._models.append(model)
        return model

    def prepare_optimizer(
        self, optimizer: Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        """The optimizer, stepping with complete gradients; over float32 copies of a float16 model."""
        if isinstance(optimizer, AcceleratedOptimizer):
            return optimizer
        is_half = any(p.dtype == HALF for group in optimizer.param_groups for p in group["params"])
        if self.scaler is not None and is_half and not isinstance(optimizer, MixedPrecisionOptimizer):
            params = {p for group in optimizer.param_groups for p in group["params"]}
            optimizer = MixedPrecisionOptimizer(optimizer, self._single)
            self._single = {p: value for p, value in self._single.items() if p not in params}
        prepared = AcceleratedOptimizer(optimizer, self.gradient_state, self.scaler)
        self._optimizers.append(prepared)
        return prepared

    def prepare_scheduler(self, scheduler: Any, device_placement: bool | None = None) -> AcceleratedScheduler:
        """The schedule, going on with its optimizer."""
        mine = [o for o in self._optimizers if scheduler.optimizer in (o, o.optimizer, _inner(o.optimizer))]
        prepared = AcceleratedScheduler(
            scheduler, mine or self._optimizers, self.gradient_state, self.step_scheduler_with_optimizer
        )
        self._schedulers.append(prepared)
        return prepared

    def prepare_data_loader(
        self, data_loader: DataLoader, device_placement: bool | None = None
    ) -> PreparedLoader:
        """The loader of this process's share of each batch, on the device."""
        placed = self.device_placement if device_placement is None else device_placement
        prepared = PreparedLoader(data_loader, self.device if placed else None, self.gradient_state)
        self._loaders.append(prepared)
        return prepared

    def unwrap_model(self, model: Module, keep_fp32_wrapper: bool = True) -> Module:
        """The model that was prepared.

        Args:
            keep_fp32_wrapper: False takes away what casts inputs and outputs with mixed precision.
        """
        while isinstance(model, DistributedDataParallel):
            model = model.module
        if not keep_fp32_wrapper:
            for handle in self._casts.pop(model, ()):
                handle.remove()
        return model

    # Gradients.

    def backward(self, loss: Tensor, num_items: float | None = None, **kwargs: Any) -> None:
        """Add the gradients of a micro-batch's mean loss to those of its window.

        Args:
            num_items: the tokens that the loss is the mean over, if they differ between micro-batches: the
                window's gradient is then that of the mean over all its tokens, on all processes.
            kwargs: of `Tensor.backward`.
        """
        factor = self.gradient_state.factor(num_items)
        if factor != 1:
            loss = loss * factor
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward(**kwargs)

    @contextmanager
    def accumulate(self, *models: Module) -> Iterator[None]:
        """Around each micro-batch: gradients are sent, and optimizers step, when the window is complete.

        A window is `gradient_accumulation_steps` micro-batches, or what is left of a prepared loader.
        """
        completes = self.gradient_state.begin_micro_batch()
        with ExitStack() as stack:
            for model in models:
                stack.enter_context(nullcontext() if completes else self.no_sync(model))
            yield

    @contextmanager
    def no_sync(self, model: Module) -> Iterator[None]:
        """Inside, gradients of this model add up without being sent."""
        with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
            yield

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide the gradients by the scale of the losses, before they are looked at or changed."""
        chosen = self._optimizers if optimizer is None else [optimizer]
        for one in chosen:
            one.unscale()

    def clip_grad_norm_(
        self, parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
    ) -> Tensor | None:
        """Clip the gradients of prepared models' parameters, once a window is complete.

        Returns:
            The norm of the complete gradients, in float32, before clipping; None while they add up.
        """
        if not self.sync_gradients:
            return None
        params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        wanted = set(params)
        for optimizer in self._optimizers:
            mine = optimizer.model_parameters()
            if wanted.isdisjoint(mine):
                continue
            optimizer.unscale()
            inner = optimizer.optimizer
            if isinstance(inner, MixedPrecisionOptimizer):
                if wanted == set(mine) and inner._step_supports_amp_scaling:
                    return inner.clip_grad_norm(max_norm, norm_type)
                inner.divide_grads()
                params = inner.masters_of(params)
        return clip_grad.clip_grad_norm_(params, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
        """Limit each element of the complete gradients to ± `clip_value`."""
        if not self.sync_gradients:
            return
        params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        for optimizer in self._optimizers:
            if not set(params).isdisjoint(optimizer.model_parameters()):
                optimizer.unscale()
                if isinstance(optimizer.optimizer, MixedPrecisionOptimizer):
                    optimizer.optimizer.divide_grads()
                    params = optimizer.optimizer.masters_of(params)
        clip_grad.clip_grad_value_(params, clip_value)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Was the last step of an optimizer left out, since a gradient was inf or NaN?"""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """Accepted as Hugging Face's: with mixed precision a prepared model computes in float16 anyway."""
        yield

    # The rest of a run.

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> SkippedLoader:
        """The loader without its first batches: to go on in the middle of an epoch."""
        return skip_first_batches(dataloader, num_batches)

    def free_memory(self, *objects: Any) -> list:
        """Forget all that was prepared, give memory back, and return None for each object."""
        self.wait_for_checkpoint()
        self._forget()
        clear()
        return [None] * len(objects)

    clear = free_memory

    def end_training(self) -> None:
        """Wait for the last checkpoint, close the trackers, and leave the other processes."""
        self.wait_for_checkpoint()
        self._finish_trackers()
        if self._started and dist.is_initialized():
            process.barrier()
            dist.destroy_process_group()
            self._started = False


_PREPARED = (AcceleratedOptimizer, AcceleratedScheduler, PreparedLoader, SkippedLoader)


def _read_precision(value: bool | str | None) -> str:
    if value == "bf16":
        raise ValueError(
            "mixed_precision='bf16': NumPy and CuPy have no bfloat16 arrays; use 'fp16', whose loss scaling "
            "makes up for its smaller range"
        )
    if not isinstance(value, (bool, str, type(None))) or value not in _PRECISIONS:
        raise ValueError(f"mixed_precision is 'no', 'fp16', True or False, got {value!r}")
    return _PRECISIONS[value]


def _inner(optimizer: Any) -> Any:
    return optimizer.optimizer if isinstance(optimizer, MixedPrecisionOptimizer) else optimizer


def _halve_inputs(module: Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return floats_to(args, HALF), floats_to(kwargs, HALF)


def _widen_outputs(module: Module, args: tuple, result: Any) -> Any:
    return floats_to(result, np.dtype(np.float32))
