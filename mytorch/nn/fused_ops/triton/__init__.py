"""
Kernels for the GPU in Triton, without PyTorch. `launch` starts them and `tuned` chooses their block sizes.

A file holds one kernel, or a family, and registers it on its composite; begin with `softmax.py`.
"""

from __future__ import annotations

import importlib.util
import os
import sys


def why_not() -> str:
    """Why Triton's kernels can't run here, and what to do about it; "" if they can.

    The first call where there is a GPU takes seconds: it builds the launcher, which stays on disk.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'mytorch[triton]'"
    if "TRITON_INTERPRET" in os.environ or f"{__name__}.launch" in sys.modules:  # a mode other than "run"?
        from . import launch

        if launch.mode().name != "run":
            return ""
    from . import gpu

    return gpu.why_not()


def available() -> bool:
    """Can Triton's kernels run here?"""
    return not why_not()
