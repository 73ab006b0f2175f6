"""The kinds of arrays that mytorch brings: NumPy's, CuPy's, and those that hold nothing; their libraries."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .door import Kind, RawArray, thread

if TYPE_CHECKING:
    from .device import device
    from .gpu_errors import Note


def cupy() -> Any:
    """Returns the CuPy module.

    Raises:
        RuntimeError: it is not installed; the message says how to install it.
    """
    module = sys.modules.get("cupy")
    if module is None:
        try:
            module = importlib.import_module("cupy")
        except ImportError as error:
            raise RuntimeError(
                "a cuda device needs CuPy, which can't be imported "
                f"({error}): pip install 'mytorch[cuda12]' or 'mytorch[cuda13]'"
            ) from error
    return module


def meta() -> ModuleType:
    """Returns the package of meta arrays."""
    return importlib.import_module(f"{__package__}.meta")


error_note: Note | None = None  # where GPUs note errors, once `gpu_errors` has made it


def waited() -> None:
    """Raises the error, if any, that a GPU has noted; for those who have just waited for it."""
    if error_note is not None and error_note.numbers[0]:
        error_note.raise_noted()


def refuse_capture(what: str) -> None:
    """Raises a RuntimeError if this thread captures a CUDA graph, which would not repeat `what`."""
    if thread.is_capturing:
        raise RuntimeError(f"{what} can't be captured in a CUDA graph")


class _NumPy(Kind):
    """NumPy's arrays."""

    kernels, is_host = "cpu", True

    def functions(self) -> Any:
        return np

    def give(self, raw: RawArray) -> RawArray:
        return raw

    def collectives(self, group: Any) -> Any:
        return group.cpu_backend

    def as_writable(self, view: RawArray, x: RawArray) -> RawArray:
        if isinstance(view, np.ndarray):  # no Tensor, as in an op that is differentiated again
            view.flags.writeable = x.flags.writeable
        return view


class _CuPy(Kind):
    """CuPy's arrays; `cublas` sets how they are multiplied."""

    kernels = "cuda"

    def functions(self) -> Any:
        return cupy()

    def on(self, target: device) -> AbstractContextManager:
        return cupy().cuda.Device(target.index)

    def take(self, raw: RawArray, target: device) -> RawArray:
        if isinstance(raw, np.ndarray):  # a graph would copy again from memory that was freed
            refuse_capture(f"a copy from the CPU to {target}")
        with self.on(target):
            return cupy().asarray(raw)

    def give(self, raw: RawArray) -> RawArray:
        copy = cupy().asnumpy(raw)
        waited()
        return copy

    def collectives(self, group: Any) -> Any:
        return group.gpu_backend


class _Meta(Kind):
    """Arrays that have a shape, but no elements."""

    kernels, has_values = "meta", False

    def functions(self) -> Any:
        return meta().module

    def take(self, raw: RawArray, target: device) -> RawArray:
        return meta().like(raw)

    def give(self, raw: RawArray) -> RawArray:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def collectives(self, group: Any) -> Any:
        return group.cpu_backend

    def add_product(self, x: RawArray, y: RawArray, out: RawArray, beta: float) -> None:
        pass  # there are no elements: an array for the product would count as memory


NUMPY, GPU, NOTHING = _NumPy(), _CuPy(), _Meta()  # a GPU's products are those of `cublas`
KINDS = {"cpu": NUMPY, "cuda": GPU, "meta": NOTHING}
