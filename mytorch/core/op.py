"""`@op` turns a function on raw arrays into a differentiable function on Tensors.

The function returns its result and its *vjp* (vector-Jacobian product), which maps the gradient of the result
to those of the inputs: either one function for each input, called only for inputs that need a gradient, or a
single function that returns all the gradients, when they share work. It is None for an op without a
derivative. Tensors are passed by position, in the order of the gradients.

    @op(promote="common")
    def mul(x, y):
        return x * y, (lambda g: g * y, lambda g: g * x)

That is all an op says. Unwrapping, devices, dtype promotion, recording, undoing broadcasting, matching
dtypes, detecting in-place modifications and accumulating gradients are done once, here and in the engine.

Rules for authors: never write into `g`; capture shapes where shapes are enough; write `np.` functions, which
run on every device. Half precision comes as float32 and is rounded once, unless an op says `half=`.
"""

from __future__ import annotations

import functools
import operator
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import dtypes
from ..backends.device import CPU, RawArray, device, device_of, is_on_host, is_raw, move, on
from ..backends.door import forces, lifted
from ..backends.float_errors import IGNORE, errors
from .array import Array
from .closure import Vjp
from .grad_mode import _state
from .graph import Node, OutputGrads, new_recompute, shares_memory
from .overriding import overriding
from .tensor import Tensor, View, from_raw
from .unbroadcast import shape_error
from .upcast import FLOAT32, call_upcast

NUMBERS = (bool, int, float, complex, np.generic)
_PLAIN = frozenset((int, float, bool, str, tuple, type(None)))  # common arguments that are no arrays
_PROMOTE = (None, "common", "float")


def op(
    forward: Callable | None = None, *, promote: str | None = None, view: bool = False, outputs: bool = False,
    tensors: int = 0, numbers: bool = False, half: bool | str = False,
) -> Callable:
    """Makes a differentiable function of Tensors from a function of raw arrays.

    Args:
        forward: `(raw arrays…) -> (result, vjp)`.
        promote: how the positional tensors and numbers are cast before the call. None: not at all; "common":
            to the dtype of PyTorch's promotion; "float": the same, and integers to the default float dtype.
        view: the result may share memory with the first input.
        outputs: the result is a tuple of arrays, all differentiable; the vjp gets a list with a gradient or
            None for each. (Without it, only a tuple's first is differentiable: `max` and its indices.)
        tensors: the number of leading arguments that have to be tensors, not numbers.
        numbers: they may all be numbers.
        half: which dtypes of half precision the body takes as they are (see `upcast`): False for none,
            "float16" for that one, "sum" for that one and for arrays of bfloat16 on a GPU, True for float16
            and bfloat16, as a view does.

    Raises (when called):
        RuntimeError: tensors on different devices.
        TypeError: an argument that isn't a tensor, or dtypes that can't be promoted.
    """
    if forward is None:
        kinds = {"view": view, "outputs": outputs, "tensors": tensors, "numbers": numbers}
        return functools.partial(op, promote=promote, half=half, **kinds)
    if promote not in _PROMOTE:
        raise ValueError(f"promote is one of {_PROMOTE}, got {promote!r}")

    upcasts = None if half is True or view else dtypes.is_bfloat16 if half else dtypes.is_half
    call = _make_call(forward, promote, view, outputs, tensors, numbers, upcasts, half == "sum")
    call.forward, call.promote, call.dual, call.tensors = forward, promote, _dual(call), tensors
    call.upcasts = upcasts
    return call


def _make_call(
    forward: Callable, promote: str | None, view: bool, outputs: bool, tensors: int, numbers: bool,
    upcasts: Callable | None, is_sum: bool,
) -> Callable:
    """The function of Tensors: unwrap, promote, upcast, compute, record."""
    names = forward.__code__.co_varnames[: forward.__code__.co_argcount]

    def compute(raws, kwargs):
        if promote is not None:
            raws = promoted(raws, promote == "float")
        if upcasts is None or (upcasts is dtypes.is_bfloat16 and "ml_dtypes" not in sys.modules):
            return forward(*raws, **kwargs)
        if is_sum and not kwargs and _are_bfloat16_on_gpu(raws):
            return forward(*raws)
        return call_upcast(forward, raws, kwargs, upcasts)

    @functools.wraps(forward)
    def call(*args, **kwargs):
        if overriding and (answer := overriding.dispatch(call, args, kwargs)) is not NotImplemented:
            return answer
        if kwargs:
            args, kwargs = _by_position(names, args, kwargs)
        try:
            for x in args[:tensors]:
                if type(x) is not Tensor:
                    require_tensor(x, call.__name__)
            raws, target = unwrap(args, call.__name__, numbers)
        except TypeError as error:
            return overriding.refused(call, args, kwargs, error)
        run = compute if (stream := _state.stream) is None else stream.recorded(call, compute)
        token = errors.set(IGNORE)  # inf and NaN are values, as in PyTorch
        try:
            if target is CPU:
                result, vjp = run(raws, kwargs)
            else:
                with on(target):
                    result, vjp = run(raws, kwargs)
        except ValueError as error:
            if "broadcast" not in str(error):
                raise
            raise RuntimeError(f"{call.__name__}(): {shape_error(raws) or error}") from None
        except TypeError as error:
            return overriding.refused(call, args, kwargs, error)
        finally:
            errors.reset(token)
        if outputs:
            return _several(call, args, kwargs, result, vjp, view)
        if isinstance(result, tuple):
            outs = tuple([from_raw(as_raw(r)) for r in result])
            connect(call, args, kwargs, outs, vjp)
            return outs
        out = from_raw(result if type(result) is np.ndarray else as_raw(result))
        connect(call, args, kwargs, (out,), vjp)
        if view:
            _mark_view(out, args[0], (call, args[1:], kwargs))
        return out

    return call


def _are_bfloat16_on_gpu(raws: list) -> bool:
    """Returns whether all arguments are arrays of bfloat16 on a GPU."""
    return all(is_raw(r) and dtypes.is_bfloat16(r.dtype) and not is_on_host(r) for r in raws)


def _dual(call: Callable) -> Callable:
    """The op for the vjps of others: raw arrays in, a raw array out; Tensors in, a recorded Tensor out."""

    def dual(*args, **kwargs):
        for a in args:
            if isinstance(a, Tensor):
                return call(*args, **kwargs)
        return call.forward(*args, **kwargs)[0]

    return dual


def _by_position(names: Sequence[str], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Makes keyword arguments positional, up to the first that is missing; PyTorch's `input` is our x."""
    rest = dict(kwargs)
    for theirs, ours in (("input", "x"), ("other", "y")):
        if theirs in rest and theirs not in names and ours in names:
            rest[ours] = rest.pop(theirs)
    for name in names[len(args) :]:
        if name not in rest:
            break
        args = (*args, rest.pop(name))
    return args, rest


def unwrap(args: Sequence[object], name: str, numbers: bool = False) -> tuple[list, device]:
    """Returns the raw arrays of the arguments, other arguments as they are, and the device of the arrays.

    With `numbers`, they may all be numbers, which then are arrays without dims: `mul(2, 3.5)`.
    """
    if forces:
        args = _all_lifted(args)
    raws, target = [], None
    for a in args:
        if isinstance(a, Tensor):
            raw = a._data._array
        elif isinstance(a, Array):
            raw = a._array
        elif type(a) not in _PLAIN and is_raw(a):
            raw = a
        else:
            raws.append(a)
            continue
        raws.append(raw)
        found = CPU if type(raw) is np.ndarray else device_of(raw)
        if target is None:
            target = found
        elif found is not target:
            return _mixed(args, name)
    if target is None:
        if numbers and args and all(isinstance(a, NUMBERS) for a in args):
            return [np.asarray(a, dtypes.dtype_of_number(a)) for a in args], CPU
        raise TypeError(
            f"{name}(): expected a Tensor, got {', '.join(type(a).__name__ for a in args) or 'nothing'}"
        )
    return raws, target


def _all_lifted(args: Sequence[object]) -> list:
    """Returns the arguments with raw arrays in place of Tensors and Arrays, of the kind in force."""
    found = []
    for a in args:
        raw = a._data._array if isinstance(a, Tensor) else a._array if isinstance(a, Array) else a
        found.append(lifted(raw, a) if is_raw(raw) else a)
    return found


def require_tensor(x: object, name: str) -> None:
    """Raises a TypeError unless `x` is a Tensor, an Array or a raw array."""
    if not isinstance(x, (Tensor, Array)) and not is_raw(x):
        raise TypeError(f"{name}(): expected a Tensor, got {type(x).__name__}")


def _mixed(args: Sequence[object], name: str) -> tuple[list, device]:
    """Unwraps arguments on several devices: a 0-d array on the CPU moves to the others, as a number would.

    Raises:
        RuntimeError: any other mixture.
    """
    arrays = (a._data if isinstance(a, Tensor) else a for a in args)
    raws = [a._array if isinstance(a, Array) else a for a in arrays]
    found = [device_of(r) for r in raws if is_raw(r) and (r.ndim or not is_on_host(r))]
    devices = [*{id(target): target for target in found}.values()]  # several kinds may have one name
    if len(devices) > 1:
        names = " and ".join(sorted([target.full_name for target in devices]))
        raise RuntimeError(f"{name}(): expected all tensors to be on the same device, got {names}")
    (target,) = devices
    return [move(r, target) if is_raw(r) else r for r in raws], target


def promoted(raws: list, to_float: bool = False) -> list:
    """Returns the arrays and numbers, cast to the dtype that PyTorch's promotion rules define."""
    dtype, mixed = None, False
    for r in raws:
        if type(r) is np.ndarray or is_raw(r):
            mixed = mixed or (dtype is not None and r.dtype != dtype)
            dtype = r.dtype
        elif isinstance(r, NUMBERS):
            mixed = mixed or r.__class__ not in (float, int)
        elif r is not None:
            raise TypeError(f"expected a Tensor or a number, got {type(r).__name__} {r!r}")
    if mixed or dtype is None or dtype.kind != "f":
        dtype = common_dtype(raws)
        if to_float and dtype.kind in "biu":
            dtype = dtypes.get_default_dtype()
        raws = [cast(r, dtype) for r in raws]
    return raws


def common_dtype(raws: Sequence[object]) -> np.dtype:
    """Returns the dtype of an operation on these arrays and numbers; None is ignored."""
    found = []
    for r in raws:
        if is_raw(r) or isinstance(r, (Tensor, Array)):
            found.append((r.dtype, 2 if r.ndim else 1))
        elif isinstance(r, NUMBERS):
            found.append((dtypes.dtype_of_number(r), 0))
        elif r is not None:
            raise TypeError(f"expected a Tensor or a number, got {type(r).__name__}")
    return dtypes.result_dtype(found)


def stands_for_number(x: object) -> bool:
    """Returns whether `x` stands for a number while a program is captured: see `tracing.numbers`."""
    return bool(forces) and hasattr(type(x), "noted")


def index_of(x: Any) -> int:
    """Returns `operator.index(x)`; of what stands for a size while a program is traced that, as an int."""
    return x.as_size() if forces and hasattr(type(x), "as_size") else operator.index(x)


def cast(r: object, dtype: np.dtype) -> Any:
    """Returns an array, a number or None in this dtype, as promotion does it."""
    if r is None:
        return r
    if isinstance(r, NUMBERS):
        if forces and stands_for_number(r):
            return r.noted("cast", dtype)
        try:
            dtype = FLOAT32 if dtype.kind == "V" else dtype  # what the arrays will be
            return dtype.type(r) if dtype.kind != "c" or isinstance(r, np.generic) else r
        except OverflowError:  # PyTorch keeps the low bits
            return np.asarray(r).astype(dtype)[()]
    return r if r.dtype == dtype else r.astype(dtype)


def as_raw(result: object) -> RawArray:
    """Returns a NumPy scalar as a 0-d array, and an array as it is."""
    return result if type(result) is np.ndarray or is_raw(result) else np.asarray(result)


def connect(
    call: Callable, args: Sequence, kwargs: dict, outs: Sequence[Tensor], vjp: Vjp, several: bool = False
) -> Node | None:
    """Records a call: gives its outputs a node, if an input needs a gradient.

    With `several`, all outputs are differentiable: each has a node of its own, which passes its gradient to
    the op's node, whose vjp gets the list of them. Without, only the first is.
    """
    if vjp is None or not _state.recording or not outs:
        return None
    raw = outs[0]._data._array
    if not several and raw.dtype.kind not in "fcV":  # integers have no gradient
        return None
    node = _record(call, args, kwargs, raw, vjp)
    if _state.anomaly is not None:
        _state.anomaly.check_forward(call.__name__.lstrip("_"), node, args, outs)
    if node is None:
        return None
    for out in outs:
        node.saved.append((out._version, out._version.count))
    if several:
        _connect_several(node, outs, vjp)
    else:
        outs[0]._node, node.tensor = node, weakref.ref(outs[0])
    return node


def _record(call: Callable, args: Sequence[object], kwargs: dict, raw: RawArray, vjp: Vjp) -> Node | None:
    """The node that leads from `raw` to the tensors among `args`; None if none needs a gradient."""
    for a in args:
        if isinstance(a, Tensor) and (a._node is not None or a._view is not None):
            break
    else:
        return None
    nothing = [None] * len(args)
    parents, kept, versions = nothing.copy(), list(args), nothing.copy()
    for i, a in enumerate(args):
        if isinstance(a, Tensor):
            parent = parents[i] = a._node if a._view is None else a.node
            versions[i] = a._version, a._version.count
            if parent is not None and parent.parents:
                kept[i] = None
    if parents == nothing:
        return None
    if type(vjp) is tuple and None in parents:  # drop what will not be called, and the arrays it holds
        vjp = tuple([f if parent else None for f, parent in zip(vjp, parents, strict=False)])
    device = CPU if type(raw) is np.ndarray else device_of(raw)
    recompute = new_recompute((call, tuple(kept), kwargs, versions))
    node = Node(call.__name__, tuple(parents), vjp, raw.shape, raw.dtype, device, versions, recompute)
    if _state.tape is not None:
        _state.tape.append(node)
    if (stream := _state.stream) is not None:
        stream.connect(node)
    return node


def _connect_several(node: Node, outs: Sequence[Tensor], vjp: Callable) -> None:
    """Gives each output a node of its own below the op's."""
    count = len(outs)
    node.shape, node.vjp = None, lambda grads: vjp(list(map(grads.get, range(count))))
    for i, out in enumerate(outs):
        raw = out._data._array
        if dtypes.is_inexact(raw.dtype):
            to_op = functools.partial(_output_grad, i)
            recompute = new_recompute((operator.itemgetter(i), (None,), {}, ()))
            out._watch(
                Node(f"{node.name}[{i}]", (node,), to_op, raw.shape, raw.dtype, node.device, (), recompute)
            )


def _output_grad(i: int, g: RawArray) -> OutputGrads:
    return OutputGrads({i: g})


def _mark_view(out: Tensor, x: object, step: tuple) -> None:
    """Makes `out` a view of `x`, with its version and base, if they share memory."""
    if isinstance(x, Tensor) and shares_memory(out._data._array, x._data._array):
        out._version = x._version
        above = x._view
        base, replay = (x, ()) if above is None else (above.base, above.replay)
        out._view = View(base, (*replay, step), above is not None and above.multiple)


def _several(
    call: Callable, args: Sequence[object], kwargs: dict, raws: Sequence[RawArray], vjp: Vjp, view: bool
) -> tuple:
    outs = tuple(map(from_raw, map(as_raw, raws)))
    connect(call, args, kwargs, outs, vjp, several=True)
    if view:
        for i, out in enumerate(outs):
            _mark_view(out, args[0], (_nth(call, i), args[1:], kwargs))
            if out._view is not None:
                out._view.multiple = True
    return outs


def _nth(call: Callable, i: int) -> Callable:
    return lambda *args, **kwargs: call(*args, **kwargs)[i]
