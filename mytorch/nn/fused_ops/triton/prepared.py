"""
Launches of a kind that was launched before.

For each launch Triton binds the arguments, turns their kinds and all options into text and looks that up,
which takes 15 to 160 µs of Python; a step of GPT-2 launches hundreds of kernels. Here a kind is a tuple, and
what Triton compiled for it is launched without asking again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from triton import knobs

if TYPE_CHECKING:
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction


def kind_of(args: Sequence[object], sizes: Sequence[int], array: type) -> tuple[list | None, list]:
    """Returns what the compiler looks at in arguments, and the arguments with addresses for arrays.

    Of an array that is its dtype, and whether it is aligned to 16 bytes; of an integer whether it is 1,
    divisible by 16, or long.

    Args:
        sizes: the positions of integers of which also the next power of two counts.
        array: the class of arrays.

    Returns:
        None in place of the kind if an argument isn't known here.
    """
    kind, values = [], []
    for a in args:
        if type(a) is array:
            kind.append(a.dtype)
            a = a.data.ptr
            kind.append(a & 15 == 0)
        else:
            of_type = _KINDS.get(type(a))
            if of_type is None:
                return None, values
            kind.append(of_type(a))
        values.append(a)
    for place in sizes:
        size = args[place]
        kind.append((size - 1).bit_length() if type(size) is int and size > 0 else size)
    return kind, values


@functools.lru_cache(4096)  # a training step repeats the same sizes
def _kind_of_int(n: int) -> int:
    if n == 1:
        return 1
    bits = n.bit_length() if n >= 0 else (~n).bit_length()
    return (n & 15 == 0) + 2 * ((bits + 32) >> 5)  # signed 32, signed 64, or unsigned 64 bits


@functools.lru_cache(1024)
def _kind_of_tuple(strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(_kind_of_int, strides))


# By type of argument; a type itself where the value doesn't matter to the compiler.
_KINDS: dict[type, Callable] = {
    int: _kind_of_int, tuple: _kind_of_tuple, float: type, bool: type, type(None): type
}


class Prepared(NamedTuple):
    """A compiled kernel, and what its launch needs beside grid, stream and arguments by position.

    Attributes:
        source: the kernel; its id is a part of the kind, and must not be another's one day.
        meta: the compile-time arguments, with the tuned configuration.
        rest: the arguments that follow those by position.
    """

    source: Any
    run: Callable
    function: int
    metadata: Any
    meta: dict[str, object]
    rest: tuple

    def start(self, grid: Sequence[int], stream: int, values: Sequence[object]) -> None:
        """Launches it, but for an empty grid."""
        x, y, z = grid if len(grid) == 3 else (*grid, 1, 1)[:3]
        self.run(x, y, z, stream, self.function, self.metadata, None, None, None, *values, *self.rest)


def prepare(
    source: Any, kernel: JITFunction, compiled: CompiledKernel, count: int, meta: dict[str, object]
) -> Prepared | None:
    """Returns a kernel that was launched, ready for launches with `count` arguments by position.

    None if one of these is for the compiler, which would have to look at its value.
    """
    if any(place < count for place in kernel.constexprs):
        return None
    rest = tuple([meta.get(param.name, param.default) for param in kernel.params[count:]])
    return Prepared(source, compiled.run, compiled.function, compiled.packed_metadata, meta, rest)


def is_watched() -> bool:
    """Returns whether a profiler of Triton's wants to see each launch."""
    hook = knobs.runtime.launch_enter_hook
    return bool(getattr(hook, "calls", hook))
