"""Passes: each makes a better program of a program that computes the same."""

from ..program import Program
from .common_subexpressions import merge_common_subexpressions
from .dead_code import remove_dead_code
from .functionalize import functionalize
from .fusion import fuse
from .slices import simplify_slices

__all__ = [
    "functionalize", "fuse", "merge_common_subexpressions", "optimized", "remove_dead_code",
    "simplify_slices",
]  # fmt: skip


def optimized(program: Program) -> Program:
    """Returns the program after all passes."""
    before = (functionalize, simplify_slices, merge_common_subexpressions, remove_dead_code)
    for step in (*before, fuse, remove_dead_code):
        program = step(program)
    return program
