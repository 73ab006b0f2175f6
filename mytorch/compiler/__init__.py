"""Functions and training steps as programs: traced, transformed, compiled, saved, and run.

PyTorch's `compiler` (`is_compiling`, `disable`, `reset`), and programs as data, which PyTorch doesn't have:
`capture`, `Program`, `load`, `thaw`.
"""

# Each of these modules attaches to Program what it does: draw, optimized, save, memory, chunked, stream, …
from . import drawing, pipeline  # noqa: F401
from .backend import list_backends
from .compile import compile, explain, reset
from .controls import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    disable,
    is_compiling,
    is_dynamo_compiling,
)
from .files import saving  # noqa: F401
from .files.loading import load, thaw
from .memory import peak  # noqa: F401
from .parts import chunking, streaming  # noqa: F401
from .placing import placed  # noqa: F401
from .program.instruction import Instruction, Value
from .program.program import Program
from .running import execution, run  # noqa: F401
from .symbolic_sizes import mark_dynamic, mark_static
from .tracing.capture import capture

__all__ = [
    "Instruction", "Program", "Value", "allow_in_graph", "assume_constant_result", "capture", "compile",
    "cudagraph_mark_step_begin", "disable", "explain", "is_compiling", "is_dynamo_compiling", "list_backends",
    "load", "mark_dynamic", "mark_static", "reset", "thaw",
]
