"""
Vectors of 16 float32 numbers in compiled loops: one register of AVX-512, two of AVX2, four of NEON.

LLVM vectorizes most loops by itself. These are for the loops where it doesn't, or not well: a sum with a
scale for each 32 of its terms.

    acc = splat(ZERO)
    for i in range(0, n, 16):
        acc = fma(load(x + 4 * i), load(y + 4 * i), acc)      # x, y: addresses of float32 numbers
    return total(acc)
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

COUNT = 16
AHEAD = 1024  # bytes from what a loop reads to what it prefetches
_FLAGS = ("contract", "reassoc")
_FLOATS, _INTS, _BYTES = (ir.VectorType(t, COUNT) for t in (ir.FloatType(), ir.IntType(32), ir.IntType(8)))


class _Lanes(types.Type):
    """Numba's type of such a vector."""


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, type_):
        super().__init__(manager, type_, _FLOATS)


_lanes = _Lanes("lanes")


def _read(builder, address, kind, align):
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = align
    return loaded


def _repeated(builder, number):
    nothing = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nothing, _all(0))


def _all(number):
    return ir.Constant(_INTS, [number] * COUNT)


@intrinsic
def load(typing_context, address):
    """The 16 float32 numbers at an address."""

    def generate(context, builder, signature, args):
        return _read(builder, args[0], _FLOATS, 4)

    return _lanes(types.int64), generate


@intrinsic
def repeated(typing_context, address):
    """The float32 number at an address, 16 times."""

    def generate(context, builder, signature, args):
        return _repeated(builder, _read(builder, args[0], ir.FloatType(), 4))

    return _lanes(types.int64), generate


@intrinsic
def load_int8(typing_context, address):
    """The 16 int8 numbers at an address, as float32."""

    def generate(context, builder, signature, args):
        return builder.sitofp(builder.sext(_read(builder, args[0], _BYTES, 1), _INTS), _FLOATS)

    return _lanes(types.int64), generate


@intrinsic
def load_halves(typing_context, address):
    """The low and the high 4 bits of the 16 bytes at an address, 0 to 15, as float32."""

    def generate(context, builder, signature, args):
        both = builder.zext(_read(builder, args[0], _BYTES, 1), _INTS)
        halves = builder.and_(both, _all(15)), builder.lshr(both, _all(4))
        lanes = [builder.sitofp(half, _FLOATS) for half in halves]
        return context.make_tuple(builder, signature.return_type, lanes)

    return types.UniTuple(_lanes, 2)(types.int64), generate


@intrinsic
def store(typing_context, address, x):
    """Writes the 16 numbers to an address."""

    def generate(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], _FLOATS.as_pointer())
        builder.store(args[1], pointer).align = 4
        return context.get_dummy_value()

    return types.void(types.int64, _lanes), generate


@intrinsic
def splat(typing_context, x):
    """A float32 number, 16 times."""

    def generate(context, builder, signature, args):
        return _repeated(builder, args[0])

    return _lanes(types.float32), generate


@intrinsic
def fma(typing_context, x, y, z):
    """x y + z"""

    def generate(context, builder, signature, args):
        return builder.fadd(builder.fmul(args[0], args[1], flags=_FLAGS), args[2], flags=_FLAGS)

    return _lanes(_lanes, _lanes, _lanes), generate


@intrinsic
def total(typing_context, x):
    """The sum of the 16 numbers."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType(), _FLOATS])
        reduce = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.fadd.v16f32")
        return builder.call(reduce, [ir.Constant(ir.FloatType(), 0.0), args[0]], fastmath=_FLAGS)

    return types.float32(_lanes), generate


@intrinsic
def prefetch(typing_context, address):
    """Loads the cache line at an address, which may lie outside of all memory, into the cache."""

    def generate(context, builder, signature, args):
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(function, [builder.inttoptr(args[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate
