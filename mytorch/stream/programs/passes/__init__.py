"""Passes: each makes a better program of a program that computes the same."""

from ..program import Program
from .common_subexpressions import merge_common_subexpressions
from .dead_code import remove_dead_code
from .functionalize import functionalize
from .fusion import fuse

__all__ = ["functionalize", "fuse", "merge_common_subexpressions", "optimized", "remove_dead_code"]


def optimized(program: Program) -> Program:
    """Returns the program after all passes."""
    for step in (functionalize, merge_common_subexpressions, remove_dead_code, fuse, remove_dead_code):
        program = step(program)
    return program
