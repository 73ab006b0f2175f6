"""Training in float16 without ever waiting for the GPU: float32 masters, and a loss scale that lives there.

    trainer = HalfTrainer(model, groups)          # the model's parameters are float16 from now on
    loss = trainer.forward_backward(x, y)         # may be captured in a CUDA graph
    trainer.update()

    weights, float16   | … | -> forward, backward of scale * loss -> | … | gradients, float16
            ^                                                           |
            | cast                                                      | cast; is there an inf or a NaN?
    masters, float32   | … | <- AdamW, of gradients / scale          <- | … | gradients, float32

A group is one long vector in each of the four places, so a cast is one pass, and AdamW sees one parameter.

Source: Micikevicius et al., "Mixed Precision Training", 2018, sections 3.1 and 3.2.
https://arxiv.org/abs/1710.03740
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mytorch
from mytorch import Tensor, nn, optim
from mytorch.backends.device import array_module, device, on
from mytorch.core.tensor import from_raw
from mytorch.nn import functional as F
from mytorch.nn.fused_ops.cast import cast_and_check
from mytorch.optim import FlatBuffer


class LossScale:
    """The factor of the loss that keeps small gradients above what float16 rounds to 0.

        scale <- backoff_factor scale      after a step with an inf or a NaN, which is skipped
        scale <- growth_factor scale       after growth_interval steps in a row without, unless that is inf

    The rules and the defaults are those of `torch.amp.GradScaler`.

    Attributes:
        scale, found_inf, good_steps: arrays of one float32 on the device.
    """

    def __init__(
        self, where: device, init_scale: float = 65536.0, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000,
    ):  # fmt: skip
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval = growth_interval
        with on(where):
            make = array_module(where)
            self.scale = make.full(1, init_scale, np.float32)
            self.found_inf, self.good_steps, self.skipped = (make.zeros(1, np.float32) for _ in range(3))

    def update(self) -> None:
        """Apply the rules after a step, by what is in `found_inf`; count the skipped ones in `skipped`."""
        bad, good = self.found_inf != 0, self.good_steps + 1
        with np.errstate(over="ignore"):
            larger = self.scale * self.growth_factor
        full = good == self.growth_interval
        scale = np.where(full & np.isfinite(larger), larger, self.scale)
        self.scale[...] = np.where(bad, self.scale * self.backoff_factor, scale)
        self.good_steps[...] = np.where(bad | full, 0, good)
        self.skipped += bad


class Half:
    """The float16 parameters of a group, end to end, and their float32 master: a single vector.

    Attributes:
        flat: their weights and gradients.
        master: what the optimizer gets.
    """

    def __init__(self, params: list[Tensor], wide: list[Any]):
        self.flat = FlatBuffer(params)
        with on(self.flat.device):
            master = array_module(self.flat.device).zeros(self.flat.size, np.float32)
            for (start, _), raw in zip(self.flat.spans, wide, strict=True):
                master[start : start + raw.size] = raw.reshape(-1)
            self.master = from_raw(master).requires_grad_()
            self.master.grad = mytorch.zeros_like(self.master)  # so the optimizer makes a place for it

    def widen_gradients(self, found_inf: Any) -> None:
        """Cast the gradients to float32, and note whether one of them is inf or NaN."""
        self.flat.collect_grads()
        cast_and_check(self.flat.grad, self.master.grad._array, found_inf)

    def narrow_weights(self) -> None:
        """Cast the masters to float16."""
        self.flat.data[...] = self.master.data._array


class HalfTrainer:
    """AdamW on float32 masters for a language model whose parameters become float16.

    Args:
        model: `model(tokens)` gives the logits; its parameters are float32 and on one device.
        groups: as for an optimizer, `[{"params": [...], option: value}]`, with all parameters of the model.
        scale: by default a new `LossScale`.
        max_norm: of all gradients together; None doesn't clip.
        options: of AdamW.

    Raises:
        TypeError: a parameter isn't float32.
    """

    def __init__(
        self, model: nn.Module, groups: list[dict], scale: LossScale | None = None,
        max_norm: float | None = 1.0, **options: Any,
    ):  # fmt: skip
        wrong = [name for name, p in model.named_parameters() if p.dtype != np.float32]
        if wrong:
            raise TypeError(f"the parameters must be float32, but not so are {', '.join(wrong)}")
        wide = [[p.data._array for p in group["params"]] for group in groups]
        self.model = model.half()
        self.groups = [Half(group["params"], raws) for group, raws in zip(groups, wide, strict=True)]
        self.loss_scale = scale or LossScale(self.groups[0].flat.device)
        self.max_norm = max_norm
        masters = [{**g, "params": [h.master]} for g, h in zip(groups, self.groups, strict=True)]
        self.optimizer = optim.AdamW(masters, **options)

    def forward_backward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy, float32; scaled gradients are in the masters' `.grad` afterwards.

        A loss in float16 would have 3 digits, and 65536 times it would be inf. So the losses of the tokens
        are averaged in float32, and what goes back to each is scale / count.

        Args:
            tokens, targets: int64 (B, T) on the model's device.
        """
        self.model.zero_grad()
        logits = self.model(tokens)
        losses = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), reduction="none")
        loss = losses.float().mean()
        (loss * from_raw(self.loss_scale.scale.reshape(()))).backward()
        self.loss_scale.found_inf[...] = 0
        for half in self.groups:
            half.widen_gradients(self.loss_scale.found_inf)
        return loss.detach()

    def update(self) -> None:
        """A step of AdamW, which the GPU skips if a gradient is inf or NaN, and of the loss scale."""
        optimizer, scale = self.optimizer, self.loss_scale
        optimizer.grad_scale, optimizer.found_inf = from_raw(scale.scale), from_raw(scale.found_inf)
        if self.max_norm is not None:
            optimizer.clip_grad_norm(self.max_norm)
        optimizer.step()
        for half in self.groups:
            half.narrow_weights()
        scale.update()
