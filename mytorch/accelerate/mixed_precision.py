"""
Mixed precision: a half-precision model whose weights are updated in float32.

    float16   weights -> forward, backward -> gradients
                 ^                                |
              cast                              cast, and look for inf and NaN
                 |                                v
    float32   weights <------ update <------ gradients / scale

A float16 weight of 1 can't change by less than 0.0005, one of bfloat16 by less than 0.004, and most updates
are smaller. So the optimizer keeps float32 copies, and the model gets them rounded after each step. Both
sides lie in flat vectors of the same layout: each of the two casts is one pass over memory. bfloat16 reaches
as far as float32: there is no scale, and nobody looks for inf and NaN.

Source: Micikevicius et al., "Mixed Precision Training", 2018, https://arxiv.org/abs/1710.03740, section 3.1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..backends.device import device, on
from ..core.array import Array, wrap
from ..core.tensor import Tensor, increment_version
from ..nn.fused_ops.cast import cast_and_check
from ..optim.flat import Flat, _zeros
from ..optim.optimizer import Optimizer
from ..optim.param_groups import params_of
from ..optim.slot import Slot
from .precision import check_half


class MixedPrecisionOptimizer:
    """An optimizer over float32 copies of half-precision parameters.

    Made from an optimizer of the model's parameters, which from then on holds the copies; it keeps its
    options, its state and its schedules. Whatever writes the model's weights between two steps (loading a
    state_dict, say) writes the copies with the next step.

    Args:
        optimizer: any Optimizer of float16 parameters, or of bfloat16 ones.
        values: the float32 values of parameters, where they are still known (see `half_parameters`); those
            that are used are taken out.

    Attributes:
        optimizer: the one that was given.
        dtype: of the model's parameters.
        is_collected: the gradients of the next step are in float32 already.
        grad_scale, found_inf: what a `GradScaler` sets: see `Optimizer.step`.

    Raises:
        ValueError: a parameter is of another dtype, or becomes so; an optimizer that doesn't lay its
            parameters out in flat vectors.
    """

    def __init__(self, optimizer: Optimizer, values: dict[Tensor, Array] | None = None):
        self.optimizer = optimizer
        self.dtype: np.dtype | None = None
        self.grad_scale: Any = None
        self.found_inf: Any = None
        self._values = {} if values is None else values
        self._masters: dict[Tensor, Tensor] = {}
        self._seen: dict[Tensor, tuple[Array, int]] = {}  # what we wrote into the model, and its version
        self._halves: list[_Half] = []
        self._held: set[Tensor] = set()  # those whose gradients of this window wait in float32
        self.is_collected = False
        state, optimizer.state = optimizer.state, type(optimizer.state)(dict)
        for group in optimizer.param_groups:
            group["params"] = [self._master(p) for p in group["params"]]
        for p, entry in state.items():
            optimizer.state[self._masters.get(p, p)] = entry
        if hasattr(optimizer, "exchange_parameters"):  # it has made something of them already
            optimizer.exchange_parameters()
        if not self._lay_out():
            raise ValueError(f"mixed precision needs flat parameters, which {type(optimizer).__name__} lacks")

    def _master(self, p: Tensor) -> Tensor:
        if p not in self._masters:
            check_half(p, self.dtype)
            self.dtype = p.dtype
            value = self._values.pop(p, None)
            master = Tensor((p.data if value is None else value).to("float32"))
            self._masters[p] = master.requires_grad_(p.requires_grad)
            self._seen[p] = p.data, p._version.count
        return self._masters[p]

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)
    defaults = property(lambda self: self.optimizer.defaults)
    _step_supports_amp_scaling = property(lambda self: self.optimizer._step_supports_amp_scaling)

    @property
    def device(self) -> device:
        return next(iter(self._masters.values())).device

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train more parameters of the model, with options of their own: see `Optimizer.add_param_group`."""
        group = {**param_group, **params_of(param_group["params"])}
        for p in group["params"]:
            check_half(p, self.dtype)
        group["params"] = [self._master(p) for p in group["params"]]
        self.optimizer.add_param_group(group)
        self._lay_out()

    def parameters(self) -> list[Tensor]:
        """The model's parameters, in the order of the groups."""
        return self.models_of([p for group in self.param_groups for p in group["params"]])

    def models_of(self, params: Iterable[Tensor]) -> list[Tensor]:
        """The model's parameters of which these are the float32 copies; others as they are."""
        models = {master: p for p, master in self._masters.items()}
        return [models.get(p, p) for p in params]

    def masters_of(self, params: Iterable[Tensor]) -> list[Tensor]:
        """The float32 copies of these parameters of the model; others as they are."""
        self._follow_model()
        return [self._masters.get(p, p) for p in params]

    def _lay_out(self) -> list[_Half]:
        """The half-precision side of each flat vector, made again where something was exchanged."""
        self._follow_model()
        before = {id(half.flat): half for half in self._halves}
        self._halves = []
        for _, flat in self.optimizer._lay_out():
            half = before.get(id(flat))
            if half is None or not half.is_current():
                half = _Half(flat, self.models_of(flat.params))
            self._halves.append(half)
            self._note(half)
        return self._halves

    def _follow_model(self) -> None:
        """Take over what somebody else wrote into the model since the last step."""
        for p, master in self._masters.items():
            data, version = self._seen[p]
            if p.data is not data or p._version.count != version:
                check_half(p, self.dtype)
                master.data._array[...] = p.data._array
            if p.requires_grad != master.requires_grad:
                master.requires_grad_(p.requires_grad)

    def _note(self, half: _Half) -> None:
        for p in half.params:
            self._seen[p] = p.data, p._version.count

    def collect_grads(self, found_inf: Any = None) -> None:
        """Cast the model's gradients into the float32 vectors; they stay multiplied by the scale.

        Args:
            found_inf: an array of one float32, set to 1 if one of them is inf or NaN.
        """
        for half in self._lay_out():
            with on(half.flat.device):
                half.collect_grads(half.flag if found_inf is None else found_inf)
        self.is_collected = True

    def hold_grads(self) -> None:
        """Add the model's gradients to those held in float32, and forget them: between two micro-batches.

        Half precision would lose what is small beside the sum: 2048 + 1 = 2048.
        """
        for half in self._lay_out():
            with on(half.flat.device), np.errstate(all="ignore"):
                half.hold_grads(self._held)

    def release_grads(self) -> None:
        """Give the held gradients back to the model, rounded once: before a window's last micro-batch."""
        if self._held:
            for half in self._lay_out():
                with on(half.flat.device), np.errstate(all="ignore"):
                    half.release_grads(self._held)
        self._held.clear()

    def step(self, closure: Any = None) -> None:
        """Update the float32 copies by the model's gradients, and round them into the model."""
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
        self._publish()

    def _publish(self) -> None:
        for half in self._halves:
            with on(half.flat.device):
                half.publish()
            self._note(half)

    def divide_grads(self) -> None:
        """Divide the float32 gradients by `grad_scale` now, rather than in the pass that updates."""
        if self.grad_scale is None:
            return
        for half in self._halves:
            with on(half.flat.device), np.errstate(all="ignore"):
                half.flat.grad /= self.grad_scale.data._array
        self.grad_scale = None

    def clip_grad_norm(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> Tensor:
        """`Optimizer.clip_grad_norm` of the collected gradients: for the next step, and the true norm."""
        self.optimizer.grad_scale = self.grad_scale
        return self.optimizer.clip_grad_norm(max_norm, norm_type, error_if_nonfinite)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, the model's and the copies'."""
        self.is_collected = False
        self._held.clear()
        self.optimizer.zero_grad(True)
        for p in self.parameters():
            if set_to_none or p._grad is None:
                p._grad = None
            else:
                p._grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """That of the optimizer; the float32 weights are in `masters()`."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)
        self._lay_out()

    def masters(self) -> list[Tensor]:
        """The float32 weights, in the order of the groups: what a checkpoint needs beside the model's."""
        self._follow_model()
        return [p.detach() for group in self.param_groups for p in group["params"]]

    def load_masters(self, values: list[Tensor]) -> None:
        """Go on from `masters()`; the model gets them rounded.

        Raises:
            ValueError: another number of weights, or other shapes.
        """
        params = [p for group in self.param_groups for p in group["params"]]
        ours, theirs = [tuple(p.shape) for p in params], [tuple(value.shape) for value in values]
        if ours != theirs:
            raise ValueError(f"load_masters(): expected weights of shapes {ours}, got {theirs}")
        self._lay_out()  # what was written into the model before isn't to come after these
        for p, value in zip(params, values, strict=True):
            p.data._array[...] = value.to(p.device).data._array
        self._publish()


class _Half:
    """The half-precision parameters that belong to a flat vector of float32 ones, in the same layout.

    Args:
        flat: the float32 side.
        params: the model's parameters, in its order.
    """

    def __init__(self, flat: Flat, params: list[Tensor]):
        self.flat, self.params, dtype = flat, params, params[0].dtype
        with on(flat.device):
            self.data, self.grad = (_zeros(flat.size, dtype, flat.device) for _ in range(2))
        self._views = [wrap(view) for view in flat._views(self.data)]
        places = zip(flat._views(self.grad), flat.spans, strict=True)
        self._slots = [Slot(view, self.grad, span) for view, span in places]
        for p, view, slot in zip(params, self._views, self._slots, strict=True):
            view._array[...] = p.data._array
            p.data, p.grad_slot = view, slot
            if p._grad is not None:
                p._grad = slot.take(p._grad._array)
        self.flag = np.zeros_like(self.data, np.float32, shape=1)  # where nobody wants to know of inf

    def is_current(self) -> bool:
        """Do the model's parameters still lie here?"""
        parts = zip(self.params, self._views, self._slots, strict=True)
        return all([p.data is view and p.grad_slot is slot for p, view, slot in parts])

    def collect_grads(self, found_inf: Any) -> None:
        slots = self.flat._slots
        for p, slot, master, wide in zip(self.params, self._slots, self.flat.params, slots, strict=True):
            if p._grad is None:
                master._grad = None
                continue
            if not slot.holds(p._grad):
                p._grad = slot.take(p._grad._array)
            if not wide.holds(master._grad):
                master._grad = wide.take(wide.raw)
        for piece in self._pieces([p._grad is not None for p in self.params]):
            cast_and_check(self.grad[piece], self.flat.grad[piece], found_inf)

    def hold_grads(self, held: set[Tensor]) -> None:
        for p, slot in zip(self.params, self._slots, strict=True):
            if p._grad is not None and not slot.holds(p._grad):
                p._grad = slot.take(p._grad._array)
        for piece in self._pieces([p._grad is not None and p in held for p in self.params]):
            self.flat.grad[piece] += self.grad[piece]
        for piece in self._pieces([p._grad is not None and p not in held for p in self.params]):
            cast_and_check(self.grad[piece], self.flat.grad[piece], self.flag)
        for p, master, wide in zip(self.params, self.flat.params, self.flat._slots, strict=True):
            if p._grad is not None:
                held.add(p)
                p._grad, master._grad = None, wide.take(wide.raw)

    def release_grads(self, held: set[Tensor]) -> None:
        for p, slot, master in zip(self.params, self._slots, self.flat.params, strict=True):
            if p in held:
                total = master._grad._array if p._grad is None else master._grad._array + p._grad._array
                p._grad = slot.take(total)

    def _pieces(self, wanted: list[bool]) -> Iterator[slice]:
        """The longest ranges of parameters that are wanted."""
        start = stop = 0
        for is_wanted, (first, last) in zip(wanted, self.flat.spans, strict=True):
            if not is_wanted:
                continue
            if first != stop:
                if stop > start:
                    yield slice(start, stop)
                start = first
            stop = last
        if stop > start:
            yield slice(start, stop)

    def publish(self) -> None:
        """Round the float32 weights into the model."""
        cast_and_check(self.flat.data, self.data, self.flag)
        for p in self.params:
            increment_version(p)  # a graph that needs the old values must notice
