"""Explains a training that diverged."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ..backends.device import CPU, move, on
from ..backends.kinds import cupy
from ..core.tensor import Tensor, raw_of
from ..nn import Module


def check_finite(models: list[Module], loss: float, checks_loss: bool, checks_weights: bool) -> None:
    """Raises FloatingPointError if the loss, or a weight of a model, is inf or NaN; it names the weight.

    Args:
        loss: of all processes, so that all raise alike.
        checks_loss: False where it may be inf or NaN, as with fp16, which skips such a step.
        checks_weights: as before a checkpoint; else they are only read to explain the loss.
    """
    diverged = checks_loss and not math.isfinite(loss)
    if not (diverged or checks_weights):
        return
    named = [pair for model in models for pair in model.named_parameters()]
    found = zip(named, _are_finite([weight for _, weight in named]), strict=True)
    broken = [name for (name, _), is_finite in found if not is_finite]
    reasons = [f"the training loss is {loss}"] if diverged else []
    if broken:
        reasons.append(f"{len(broken)} of {len(named)} weights are inf or NaN, the first is {broken[0]}")
    if reasons:
        raise FloatingPointError(", and ".join(reasons))


def _are_finite(weights: list[Tensor]) -> list[bool]:
    """Returns whether all elements of each weight are finite.

    On a GPU one kernel reads them all, whatever their shapes: CuPy would compile one for each shape.
    """
    result = [w.device.type == "cuda" or bool(w.isfinite().all()) for w in weights]
    for target in {w.device for w in weights if w.device.type == "cuda"}:
        with on(target):
            found = cupy().zeros(len(weights), bool)
            for i, w in enumerate(weights):
                if w.device is target:
                    _kernel()(raw_of(w), i, found)
        result = [a and not b for a, b in zip(result, move(found, CPU).tolist(), strict=True)]
    return result


@functools.cache
def _kernel() -> Callable:
    return cupy().ElementwiseKernel(
        "T x, int64 number", "raw bool found", "if (!isfinite(x)) found[number] = true;",
        "mytorch_note_nonfinite", no_return=True,
    )
