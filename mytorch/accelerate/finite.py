"""Explains a training that diverged."""

from __future__ import annotations

import math

from ..nn import Module


def check_finite(model: Module, loss: float, checks_loss: bool, checks_weights: bool) -> None:
    """Raises FloatingPointError if the loss, or a weight of the model, is inf or NaN; it names the weight.

    Args:
        loss: of all processes, so that all raise alike.
        checks_loss: False where it may be inf or NaN, as with fp16, which skips such a step.
        checks_weights: as before a checkpoint; else they are only read to explain the loss.
    """
    diverged = checks_loss and not math.isfinite(loss)
    if not (diverged or checks_weights):
        return
    weights = dict(model.named_parameters())
    broken = [name for name, weight in weights.items() if not weight.isfinite().all().item()]
    found = [f"the training loss is {loss}"] if diverged else []
    if broken:
        found.append(f"{len(broken)} of {len(weights)} weights are inf or NaN, the first is {broken[0]}")
    if found:
        raise FloatingPointError(", and ".join(found))
