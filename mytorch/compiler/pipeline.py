"""What compiling does to a function, stage by stage: the order of all that is in this package.

    trace          the function runs once, on arrays without elements: each operation becomes an instruction
    functionalize  what writes to a whole array makes a new value instead
    simplify       views, slices, constants, repetitions, and what nothing uses, are removed
    fuse           what treats elements, or rows, alike becomes loops
    plan memory    gradients are computed where `.grad` is, results in memory that is to be overwritten
    generate       kernels are lowered to calls of compiled functions, loops are printed as Numba or Triton,
                   and the program as a Python function that calls these
    guard          what the program depends on was noted beside the trace; each call compares it, and
                   recompiles where it has changed

`Program.optimized` is the stages from functionalize to fuse. A program plans memory and generates when it is
to run for the first time. Only what `compile` has made guards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .codegen.function_source import FunctionPrinter
from .codegen.lowering import lowered
from .guards.reachable import Reachable
from .memory.plan import planned
from .passes import (
    check_mode,
    declare_strides,
    fold_constants,
    fold_views,
    functionalize,
    fuse,
    merge_common_subexpressions,
    remove_dead_code,
    restore_strides,
    simplify_slices,
    sink_gradients,
    split_sums,
    transpose_products,
)
from .program.program import Program
from .tracing.capture import traced

STAGES: dict[str, tuple[Callable, ...]] = {
    "trace": (traced,),
    "functionalize": (fold_views, functionalize),
    "simplify": (
        simplify_slices, fold_constants, merge_common_subexpressions, remove_dead_code, transpose_products,
        declare_strides,
    ),
    "fuse": (split_sums, sink_gradients, fuse, remove_dead_code),
    "plan memory": (planned,),
    "generate": (lowered, FunctionPrinter.text),
    "guard": (Reachable,),
}


def optimized(program: Program, mode: str | None = None) -> Program:
    """Returns a program that computes the same in fewer sweeps over memory: the program after all passes.

    Args:
        mode: "max-autotune" measures several strategies for each loop before the program runs for the
            first time, and keeps on disk which was the fastest. Others of PyTorch have no effect.

    Raises:
        RuntimeError: an unknown mode.
    """
    check_mode(mode)
    result = program
    for run_pass in (*STAGES["functionalize"], *STAGES["simplify"]):
        result = run_pass(result)
    result = restore_strides(result, program)
    for run_pass in STAGES["fuse"]:
        result = run_pass(result)
    return replace(result, is_tuned=str(mode).startswith("max-autotune"))


Program.optimized = optimized
