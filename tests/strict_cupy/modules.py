"""The modules: every name that names.txt lists is there, or says that the stand-in hasn't got it yet."""

from __future__ import annotations

import contextlib
import types
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np

from . import array, creation, device, elementwise_kernel, graph, memory, random, special
from .functions import checked
from .names import NAMES, Name, words
from .ufunc import ufunc

VERSION = "14.2.0"


class Module(types.ModuleType):
    """A module with a part of the real one's names: the rest of them raises, other names don't exist."""

    def __init__(self, name: str, **names: Any):
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        self.__path__ = []
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        if name in NAMES.get(self.__name__, ()):
            raise NotImplementedError(f"the strict CuPy has no {self.__name__}.{name} yet: add it")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


# Files, text and polynomials: nothing that an array library on top of CuPy would call.
_LEFT_OUT = words(
    "apply_along_axis base_repr binary_repr fromfile fromstring frombuffer genfromtxt load loadtxt piecewise "
    "poly polyadd polyfit polymul polysub polyval roots save savetxt savez savez_compressed show_config"
)


def _functions(owner: str, numpy_owner: Any) -> dict[str, Any]:
    """Everything that names.txt lists for `owner` and that NumPy can compute."""
    made = {}
    for name, entry in NAMES[owner].items():
        value = _implementation(name, entry, getattr(numpy_owner, name, None))
        if value is not None and name not in _LEFT_OUT:
            made[name] = value
    return made


def _implementation(name: str, entry: Name, of_numpy: Any) -> Any:
    if entry.is_numpy_s_own:
        return of_numpy
    if entry.loops:
        compute = special.SPECIAL_FUNCTIONS.get(name) or of_numpy
        return ufunc(name, entry.loops, compute) if compute else None
    compute = special.COMPUTE.get(name) or of_numpy
    return checked(name, entry.signature(), compute) if entry.parameters is not None and compute else None


_OWN = words(
    "array asarray ascontiguousarray asfortranarray asnumpy from_dlpack copyto copy get_array_module "
    "size fuse memoize"
)
_KERNELS = words("RawKernel RawModule ReductionKernel")
_CUDA = words("Device Event Stream MemoryPointer UnownedMemory alloc get_current_stream get_elapsed_time")
_PINNED_POOL = memory.MemoryPool()

linalg = Module("cupy.linalg", **_functions("cupy.linalg", np.linalg), LinAlgError=np.linalg.LinAlgError)
_tricks = _functions("cupy.lib.stride_tricks", np.lib.stride_tricks)
stride_tricks = Module("cupy.lib.stride_tricks", **_tricks)
lib = Module("cupy.lib", stride_tricks=stride_tricks)
runtime = Module("cupy.cuda.runtime", **device.runtime)
nccl = Module("cupy.cuda.nccl", available=False)
cuda = Module(
    "cupy.cuda",
    runtime=runtime,
    nccl=nccl,
    is_available=lambda: device._count > 0,
    alloc_pinned_memory=device.PinnedMemoryPointer,
    get_device_id=device.get_device,
    Graph=graph.Graph,
    MemoryPool=memory.MemoryPool,
    MemoryHook=memory.MemoryHook,
    memory_hook=types.SimpleNamespace(get_memory_hooks=memory.get_memory_hooks),
    using_allocator=memory.using_allocator,
    **{name: getattr(device, name) for name in _CUDA},
)
randoms = Module(
    "cupy.random",
    **{
        name: value
        for name in NAMES["cupy.random"]
        if (value := random.__dict__.get(name) or random.function(name)) is not None
    },
)
cupy = Module(
    "cupy",
    **{
        **_functions("cupy", np),
        **{name: getattr(creation, name) for name in _OWN},
        **dict.fromkeys(_KERNELS, creation.Kernel),
        "ElementwiseKernel": elementwise_kernel.ElementwiseKernel,
        "asanyarray": creation.asarray,
        "AxisError": np.exceptions.AxisError,
        "exceptions": np.exceptions,
        "newaxis": None,
        "ndarray": array.ndarray,
        "ufunc": ufunc,
        "linalg": linalg,
        "lib": lib,
        "random": randoms,
        "cuda": cuda,
        "is_available": cuda.is_available,
        "get_default_memory_pool": memory.get_default_memory_pool,
        "get_default_pinned_memory_pool": lambda: _PINNED_POOL,
        "__version__": VERSION,
    },
)
scipy_special = Module("cupyx.scipy.special", **_functions("cupyx.scipy.special", types.SimpleNamespace()))
scipy = Module("cupyx.scipy", special=scipy_special)
cupyx = Module(
    "cupyx",
    scipy=scipy,
    errstate=lambda **_: contextlib.nullcontext(),  # NumPy raises the errors of linalg in any case
    empty_pinned=np.empty,
    zeros_pinned=np.zeros,
    scatter_add=creation.scatter_add,
    scatter_max=creation.scatter_max,
    scatter_min=creation.scatter_min,
    rsqrt=_functions("cupyx", types.SimpleNamespace())["rsqrt"],
)
backends = Module(
    "cupy_backends"
)  # no vendor libraries: a real CuPy beside the stand-in must not lend its own
_ALL = (cupy, linalg, lib, stride_tricks, cuda, runtime, nccl, randoms, cupyx, scipy, scipy_special, backends)
MODULES = {module.__name__: module for module in _ALL}
