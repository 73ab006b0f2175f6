"""The part of the Accelerator that computes, accumulates and clips gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np

from ..amp.mixed_precision import MixedPrecisionOptimizer
from ..backends.device import is_on_host
from ..backends.door import in_force
from ..core.tensor import Tensor, raw_of
from ..distributed.ddp import DistributedDataParallel
from ..nn.module import Module
from ..nn.utils import clip_grad
from . import world
from .finite import check_finite
from .gradient_state import GradientState
from .optimizer import AcceleratedOptimizer
from .shared_grad_scaler import SharedScaler


class Gradients:
    """backward, accumulate, clip_grad_norm_, …

    Attributes:
        checks_loss: whether `backward` and `check_finite` refuse a loss that isn't finite.
        grad_norm: what `clip_grad_norm_` returned last, of a complete window; None before.
    """

    checks_loss = True
    grad_norm: Tensor | None = None
    gradient_state: GradientState
    scaler: SharedScaler | None
    _optimizers: list[AcceleratedOptimizer]
    _models: list[Module]

    @property
    def sync_gradients(self) -> bool:
        """Whether this micro-batch ends a window; False that is set stays until True is set."""
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        self.gradient_state.sync_gradients, self.gradient_state.is_held = value, not value

    sync_grad = sync_gradients

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-batches in a window; can be set between two windows."""
        return self.gradient_state.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value: int) -> None:
        self.gradient_state.num_steps = check_steps(value)

    def backward(self, loss: Tensor, num_items: float | None = None, **kwargs: Any) -> None:
        """Accumulates the gradients of a micro-batch's mean loss in those of its window.

        Outside of `accumulate()` a batch of a prepared loader is a micro-batch: in a plain loop, optimizers
        step on every `gradient_accumulation_steps`-th batch and on the last of a pass.

        A loss that isn't finite would make the weights of all ranks NaN. Without a scaler, which skips such
        steps, that is an error on the CPU; on a GPU the check would synchronize, and is left to the user.

        Args:
            num_items: number of tokens of the mean, if it differs between micro-batches: the window's
                gradient is then that of the mean over all its tokens, on all processes.
            kwargs: arguments of `Tensor.backward`.

        Raises:
            FloatingPointError: several processes compute on CPUs, and this one's loss is inf or NaN, unless
                `checks_loss` is False.
        """
        in_force().once("what an Accelerator counts: compile the model")
        self._check_models()
        state = self.gradient_state
        if not state.in_context:
            state.count_backward()
            self._set_reducing(state.sync_gradients)
        factor = self.gradient_state.factor(num_items)
        if self.scaler is not None:
            self.scaler.loss = loss.detach()
        elif world.world_size() > 1 and self.checks_loss:
            _check_finite(loss)
        if factor != 1:
            loss = loss * factor
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward(**kwargs)
        if not (state.in_context or state.sync_gradients):
            for optimizer in self._halves():
                optimizer.hold_grads()

    def _set_reducing(self, completes: bool) -> None:
        """Prepares the backward pass of a micro-batch: gradients are reduced if it ends a window."""
        if completes:
            for optimizer in self._halves():
                optimizer.release_grads()
        for model in self._models:
            if isinstance(model, DistributedDataParallel) and not self.gradient_state.is_joining:
                model.reducer.enabled = completes and model.forward_syncs

    @contextmanager
    def accumulate(self, *models: Module) -> Iterator[None]:
        """Context of a micro-batch: gradients are reduced and optimizers step when the window is complete.

        A window is `gradient_accumulation_steps` micro-batches, or the rest of a prepared loader. The context
        counts the micro-batch; `backward` inside doesn't, however often it is called. Between two
        micro-batches the gradients of a half-precision model are held in float32.
        """
        state = self.gradient_state
        completes = state.begin_micro_batch()
        halves = self._halves()
        if completes:
            for optimizer in halves:
                optimizer.release_grads()
        with ExitStack() as stack:
            for model in models:
                stack.enter_context(nullcontext() if completes else self.no_sync(model))
            outer, state.in_context = state.in_context, True
            try:
                yield
            finally:
                state.in_context = outer
        if not completes:
            for optimizer in halves:
                optimizer.hold_grads()

    @contextmanager
    def no_sync(self, model: Module) -> Iterator[None]:
        """Context in which gradients of this model accumulate without being reduced."""
        with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
            yield

    def unscale_gradients(
        self, optimizer: AcceleratedOptimizer | Sequence[AcceleratedOptimizer] | None = None
    ) -> None:
        """Divides the gradients by the loss scale, before they are read or changed.

        Args:
            optimizer: a prepared optimizer, or a list of them; all if None.
        """
        if optimizer is None:
            optimizer = self._optimizers
        for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
            one.unscale()

    def check_finite(self, loss: float, checks_weights: bool = False) -> None:
        """Raises FloatingPointError if a loss, or a weight of a prepared model, is inf or NaN.

        With a loss scale the loss isn't checked: a step with such a loss is skipped.

        Args:
            loss: of all processes, so that all raise alike.
            checks_weights: as before a checkpoint; else they are only read to explain the loss.

        Raises:
            FloatingPointError: the message names the weight; nothing raises where `checks_loss` is False.
        """
        if self.checks_loss:
            models = [self.unwrap_model(model) for model in self._models]
            check_finite(models, loss, self.scaler is None, checks_weights)

    def clip_grad_norm_(
        self, parameters: Tensor | Iterable[Tensor] | float, max_norm: float | None = None,
        norm_type: float = 2.0,
    ) -> Tensor | None:
        """Clips the gradients of prepared models' parameters, when a window is complete.

        Args:
            parameters: `clip_grad_norm_(max_norm)` without them clips those of all prepared optimizers.

        Returns:
            The norm of the complete gradients, in float32, before clipping; None while they accumulate.

        Raises:
            ValueError: with mixed precision, a parameter with a gradient is in no prepared optimizer.
        """
        if not self.sync_gradients:
            return None
        if isinstance(parameters, (int, float)) and max_norm is None:
            max_norm = parameters
            parameters = dict.fromkeys(p for o in self._optimizers for p in o.model_parameters())
        elif max_norm is None:
            raise TypeError("clip_grad_norm_(): max_norm is missing")
        params = self._unscaled(parameters)
        wanted = set(params)
        for half in self._halves():
            mine = set(half.parameters())
            if wanted == mine and half._step_supports_amp_scaling:
                self.grad_norm = half.clip_grad_norm(max_norm, norm_type)
                return self.grad_norm
            if not wanted.isdisjoint(mine):
                half.divide_grads()
                params = half.masters_of(params)
        self.grad_norm = clip_grad.clip_grad_norm_(params, max_norm, norm_type)
        return self.grad_norm

    def clip_grad_value_(self, parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
        """Clips each element of the complete gradients to ± `clip_value`."""
        if not self.sync_gradients:
            return
        params = self._unscaled(parameters)
        for half in self._halves():
            if not set(params).isdisjoint(half.parameters()):
                half.divide_grads()
                params = half.masters_of(params)
        clip_grad.clip_grad_value_(params, clip_value)

    def _unscaled(self, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
        """Returns these parameters (the model's, not their float32 copies), with unscaled gradients."""
        params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        for half in self._halves():
            params = half.models_of(params)
        unknown = {p for p in params if p.grad is not None}
        for optimizer in self._optimizers:
            mine = optimizer.model_parameters()
            unknown.difference_update(mine)
            if not set(params).isdisjoint(mine):
                optimizer.unscale()
        if self.scaler is not None and unknown:
            raise ValueError(
                f"{len(unknown)} of these parameters have gradients, but are in no optimizer that went "
                "through prepare(): their gradients are still multiplied by the loss scale"
            )
        return params

    def _halves(self) -> list[MixedPrecisionOptimizer]:
        return [o.optimizer for o in self._optimizers if isinstance(o.optimizer, MixedPrecisionOptimizer)]

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether the last step of an optimizer was skipped, since a gradient was inf or NaN."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    @contextmanager
    def autocast(self, autocast_handler: object = None) -> Iterator[None]:
        """Does nothing: with mixed precision a prepared model computes in half precision anyway."""
        yield


def check_steps(value: int) -> int:
    """Raises ValueError unless this is a number of micro-batches."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"gradient_accumulation_steps must be a positive integer, got {value!r}")
    return value


def _check_finite(loss: Tensor) -> None:
    raw = raw_of(loss)
    if is_on_host(raw) and not np.isfinite(raw).all():
        value = raw.item() if raw.size == 1 else "with inf or NaN in it"
        raise FloatingPointError(
            f"backward(): the loss on rank {world.rank()} is {value}; averaged over the "
            f"{world.world_size()} ranks, its gradients would make the weights of all of them NaN"
        )
