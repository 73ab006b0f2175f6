"""PyTorch's settings of its libraries, `backends.cudnn.benchmark = True`: kept, and without effect.

Only `backends.cuda.matmul.allow_tf32` chooses something here: `set_float32_matmul_precision`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace


def _no() -> bool:
    return False


def _yes() -> bool:
    return True


class _Flags(ModuleType):
    """A library's settings, as a module, since programs import it: `import torch.backends.cudnn as cudnn`."""

    def __init__(self, name: str, **settings: object):
        super().__init__(f"mytorch.backends.{name}", f"PyTorch's settings of {name}; they have no effect.")
        self.__dict__.update(settings)
        sys.modules[self.__name__] = self

    @contextmanager
    def flags(self, **settings: object) -> Iterator[None]:
        """Sets these, in a block."""
        before = dict(self.__dict__)
        self.__dict__.update(settings)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)


class _Products:
    """`allow_tf32`: whether the precision of float32 products is below "highest"."""

    allow_fp16_reduced_precision_reduction = allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        return _cublas().get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        _cublas().set_float32_matmul_precision("high" if allow else "highest")


def _cublas() -> ModuleType:
    return importlib.import_module("mytorch.backends.cublas")  # which needs NumPy


def _attention_flags() -> dict[str, Callable]:
    """The switches of PyTorch's kernels of attention, all on."""
    kinds = ("flash", "mem_efficient", "math", "cudnn")
    setters = {f"enable_{kind}_sdp": lambda enabled: None for kind in kinds}
    return setters | {f"{kind}_sdp_enabled": _yes for kind in kinds}


cudnn = _Flags(
    "cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10,
    is_available=_no, version=lambda: None,
)  # fmt: skip
cuda = _Flags("cuda", is_built=_no, matmul=_Products(), **_attention_flags())
mps = _Flags("mps", is_available=_no, is_built=_no)
mkl = _Flags("mkl", is_available=_no)
mkldnn = _Flags("mkldnn", enabled=False, is_available=_no)
openmp = _Flags("openmp", is_available=_no)
opt_einsum = _Flags("opt_einsum", enabled=False, strategy=None, is_available=_no)

# `use_deterministic_algorithms`.
_determinism = SimpleNamespace(mode=False, warn_only=False)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Keeps the setting, which chooses no kernel: those on the CPU are deterministic.

    Args:
        mode: what `are_deterministic_algorithms_enabled` returns.
        warn_only: what `is_deterministic_algorithms_warn_only_enabled` returns.
    """
    _determinism.mode, _determinism.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Returns what `use_deterministic_algorithms` was given."""
    return _determinism.mode


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Returns whether that was with `warn_only`."""
    return _determinism.warn_only
