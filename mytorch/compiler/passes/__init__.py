"""Passes: each makes a better program of a program that computes the same."""

from dataclasses import replace

from ..program.program import Program
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
    "optimized", "remove_dead_code", "restore_strides", "simplify_slices", "sink_gradients", "split_sums",
    "transpose_products",
]  # fmt: skip
SIMPLIFYING = (
    fold_views, functionalize, simplify_slices, fold_constants, merge_common_subexpressions, remove_dead_code,
    transpose_products, declare_strides,
)  # fmt: skip
COMBINING = (split_sums, sink_gradients, fuse, remove_dead_code)


MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # PyTorch's


def check_mode(mode: str | None) -> None:
    """Raises RuntimeError if PyTorch has no such mode."""
    if mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(map(str, MODES))}")


def optimized(program: Program, mode: str | None = None) -> Program:
    """Returns a program that computes the same in fewer passes over memory: the program after all passes.

    Args:
        mode: "max-autotune" measures several strategies for each loop before the program runs for the
            first time, and keeps on disk which was the fastest. Others of PyTorch have no effect.

    Raises:
        RuntimeError: an unknown mode.
    """
    check_mode(mode)
    given = program
    for step in SIMPLIFYING:
        program = step(program)
    program = restore_strides(program, given)
    for step in COMBINING:
        program = step(program)
    return replace(program, is_tuned=str(mode).startswith("max-autotune"))


Program.optimized = optimized
