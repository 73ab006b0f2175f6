"""Memory: releasing it, and finding the batch size that fits."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable

from ..backends.device import is_available
from ..cuda import empty_cache


def release_memory(*objects: object) -> list[None]:
    """Returns None for each object and frees unreferenced memory: `a, b = release_memory(a, b)`."""
    objects = [None] * len(objects)
    clear()
    return objects


def clear() -> None:
    """Collects garbage, and returns a GPU's unused memory to the driver."""
    gc.collect()
    if is_available():
        empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error says that Python, NumPy, a GPU or a library ran out of memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def find_executable_batch_size(
    function: Callable | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[int], int] | None = None,
) -> Callable:
    """Decorator: calls a function with a batch size before its arguments, halved until the memory suffices.

        @find_executable_batch_size(starting_batch_size=64)
        def train(batch_size, model): ...

        train(model)

    Args:
        starting_batch_size: the first batch size.
        reduce_batch_size_fn: returns the next batch size from one that was too large; half of it if None.

    Raises:
        ValueError: the next batch size isn't smaller.
        RuntimeError: not even a batch size of 1 fits.
        TypeError: the call has an argument for the batch size.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    reduced = reduce_batch_size_fn or (lambda size: size // 2)

    @functools.wraps(function)
    def call(*args, **kwargs):
        names = list(inspect.signature(function).parameters)
        if names and len(args) >= len(names):
            raise TypeError(
                f"{function.__name__}() passes the batch size itself, call it with {names[1:]} only"
            )
        batch_size = starting_batch_size
        while batch_size > 0:
            clear()
            try:
                return function(batch_size, *args, **kwargs)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            before, batch_size = batch_size, reduced(batch_size)
            if not batch_size < before:
                raise ValueError(f"reduce_batch_size_fn() makes {batch_size} of {before}: not smaller")
        raise RuntimeError("No executable batch size found, reached zero.")

    return call
