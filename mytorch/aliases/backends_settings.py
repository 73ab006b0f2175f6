"""PyTorch's settings of its libraries, `backends.cudnn.benchmark = True`: kept, and without effect.

This file is a module for each of them. Only `backends.cuda.matmul.allow_tf32` chooses something here:
`set_float32_matmul_precision`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mytorch.backends.cublas import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = ["flags"]


def _no() -> bool:
    return False


def _yes() -> bool:
    return True


class _Products:
    """`allow_tf32`: whether the precision of float32 products is below "highest"."""

    allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        set_float32_matmul_precision("high" if allow else "highest")


_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")  # PyTorch's kernels, all on

_SETTINGS: dict[str, dict[str, object]] = {
    "cuda": {
        "is_built": _no, "matmul": _Products(),
        **{f"enable_{kernel}_sdp": lambda enabled: None for kernel in _ATTENTION},
        **{f"{kernel}_sdp_enabled": _yes for kernel in _ATTENTION},
    },
    "cudnn": {
        "enabled": True, "benchmark": False, "deterministic": False, "allow_tf32": True,
        "benchmark_limit": 10, "is_available": _no, "version": lambda: None,
    },
    "mkl": {"is_available": _no},
    "mkldnn": {"enabled": False, "is_available": _no},
    "mps": {"is_available": _no, "is_built": _no},
    "openmp": {"is_available": _no},
    "opt_einsum": {"enabled": False, "strategy": None, "is_available": _no},
}


@contextmanager
def flags(**settings: object) -> Iterator[None]:
    """Sets these, in a block."""
    names = globals()
    before = dict(names)
    names.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del names[name]
        names.update(before)


globals().update(_SETTINGS[__spec__.name.rpartition(".")[2]])
__all__ += _SETTINGS[__spec__.name.rpartition(".")[2]]
