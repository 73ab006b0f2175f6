"""
Mixed precision: a half-precision model whose weights are updated in float32.

    float16   weights -> forward, backward -> gradients
                 ^                                |
              cast                              cast, and look for inf and NaN
                 |                                v
    float32   weights <------ update <------ gradients / scale

A float16 weight of 1 can't change by less than 0.0005, one of bfloat16 by less than 0.004, and most updates
are smaller. So the optimizer keeps float32 copies, the masters, and the model gets them rounded after each
step. Both lie in flat buffers of the same layout: each of the two casts is one pass over memory. bfloat16 has
the range of float32, so its gradients need neither a scale nor a check for inf and NaN.

Source: Micikevicius et al., "Mixed Precision Training", 2018, https://arxiv.org/abs/1710.03740, section 3.1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..backends.device import RawArray, device, on
from ..core.array import Array
from ..core.flat_buffer import FlatBuffer
from ..core.tensor import Tensor, raw_of, version_of
from ..nn.fused_ops.cast import cast_and_check
from ..optim.optimizer import Optimizer
from ..optim.param_groups import ParamGroup, params_of
from .precision import check_half


class MixedPrecisionOptimizer:
    """An optimizer of float32 masters of half-precision parameters.

    Made from an optimizer of the model's parameters, which from then on holds the masters; it keeps its
    options, its state and its schedules. When the model's weights are written between two steps (by loading a
    state_dict, say), the next step takes the masters over from them.

    Args:
        optimizer: any Optimizer of float16 parameters, or of bfloat16 ones.
        values: the float32 values of parameters, where they are still known (see `half_parameters`); those
            that are used are removed.

    Attributes:
        optimizer: the given one.
        dtype: of the model's parameters.
        is_collected: whether the gradients of the next step are in float32 already.
        grad_scale, found_inf: set by a `GradScaler`: see `Optimizer.step`.

    Raises:
        ValueError: a parameter is of another dtype, or becomes so; the optimizer has no flat buffers.
    """

    def __init__(self, optimizer: Optimizer, values: dict[Tensor, Array] | None = None):
        self.optimizer = optimizer
        optimizer.discards_grads = True  # those of the masters, which each step makes again
        self.dtype: np.dtype | None = None
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None
        self._values = {} if values is None else values
        self._masters: dict[Tensor, Tensor] = {}
        self._models: dict[Tensor, Tensor] = {}  # the other way round
        self._seen: dict[Tensor, tuple[Array, int]] = {}  # the model's weights and their versions
        self._pairs: list[_Pair] = []
        self._held: set[Tensor] = set()  # parameters whose gradients of this window accumulate in float32
        self.is_collected = False
        state, optimizer.state = optimizer.state, type(optimizer.state)(dict)
        for group in optimizer.param_groups:
            group["params"] = [self._master(p) for p in group["params"]]
        for p, entry in state.items():
            optimizer.state[self._masters.get(p, p)] = entry
        if hasattr(optimizer, "exchange_parameters"):  # it has sharded them already
            optimizer.exchange_parameters()
        if not self._current_pairs():
            raise ValueError(f"mixed precision needs flat parameters, which {type(optimizer).__name__} lacks")

    def _master(self, p: Tensor) -> Tensor:
        if p not in self._masters:
            check_half(p, self.dtype)
            self.dtype = p.dtype
            value = self._values.pop(p, None)
            master = Tensor((p.data if value is None else value).to("float32"))
            self._masters[p], self._models[master] = master.requires_grad_(p.requires_grad), p
            self._seen[p] = p.data, version_of(p)
        return self._masters[p]

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)
    _step_supports_amp_scaling = property(lambda self: self.optimizer._step_supports_amp_scaling)

    @property
    def device(self) -> device:
        return next(iter(self._masters.values())).device

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Adds a group of parameters of the model: see `Optimizer.add_param_group`."""
        group = {**param_group, **params_of(param_group["params"])}
        for p in group["params"]:
            check_half(p, self.dtype)
        group["params"] = [self._master(p) for p in group["params"]]
        self.optimizer.add_param_group(group)
        self._current_pairs()

    def parameters(self) -> list[Tensor]:
        """Returns the model's parameters, in the order of the groups."""
        return self.models_of([p for group in self.param_groups for p in group["params"]])

    def models_of(self, params: Iterable[Tensor]) -> list[Tensor]:
        """Returns the model's parameters of these masters; other tensors unchanged."""
        return [self._models.get(p, p) for p in params]

    def masters_of(self, params: Iterable[Tensor]) -> list[Tensor]:
        """Returns the masters of these parameters of the model; other tensors unchanged."""
        self._follow_model()
        return [self._masters.get(p, p) for p in params]

    def _current_pairs(self) -> list[_Pair]:
        """Returns the pairs of flat buffers; rebuilds those with a replaced tensor."""
        self._follow_model()
        before = {id(pair.masters): pair for pair in self._pairs}
        self._pairs = []
        for masters in self.optimizer.flat_buffers():
            pair = before.get(id(masters))
            if pair is None or not pair.weights.is_current():
                pair = _Pair(masters, self.models_of(masters.params))
            self._pairs.append(pair)
            self._note_versions(pair)
        return self._pairs

    def _follow_model(self) -> None:
        """Copies weights of the model that were written since the last step to their masters."""
        for p, master in self._masters.items():
            data, version = self._seen[p]
            if p.data is not data or version_of(p) != version:
                check_half(p, self.dtype)
                raw_of(master)[...] = raw_of(p)
            if p.requires_grad != master.requires_grad:
                master.requires_grad_(p.requires_grad)

    def _note_versions(self, pair: _Pair) -> None:
        for p in pair.weights.params:
            self._seen[p] = p.data, version_of(p)

    def collect_grads(self, found_inf: RawArray | None = None) -> None:
        """Casts the model's gradients into the float32 vectors; they stay multiplied by the scale.

        Args:
            found_inf: an array of one float32, set to 1 if one of them is inf or NaN.
        """
        for pair in self._current_pairs():
            with on(pair.device):
                pair.collect_grads(found_inf)
        self.is_collected = True

    def hold_grads(self) -> None:
        """Adds the model's gradients to those held in float32, and resets them: between two micro-batches.

        In half precision small addends are lost: 2048 + 1 = 2048 in float16.
        """
        for pair in self._current_pairs():
            with on(pair.device), np.errstate(all="ignore"):
                pair.hold_grads(self._held)

    def release_grads(self) -> None:
        """Returns the held gradients to the model, rounded once: before a window's last micro-batch."""
        if self._held:
            for pair in self._current_pairs():
                with on(pair.device), np.errstate(all="ignore"):
                    pair.release_grads(self._held)
        self._held.clear()

    def step(self, closure: None = None) -> None:
        """Updates the masters by the model's gradients, and rounds them into the model."""
        if closure is not None:
            raise RuntimeError("step(): with mixed precision a closure can't be used")
        if not self.is_collected:
            self.collect_grads()
        self.is_collected = False
        optimizer = self.optimizer
        optimizer.grad_scale, optimizer.found_inf = self.grad_scale, self.found_inf
        try:
            optimizer.step()
        finally:
            optimizer.grad_scale = optimizer.found_inf = self.grad_scale = None
        self._round_into_model()

    def _round_into_model(self) -> None:
        for pair in self._pairs:
            with on(pair.device):
                pair.round_into_model()
            self._note_versions(pair)

    def divide_grads(self) -> None:
        """Divides the float32 gradients by `grad_scale` now, rather than in the pass that updates."""
        if self.grad_scale is None:
            return
        for pair in self._pairs:
            with on(pair.device), np.errstate(all="ignore"):
                pair.masters.grad /= raw_of(self.grad_scale)
        self.grad_scale = None

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """Clips the collected gradients in the next step; returns their unscaled norm (see `Optimizer`)."""
        self.optimizer.grad_scale = self.grad_scale
        return self.optimizer.clip_grad_norm(max_norm, norm_type, error_if_nonfinite)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Resets the gradients of the model and of the masters."""
        self.is_collected = False
        self._held.clear()
        self.optimizer.zero_grad(True)
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the optimizer; the float32 weights are in `masters()`."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a `state_dict()`."""
        self.optimizer.load_state_dict(state_dict)
        self._current_pairs()

    def masters(self) -> list[Tensor]:
        """Returns the float32 weights, in the order of the groups: a checkpoint needs them, too."""
        self._follow_model()
        return [p.detach() for group in self.param_groups for p in group["params"]]

    def load_masters(self, values: list[Tensor]) -> None:
        """Loads `masters()` and copies them, rounded, to the model.

        Raises:
            ValueError: another number of weights, or other shapes.
        """
        params = [p for group in self.param_groups for p in group["params"]]
        ours, theirs = [tuple(p.shape) for p in params], [tuple(value.shape) for value in values]
        if ours != theirs:
            raise ValueError(f"load_masters(): expected weights of shapes {ours}, got {theirs}")
        self._current_pairs()  # earlier writes to the model must not overwrite these values later
        for p, value in zip(params, values, strict=True):
            raw_of(p)[...] = raw_of(value, p.device)
        self._round_into_model()


class _Pair:
    """The flat buffers of half-precision weights and of their float32 masters, in one layout.

    Args:
        masters: the float32 side.
        params: the model's parameters, in its order.
    """

    def __init__(self, masters: FlatBuffer, params: list[Tensor]):
        self.masters, self.weights = masters, FlatBuffer(params, masters.spans)
        self.device = masters.device
        with on(self.device):
            self._ignored = np.zeros_like(masters.data, np.float32, shape=1)  # where found_inf isn't wanted

    def collect_grads(self, found_inf: RawArray | None) -> None:
        self.weights.bind_grads()
        has_grad = [p.grad is not None for p in self.weights.params]
        self._cast_grads(has_grad, self._ignored if found_inf is None else found_inf)
        self._set_master_grads(has_grad)

    def hold_grads(self, held: set[Tensor]) -> None:
        masters, weights = self.masters, self.weights
        weights.bind_grads()
        with_grad = {p for p in weights.params if p.grad is not None}
        for section in masters.sections(p in with_grad and p in held for p in weights.params):
            masters.grad[section] += weights.grad[section]
        self._cast_grads([p in with_grad and p not in held for p in weights.params], self._ignored)
        held |= with_grad
        for p in with_grad:
            p.grad = None
        self._set_master_grads([p in held for p in weights.params])

    def release_grads(self, held: set[Tensor]) -> None:
        weights = self.weights
        for p, slot, master in zip(weights.params, weights.grad_slots, self.masters.params, strict=True):
            if p in held:
                total = raw_of(master.grad)
                p.grad = slot.take(total if p.grad is None else total + raw_of(p.grad))

    def _cast_grads(self, selected: Iterable[bool], found_inf: RawArray) -> None:
        for section in self.masters.sections(selected):
            cast_and_check(self.weights.grad[section], self.masters.grad[section], found_inf)

    def _set_master_grads(self, has_grad: list[bool]) -> None:
        masters = self.masters
        for master, slot, has in zip(masters.params, masters.grad_slots, has_grad, strict=True):
            if not has:
                master.grad = None
            elif not slot.holds(master.grad):
                master.grad = slot.view()

    def round_into_model(self) -> None:
        cast_and_check(self.masters.data, self.weights.data, self._ignored)
        self.weights.increment_versions()
