"""Anomalies: which op made the first NaN, on the way forward or on the way back?"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import is_raw
from .grad_mode import _state

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class detect_anomaly:  # noqa: N801 - PyTorch's name
    """Look for NaNs while the graph is made and walked: `with detect_anomaly(): …`.

    An op whose result has a NaN although its inputs have none warns, with its name and where it was called. A
    backward pass ends with an error at the first op that gives a NaN gradient. It costs time: for debugging.

    Args:
        check_nan: look for NaN gradients; without it only the places of the calls are remembered.
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = bool(check_nan)

    def __enter__(self) -> None:
        self.before, _state.anomaly = _state.anomaly, "nan" if self.check_nan else "trace"

    def __exit__(self, *exception: Any) -> None:
        _state.anomaly = self.before


class set_detect_anomaly(detect_anomaly):  # noqa: N801
    """`detect_anomaly` from now on as a plain call, or inside as a context.

    Args:
        mode: True to look.
        check_nan: see `detect_anomaly`.
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = _state.anomaly
        _state.anomaly = ("nan" if check_nan else "trace") if mode else False

    def __enter__(self) -> None:
        pass


def is_anomaly_enabled() -> bool:
    """Whether anomalies are looked for, in this thread."""
    return bool(_state.anomaly)


def watch(name: str, node: Any, args: Sequence[Any], outs: Sequence[Any]) -> None:
    """Remember where an op was called, and warn if it is the one that made a NaN."""
    where = _place()
    if node is not None:
        node.trace = where
    inputs = [a.data._array for a in args if hasattr(a, "_version")]
    results = [out.data._array for out in outs]
    if _state.anomaly == "nan" and any(map(_has_nan, results)) and not any(map(_has_nan, inputs)):
        warnings.warn(
            f"{name}() made a NaN of inputs without one; it was called here:\n{where}", stacklevel=4
        )


def check_gradients(node: Any, parts: Sequence[Any]) -> None:
    """Raise if a gradient that this node gives to an input has a NaN.

    Raises:
        RuntimeError: it has; the message names the op, the input, and the call of the forward pass.
    """
    if _state.anomaly != "nan":
        return
    for i, part in enumerate(parts):
        if part is not None and _has_nan(part if is_raw(part) else getattr(part, "data", part)):
            place = node.trace or "made before anomalies were looked for"
            raise RuntimeError(
                f"Function '{node.name}' returned nan values in its {i}th output; its forward call:\n{place}"
            )


def _has_nan(x: Any) -> bool:
    raw = getattr(x, "_array", x)
    return getattr(raw, "dtype", np.dtype(bool)).kind in "fcV" and bool(np.isnan(raw).any())


def _place() -> str:
    """The user's lines of the stack, without ours."""
    frames = traceback.extract_stack()
    theirs = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    return "".join(traceback.format_list((theirs or frames)[-4:])).rstrip()
