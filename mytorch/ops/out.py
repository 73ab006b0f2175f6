"""`out=`: the functions that write their result into a given tensor."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import dtypes
from ..core.array import Array
from ..core.grad_mode import is_grad_enabled
from ..core.graph import shares_memory
from ..core.overriding import overriding
from ..core.tensor import Tensor, increment_version, raw_of
from .arrays import as_tensors
from .inplace import check_writable, write

# The functions of the package's namespace that take it, as in PyTorch.
NAMES = """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv all amax amin aminmax any arange arccos
    arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh atan atan2 atanh baddbmm
    bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm
    bucketize cat ceil clamp clamp_max clamp_min clip column_stack concat concatenate copysign cos cosh
    cummax cummin cumprod cumsum deg2rad diag diff div divide dot dstack empty eq erf erfc erfinv exp exp2
    expm1 eye fix float_power floor floor_divide fmax fmin fmod frac full gather ge ger greater greater_equal
    gt histc hstack hypot index_add index_copy index_select inner isin isneginf isposinf kron kthvalue le
    lerp less less_equal linspace log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp
    logical_and logical_not logical_or logical_xor logit logspace logsumexp lt masked_select matmul max
    maximum mean median min minimum mm mode msort mul multinomial multiply mv nan_to_num nanmean nanmedian
    nanquantile nansum ne neg negative nonzero norm normal not_equal ones outer pow prod quantile rad2deg
    rand randint randn randperm reciprocal remainder round row_stack rsqrt scatter scatter_add scatter_reduce
    searchsorted sgn sigmoid sign signbit sin sinc sinh softmax sort sqrt square stack std sub subtract sum
    take take_along_dim tan tanh tensordot topk tril triu true_divide trunc var vdot vstack where xlogy zeros
""".split()  # noqa: SIM905

# Of these, the ones whose `out` has the dtype of the result; the others cast, but not to a lower kind.
EXACT = """
    abs absolute aminmax amax amin addbmm addmm addmv argmax argmin argsort baddbmm bmm bucketize ceil cummax
    cummin diag diff dot fix floor frac gather histc index_add index_copy index_select inner kthvalue
    log_softmax logcumsumexp masked_select matmul max median min mm mode msort multinomial mv nan_to_num
    nanmedian nanquantile neg negative nonzero norm quantile round scatter scatter_add scatter_reduce
    searchsorted sgn sign softmax sort take take_along_dim tensordot topk tril triu trunc vdot where
""".split()  # noqa: SIM905
# They take their dtype from `out` unless they are given one.
FACTORIES = {
    "arange", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand", "randint", "randn",
    "randperm", "zeros",
}


def accepts_out(function: Callable) -> Callable:
    """`function` with the keyword argument `out`: a tensor, or a tuple of them for several results.

    It gets the result's values, in its own dtype, and is returned. One of another shape is resized: it then
    has new memory, and a warning says so if it had elements.

    Raises (when called with `out`):
        TypeError: `out` is no tensor or Array, or no tuple of as many as there are results.
        RuntimeError: a gradient is wanted; the result's dtype can't be cast to that of `out`; another device;
            `out` shares memory with an argument, and isn't the argument itself of an elementwise function.
    """

    @functools.wraps(function)
    def call(*args, out: Any = None, **kwargs):
        if overriding:
            given = kwargs if out is None else {**kwargs, "out": out}
            if (answer := overriding.dispatch(call, args, given)) is not NotImplemented:
                return answer
        if out is None:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                return overriding.refused(call, args, kwargs, error)
        name, several = function.__name__, isinstance(out, (tuple, list))
        args = as_tensors(args)
        targets = list(as_tensors(out)) if several else [as_tensors(out)]
        for target in targets:
            if not isinstance(target, Tensor):
                raise TypeError(f"{name}(): out must be a Tensor, got {type(target).__name__}")
        if is_grad_enabled() and any(
            isinstance(x, Tensor) and x.requires_grad for x in (*args, *kwargs.values(), *targets)
        ):
            raise RuntimeError(
                f"{name}(): functions with out=... arguments don't support automatic differentiation, but "
                "one of the arguments requires grad"
            )
        if name in FACTORIES and kwargs.get("dtype") is None:
            kwargs["dtype"] = targets[0].dtype
        inputs = [x for a in args for x in (a if isinstance(a, (tuple, list)) else (a,))]
        whole = inputs if getattr(function, "promote", None) is not None else ()
        result = function(*args, **kwargs)
        results = list(result) if isinstance(result, tuple) else [result]
        if len(results) != len(targets) or several != isinstance(result, tuple):
            raise TypeError(f"{name}(): out has {len(targets)} tensors for {len(results)} results")
        for target, value, given in zip(targets, results, out if several else [out], strict=True):
            if isinstance(given, Array) and given.shape != value.data.shape:
                raise RuntimeError(
                    f"{name}(): out is an Array of shape {given.shape}, which isn't resized to "
                    f"{value.data.shape}"
                )
            _check_overlap(target, value, inputs, whole, name)
            _write_out(target, value, name)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out) if several else out

    return call


def _write_out(out: Tensor, value: Tensor, name: str) -> None:
    if out.device is not value.device:
        raise RuntimeError(f"{name}(): out is on {out.device}, the result on {value.device}")
    if name in EXACT and out.dtype != value.dtype:
        raise RuntimeError(f"{name}(): expected out to have dtype {value.dtype}, but got {out.dtype}")
    if not dtypes.can_cast(value.dtype, out.dtype):
        raise RuntimeError(f"{name}(): result type {value.dtype} can't be cast to out's type {out.dtype}")
    if out.data.shape == value.data.shape:
        write(out, value, name=name)
        return
    if out.numel():
        warnings.warn(
            f"{name}(): an output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape {list(value.shape)}",
            stacklevel=4,
        )
    out.data = value.data.astype(out.dtype) if value.dtype != out.dtype else value.data.clone()
    increment_version(out)


def _check_overlap(out: Tensor, value: Tensor, inputs: list, whole: object, name: str) -> None:
    """Raises if `out` shares memory with an input, or may when it is resized; `whole` inputs may be `out`."""
    check_writable(out, name, False)
    for x in inputs:
        if not isinstance(x, Tensor) or not shares_memory(raw_of(x), raw_of(out)):
            continue
        mine, other = raw_of(out), raw_of(x)
        equal = (other.shape, other.strides, x.data_ptr()) == (mine.shape, mine.strides, out.data_ptr())
        if equal and any(x is w for w in whole):
            continue
        if x is out or mine.shape != value.data.shape or np.may_share_memory(other, mine):
            raise RuntimeError(
                f"{name}(): unsupported operation: some elements of the input tensor and the written-to "
                "tensor refer to a single memory location; clone() one of them first"
            )
