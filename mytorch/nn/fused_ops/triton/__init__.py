"""
Kernels for the GPU in Triton, without PyTorch. `launch` launches them and `tuned` chooses their block sizes.

A file holds one kernel, or a family, and registers it with its composite; begin with `softmax.py`.
"""

from __future__ import annotations

import importlib.util
import sys


def why_not() -> str:
    """Returns why Triton's kernels can't run here, and what to do about it; "" if they can.

    The first call on a machine with a GPU takes seconds: it builds the launcher, which is kept on disk.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'mytorch[triton]'"
    launch = sys.modules.get(f"{__name__}.launch")
    if launch is not None and not isinstance(launch.mode(), launch.Run):
        return ""
    from . import gpu

    return gpu.why_not()


def available() -> bool:
    """Returns whether Triton's kernels can run here."""
    return not why_not()
