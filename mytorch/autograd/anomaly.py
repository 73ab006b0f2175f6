"""Anomaly detection: names the op that made the first NaN, in the forward or in the backward pass."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Sequence

import numpy as np

from ..backends.device import has_values, is_raw
from ..core.grad_mode import _state
from ..core.graph import Node
from ..core.tensor import raw_of

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class Detector:
    """Checks results and gradients while it is set in this thread; `core` calls it and knows no more of it.

    Args:
        check_nan: look for NaNs; without it, only the call sites of the ops are recorded.
    """

    def __init__(self, check_nan: bool):
        self.check_nan = check_nan

    def check_forward(self, name: str, node: Node | None, args: Sequence, outs: Sequence[object]) -> None:
        """Records where an op was called, and warns if it made a NaN of inputs without one."""
        call_site = _call_site()
        if node is not None:
            node.trace = call_site
        if not self.check_nan or not any(_has_nan(raw_of(out)) for out in outs):
            return
        if not any(_has_nan(raw_of(a)) for a in args if hasattr(a, "_version")):
            warnings.warn(
                f"{name}() made a NaN of inputs without one; it was called here:\n{call_site}", stacklevel=4
            )

    def check_gradients(self, node: Node, gradients: Sequence[object]) -> None:
        """Checks the gradients that a node's vjp returned.

        Raises:
            RuntimeError: one has a NaN; the message names the op, the input and the call of the forward pass.
        """
        if not self.check_nan:
            return
        for i, grad in enumerate(gradients):
            if grad is not None and _has_nan(grad if is_raw(grad) else getattr(grad, "data", grad)):
                call_site = node.trace or "made before anomaly detection was enabled"
                raise RuntimeError(
                    f"Function '{node.name}' returned nan values in its {i}th output; its forward call:\n"
                    f"{call_site}"
                )


class detect_anomaly:  # noqa: N801 - PyTorch's name
    """Looks for NaNs in the forward and the backward pass inside `with detect_anomaly(): …`.

    An op whose result has a NaN although its inputs have none warns, with its name and call site. A backward
    pass raises at the first op that returns a NaN gradient. It costs time: for debugging.

    Args:
        check_nan: look for NaNs; without it, only the call sites of the ops are recorded.
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = bool(check_nan)

    def __enter__(self) -> None:
        self.before, _state.anomaly = _state.anomaly, Detector(self.check_nan)

    def __exit__(self, *exception: object) -> None:
        _state.anomaly = self.before


class set_detect_anomaly(detect_anomaly):  # noqa: N801
    """Enables or disables anomaly detection: as a plain call from then on, as a context inside it.

    Args:
        mode: True enables it.
        check_nan: see `detect_anomaly`.
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = _state.anomaly
        _state.anomaly = Detector(bool(check_nan)) if mode else None

    def __enter__(self) -> None:
        pass


def is_anomaly_enabled() -> bool:
    """Returns whether anomaly detection is enabled in this thread."""
    return _state.anomaly is not None


def _has_nan(x: object) -> bool:
    raw = getattr(x, "_array", x)
    if getattr(raw, "dtype", np.dtype(bool)).kind not in "fcV" or not has_values(raw):
        return False
    return bool(np.isnan(raw).any())


def _call_site() -> str:
    """The user's lines of the stack, without those of the package."""
    frames = traceback.extract_stack()
    theirs = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    return "".join(traceback.format_list((theirs or frames)[-4:])).rstrip()
