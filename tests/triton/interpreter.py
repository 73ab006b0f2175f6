"""
The mode of launches in which Triton's interpreter runs kernels on NumPy arrays, with TRITON_INTERPRET=1 in
the environment. The interpreter of Triton 3.6 to 3.9 is patched so that its results are those of a GPU:

- bfloat16 is rounded to nearest and multiplied in `tl.dot`;
- `tl.maximum` and `tl.minimum` drop a NaN (some keep it);
- numbers can be the ends of a `range` (NumPy 2.4 no longer lets arrays with a dim be integers);
- an address outside the launch's arrays raises an error, where a GPU would read or overwrite other memory;
- what is constant during a launch is looked up once, not in every function that a kernel calls; what Triton's
  language consists of, types of blocks and what tensors have from them are made once; tensors of one shape
  are not broadcast, those of one dtype not cast; and integers are added once: the sum for an overflow check
  that is off is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from typing import Any

import numpy as np
import triton.language as tl
from ml_dtypes import bfloat16
from numpy.lib.array_utils import byte_bounds
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from mytorch.nn.fused_ops.triton import launch
from mytorch.nn.fused_ops.triton.chips import CHIPS, Chip
from mytorch.nn.fused_ops.triton.tune import Tuned

# What reads or writes memory, and which of its arguments are the addresses and their mask.
_ACCESSES = {
    "create_masked_load": (0, 1),
    "create_masked_store": (0, 2),
    "create_atomic_rmw": (1, 3),
    "create_atomic_cas": (0, None),
}
_ranges: list[tuple[str, int, int]] = []  # of the arrays of the launch that runs: name, first byte, end
_patched: set[Any] = set()  # the modules of Triton's language whose functions this launch has replaced


class Interpret:
    """Launches are interpreted, as if on an H100; a kernel may only access its own arrays."""

    def launch(self, kernel: Any, grid: tuple[int, ...], pointers: list, meta: dict) -> None:
        run(kernel, grid, pointers, meta)

    def configs(self, tuned: Tuned, grid: Any, pointers: list, meta: dict) -> list[dict]:
        return tuned.candidates(pointers, meta, self.chip())[:1]

    def chip(self) -> Chip:
        return CHIPS[90]


def install() -> None:
    """Interprets all launches of this process."""
    assert os.environ.get("TRITON_INTERPRET") == "1", "Triton reads it when a kernel is defined"
    launch._mode = Interpret()


def run(kernel: Any, grid: tuple[int, ...], pointers: list, meta: dict) -> None:
    patch()
    names = kernel.arg_names
    for name, p in zip(names, pointers, strict=False):
        if hasattr(p, "array") and p.array.size:
            _ranges.append((name, *byte_bounds(p.array)))
    try:
        with np.errstate(all="ignore"):  # inf and NaN are values, as on a GPU
            kernel[grid](*pointers, **meta)
    finally:
        _ranges.clear()
        _patched.clear()


@functools.cache
def patch() -> None:
    """Replaces what is wrong or missing in Triton's interpreter, for the rest of the process."""
    builder = interpreter.InterpreterBuilder
    interpreter._convert_float = _convert_float(interpreter._convert_float)
    builder.create_dot = _dot(builder.create_dot)
    builder.create_maxnumf = lambda self, x, y: self.binary_op(x, y, np.fmax)
    builder.create_minnumf = lambda self, x, y: self.binary_op(x, y, np.fmin)
    interpreter._patch_lang_tensor = _index(interpreter._patch_lang_tensor)
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    interpreter._patch_lang = _once(interpreter._patch_lang)
    interpreter._get_np_dtype = _cached(interpreter._get_np_dtype)
    tl.block_type.__init__ = _made_once(tl.block_type.__init__)
    tl.tensor.__init__ = _from_type(tl.tensor.__init__)
    TritonSemantic.broadcast_impl_value = _unless_equal(TritonSemantic.broadcast_impl_value)
    TritonSemantic.binary_op_type_checking_impl = _unless_alike(TritonSemantic.binary_op_type_checking_impl)
    TritonSemantic.cast = _unless_of_dtype(TritonSemantic.cast)
    interpreter._patch_builtin = _patch_builtin
    for name, (pointers, mask) in _ACCESSES.items():
        setattr(builder, name, _bounded(getattr(builder, name), name, pointers, mask))


def _convert_float(convert: Any) -> Any:
    def convert_float(x, source, target, rounding):
        if source == tl.float32 and target == tl.bfloat16:
            if rounding == interpreter._ir.ROUNDING_MODE.RTZ:
                return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
            return np.asarray(x, np.float32).astype(bfloat16).view(np.uint16)
        if source == tl.bfloat16 and target == tl.float32:
            return np.asarray(x).view(bfloat16).astype(np.float32).view(np.uint32)
        return convert(x, source, target, rounding)

    return convert_float


def _dot(dot: Any) -> Any:
    def upcast(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle(handle.data.view(bfloat16).astype(np.float32), tl.float32)

    return lambda self, a, b, d, *options: dot(self, upcast(a), upcast(b), d, *options)


def _index(original: Any) -> Any:
    def patch_lang_tensor(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patch_lang_tensor


def _once(original: Any) -> Any:
    @functools.cache
    def modules(function):
        return frozenset(m for m in function.__globals__.values() if m is tl or m is tl.core)

    def patch_lang(function):
        if modules(function) <= _patched:
            return None  # only a launch restores anything, and it comes first
        _patched.update(modules(function))
        return original(function)

    return patch_lang


def _cached(find: Any) -> Any:
    of_scalars = functools.cache(find)

    def get_np_dtype(dtype):
        return find(dtype) if dtype.scalar.is_ptr() else of_scalars(dtype.scalar)

    return get_np_dtype


def _made_once(init: Any) -> Any:
    made = {}

    def block_type_init(self, element_ty, shape):
        key = type(element_ty), element_ty.name, *shape
        if not all(type(n) is int for n in key[2:]):
            return init(self, element_ty, shape)
        if key not in made:
            init(self, element_ty, shape)
            made[key] = vars(self)
        return vars(self).update(made[key])

    return block_type_init


def _from_type(init: Any) -> Any:
    def tensor_init(self, handle, type):
        if "_of_tensors" not in vars(type):
            init(self, handle, type)
            type._of_tensors = {key: value for key, value in vars(self).items() if key != "handle"}
        vars(self).update(type._of_tensors, handle=handle)

    return tensor_init


def _unless_equal(broadcast: Any) -> Any:
    def broadcast_impl_value(self, x, y):
        if x.type.is_block() and y.type.is_block() and [*x.type.shape] == [*y.type.shape]:
            return x, y
        return broadcast(self, x, y)

    return broadcast_impl_value


def _unless_alike(check: Any) -> Any:
    """Operands of one dtype, which is that of the result."""
    dtypes = [tl.float32, tl.int32, tl.int64]

    def binary_op_type_checking_impl(self, x, y, *options, **named):
        dtype = getattr(x, "dtype", None)
        if any(dtype is each for each in dtypes) and getattr(y, "dtype", None) is dtype:
            return self.broadcast_impl_value(x, y)
        return check(self, x, y, *options, **named)

    return binary_op_type_checking_impl


def _unless_of_dtype(cast: Any) -> Any:
    def cast_to(self, x, dtype, *options):
        return x if getattr(x, "dtype", None) is dtype else cast(self, x, dtype, *options)

    return cast_to


@functools.cache
def _builtins(package: Any) -> list[tuple[str, Any]]:
    return [(name, f) for name, f in inspect.getmembers(package) if tl.core.is_builtin(f)]


def _patch_builtin(package: Any, builder: Any, scope: Any) -> None:
    for name, function in _builtins(package):
        interpreter._patch_attr(package, name, function, builder, scope)


def _bounded(access: Any, name: str, pointers: int, mask: int | None) -> Any:
    def checked(self, *args):
        handle = args[pointers]
        used = np.True_ if mask is None else args[mask].data
        addresses = handle.data[np.broadcast_to(used, handle.data.shape).astype(bool)]
        size = max(handle.get_element_ty().primitive_bitwidth // 8, 1)
        if addresses.size and not _in_one_array(int(addresses.min()), int(addresses.max()) + size):
            outside = np.ones(addresses.shape, bool)
            for _, first, end in _ranges:
                outside &= (addresses < first) | (addresses + size > end)
            if outside.any():
                raise IndexError(_describe(name, int(addresses[outside][0]), size))
        return access(self, *args)

    return checked


def _in_one_array(lowest: int, highest: int) -> bool:
    return any(first <= lowest and highest <= end for _, first, end in _ranges)


def _describe(name: str, address: int, size: int) -> str:
    what = name.removeprefix("create_")
    near = min(_ranges, key=lambda r: min(abs(address - r[1]), abs(address - r[2])), default=None)
    if near is None:
        return f"{what} in a launch without arrays"
    argument, first, end = near
    return (
        f"{what} outside the launch's arrays: nearest is {argument}, "
        f"element {(address - first) // size} of {(end - first) // size}"
    )
