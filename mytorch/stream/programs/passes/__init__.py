"""Passes: each makes a better program of a program that computes the same."""

from ..program import Program
from .common_subexpressions import merge_common_subexpressions
from .constants import fold_constants
from .dead_code import remove_dead_code
from .functionalize import functionalize
from .fusion import fuse
from .gradients import sink_gradients
from .products import transpose_products
from .slices import simplify_slices
from .views import fold_views

__all__ = [
    "fold_constants", "fold_views", "functionalize", "fuse", "merge_common_subexpressions", "optimized",
    "remove_dead_code", "simplify_slices", "sink_gradients", "transpose_products",
]  # fmt: skip
PASSES = (
    fold_views, functionalize, simplify_slices, fold_constants, merge_common_subexpressions, remove_dead_code,
    transpose_products, sink_gradients, fuse, remove_dead_code,
)  # fmt: skip


def optimized(program: Program) -> Program:
    """Returns the program after all passes."""
    for step in PASSES:
        program = step(program)
    return program
