"""Checks of the arguments of a DataLoader."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext


def check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if not isinstance(num_workers, int) or isinstance(num_workers, bool):
        raise TypeError(f"num_workers option should be an int, got {num_workers!r}")
    if num_workers < 0:
        raise ValueError(
            f"num_workers option should be non-negative, got {num_workers}; use 0 to load in this process"
        )
    if timeout < 0:
        raise ValueError(f"timeout option should be non-negative, got {timeout}")
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError(f"prefetch_factor option should be at least 1, got {prefetch_factor}")
    if num_workers > 0:
        if sys.platform == "win32":
            raise RuntimeError(
                f"num_workers={num_workers}: workers share memory by file descriptors, which Windows "
                "doesn't support; use num_workers=0, or WSL"
            )
        return
    for name, is_given in (
        ("timeout", timeout > 0),
        ("prefetch_factor", prefetch_factor is not None),
        ("persistent_workers", persistent_workers),
    ):
        if is_given:
            raise ValueError(f"{name} option needs num_workers > 0")


def context_of(context: str | BaseContext | None) -> BaseContext:
    """Returns a context of `multiprocessing`, by its name; None is the default of the platform.

    Raises:
        ValueError: the platform has no such start method.
        TypeError: `context` is neither a string nor a context.
    """
    import multiprocessing  # here, since importing it takes long

    methods = multiprocessing.get_all_start_methods()
    if isinstance(context, str) and context not in methods:
        raise ValueError(
            f"multiprocessing_context option should specify a valid start method in {methods}, "
            f"got {context!r}"
        )
    if context is None or isinstance(context, str):
        return multiprocessing.get_context(context)
    if not isinstance(context, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the "
            f"start method, got {context!r}"
        )
    return context


def check_batches(
    is_iterable: bool, batch_size: int | None, shuffle: bool | None, sampler: Iterable | None,
    batch_sampler: Iterable | None, drop_last: bool,
) -> None:
    options = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in options.items():
        if is_iterable and value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
            )
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last; "
            f"got batch_size={batch_size}, shuffle={shuffle}, sampler={sampler}, drop_last={drop_last}"
        )
    if batch_size is None and batch_sampler is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )
