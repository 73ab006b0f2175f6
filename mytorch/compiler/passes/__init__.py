"""Passes: each makes a better program of a program that computes the same; `pipeline` has their order."""

from .common_subexpressions import merge_common_subexpressions
from .constants import fold_constants
from .dead_code import remove_dead_code
from .functionalize import functionalize
from .fusion import fuse
from .gradients import sink_gradients
from .products import transpose_products
from .slices import simplify_slices
from .strides import declare_strides, restore_strides
from .sums import split_sums
from .views import fold_views

__all__ = [
    "declare_strides", "fold_constants", "fold_views", "functionalize", "fuse", "merge_common_subexpressions",
    "remove_dead_code", "restore_strides", "simplify_slices", "sink_gradients", "split_sums",
    "transpose_products",
]
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # PyTorch's


def check_mode(mode: str | None) -> None:
    """Raises RuntimeError if PyTorch has no such mode."""
    if mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(map(str, MODES))}")
