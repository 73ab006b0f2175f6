"""`mytorch.summary`: the layers of a model with shapes, parameters, floating-point operations and bytes."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.device import device, is_raw
from ..backends.dtypes import DTypeLike, get_default_dtype, is_floating_point
from ..backends.meta.storage import memory
from ..core.array import Array
from ..core.closure import closure_arrays
from ..core.graph import Node
from ..core.tensor import Tensor, raw_of
from ..nn import Buffer, Module, Parameter
from ..nn.uninitialized import is_lazy
from ..ops import empty, empty_like
from ..utils.nested import leaves
from .flop_counter import FlopCounterMode, aligned, with_parents, with_unit

HEAD = ("Layer", "Output", "Parameters", "FLOP forward", "backward", "Saved")


@dataclass
class LayerSummary:
    """A row of a summary: a module, with what is inside it.

    Attributes:
        path: its name in the model, "" for the model itself.
        kind: the name of its class.
        output: the shape of what its last call returned; of several tensors a list; None if it wasn't called.
        parameters: their number of elements.
        forward_flops, backward_flops: see `FlopCounterMode`.
        saved_bytes: of activations that are kept for the backward pass.
    """

    path: str
    kind: str
    output: Any = None
    parameters: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    saved_bytes: int = 0

    @property
    def depth(self) -> int:
        """How many modules it is in."""
        return self.path.count(".") + 1 if self.path else 0

    def cells(self) -> tuple[str, ...]:
        """Returns its row of the table."""
        name = f"{'  ' * self.depth}{self.path.rpartition('.')[2]} {self.kind}" if self.path else self.kind
        shape = "" if self.output is None else str(self.output)
        flops = map(with_unit, (self.forward_flops, self.backward_flops))
        return name, shape, f"{self.parameters:,}", *flops, bytes_text(self.saved_bytes)


@dataclass
class Summary:
    """What `summary` returns; printed, it is a table.

    Attributes:
        layers: the model, then all modules in it.
        trainable: the number of elements of the parameters that require gradients.
        parameter_bytes, buffer_bytes: of parameters and buffers, each once.
        peak_bytes: the most that forward and backward take, with parameters, buffers and gradients.
        shown_depth: down to which depth the table shows modules; None for all.
    """

    layers: list[LayerSummary]
    trainable: int
    parameter_bytes: int
    buffer_bytes: int
    peak_bytes: int
    shown_depth: int | None = None

    def __str__(self) -> str:
        rows = [HEAD]
        for layer in self.layers:
            if self.shown_depth is None or layer.depth <= self.shown_depth:
                rows.append(layer.cells())
        model = self.layers[0]
        return "\n".join([
            aligned(rows),
            f"{model.parameters:,} parameters, {self.trainable:,} of them trained: "
            f"{bytes_text(self.parameter_bytes)}; buffers {bytes_text(self.buffer_bytes)}",
            f"forward and backward: {with_unit(model.forward_flops + model.backward_flops)} FLOP, "
            f"at the peak {bytes_text(self.peak_bytes)}",
        ])

    __repr__ = __str__


def summary(
    model: Module, *inputs: object, dtype: DTypeLike = None, depth: int | None = None, **keywords: object
) -> Summary:
    """Returns the layers of a model as a tree with shapes, parameters, FLOP and bytes.

    A copy of the model on the device "meta" runs forward and backward once: it takes no memory, whatever the
    size, and the model isn't changed. It runs as without fused kernels: attention saves its weights.

    Args:
        model: a module, in training mode or not.
        inputs: of a call: shapes, or tensors and arrays, of which only the shapes and dtypes count; dicts,
            tuples and lists of these; numbers and None are passed as they are.
        dtype: of inputs that are shapes; that of the first parameter of floating-point numbers if None.
        depth: down to which depth the printed table shows modules; None for all.
        keywords: of the call, as the inputs; texts are passed as they are.

    Raises:
        TypeError: no Module, or an input that is something else.
        ValueError: a negative depth.

    >>> print(mytorch.summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (16, 4)))
    Layer        Output  Parameters  FLOP forward  backward  Saved
    --------------------------------------------------------------
    Sequential  (16, 2)          58        1.536K    2.048K  512 B
      0 Linear  (16, 8)          40        1.024K    1.024K    0 B
      1 ReLU    (16, 8)           0             0         0  512 B
      2 Linear  (16, 2)          18           512    1.024K    0 B
    58 parameters, 58 of them trained: 232 B; buffers 0 B
    forward and backward: 3.584K FLOP, at the peak 2.3 KiB
    """
    if not isinstance(model, Module):
        raise TypeError(f"summary(): the model is a Module, got {type(model).__name__}")
    if depth is not None and depth < 0:
        raise ValueError(f"summary(): depth is at least 0, got {depth}")
    before = memory.allocated
    with device("meta"):  # what forward makes is there, too
        dtype = _dtype_of(model) if dtype is None else dtype
        given = [_as_meta(x, dtype) for x in inputs]
        named = {name: x if isinstance(x, str) else _as_meta(x, dtype) for name, x in keywords.items()}
        return _summary(meta_copy(model), given, named, depth, before)


def _dtype_of(model: Module) -> DTypeLike:
    """Returns the dtype of the first parameter of floating-point numbers, else the default dtype."""
    dtypes = (p.dtype for p in model.parameters() if not is_lazy(p) and is_floating_point(p.dtype))
    return next(dtypes, get_default_dtype())


def _summary(
    model: Module, given: list, named: dict[str, object], depth: int | None, allocated_before: int
) -> Summary:
    layers = {path: LayerSummary(path, type(m).__name__) for path, m in model.named_modules()}
    for path, module in model.named_modules():
        module.register_forward_hook(_remember_shape(layers[path]))
    memory.reset_peak()
    with FlopCounterMode(display=False) as forward:
        outputs = list(_tensors(model(*given, **named)))
    tensors = [*model.parameters(), *model.buffers()]
    saved = _saved_bytes(outputs, [raw_of(t).storage for t in (*tensors, *_tensors([given, named]))])
    with FlopCounterMode(display=False) as backward:
        losses = [x.sum() for x in outputs if x.requires_grad]
        if losses:
            sum(losses[1:], losses[0]).backward()
    flops = [_flops(counter) for counter in (forward, backward)]
    for path, module in model.named_modules():
        layer = layers[path]
        layer.parameters = sum([p.data.size for p in module.parameters()])
        layer.forward_flops, layer.backward_flops = (counts.get(path, 0) for counts in flops)
        layer.saved_bytes = saved.get(path, 0)
    parameters = list(model.parameters())
    return Summary(
        list(layers.values()),
        sum([p.data.size for p in parameters if p.requires_grad]),
        sum([p.nbytes for p in parameters]),
        sum([b.nbytes for b in model.buffers()]),
        memory.peak - allocated_before,
        depth,
    )


def meta_copy(model: Module) -> Module:
    """Returns a copy of a module whose parameters, buffers and other tensors are on the device "meta"."""
    memo: dict[int, object] = {}
    for module in model.modules():
        for tensor in leaves([*vars(module).values()]):
            if isinstance(tensor, Tensor) and not is_lazy(tensor):
                memo[id(tensor)] = _tensor_copy(tensor)
    return copy.deepcopy(model, memo).to("meta")


def _tensor_copy(tensor: Tensor) -> Tensor:
    made = empty_like(tensor, device="meta")
    if isinstance(tensor, Buffer):
        return Buffer(made, persistent=tensor.persistent)
    return Parameter(made, tensor.requires_grad) if isinstance(tensor, Parameter) else made


def _as_meta(x: object, dtype: DTypeLike) -> Any:
    if isinstance(x, Tensor):
        return x.detach().to("meta")
    if isinstance(x, Array) or is_raw(x):
        return Tensor(x).to("meta")
    if isinstance(x, Sequence) and all(isinstance(n, (int, np.integer)) for n in x):
        return empty(tuple(x), dtype=dtype, device="meta")
    if isinstance(x, dict):
        return {name: _as_meta(value, dtype) for name, value in x.items()}
    if isinstance(x, (tuple, list)):
        items = [_as_meta(value, dtype) for value in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if x is None or isinstance(x, (bool, int, float)):
        return x
    raise TypeError(f"summary(): an input is a shape, a Tensor or an array, got {type(x).__name__}")


def _tensors(x: object) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        yield from _tensors(list(x.values()))
    elif isinstance(x, (tuple, list)):
        for item in x:
            yield from _tensors(item)


def _remember_shape(layer: LayerSummary) -> Callable:
    def hook(module, args, output):
        shapes = [tuple(x.shape) for x in _tensors(output)]
        layer.output = shapes[0] if len(shapes) == 1 else shapes or None

    return hook


def _flops(counter: FlopCounterMode) -> dict[str, int]:
    """Returns the counts by module, with those inside it; "" for all."""
    found = {path: sum(counts.values()) for path, counts in counter.get_flop_counts().items()}
    return {**found, "": counter.get_total_flops()}


def _saved_bytes(outputs: Iterable[Tensor], known: list) -> dict[str, int]:
    """Returns the bytes that vjps hold by module, with those inside it; "" for all.

    Memory that several vjps hold belongs to the first of them.
    """
    seen, found = {id(storage) for storage in known}, defaultdict(int)
    for node in sorted(_nodes(outputs), key=lambda node: node.instruction.number):
        for raw in closure_arrays(node.vjp):
            if is_raw(raw) and raw.device == "meta" and id(raw.storage) not in seen:
                seen.add(id(raw.storage))
                for path in ("", *with_parents(node.instruction.module)):
                    found[path] += raw.storage.nbytes
    return found


def _nodes(outputs: Iterable[Tensor]) -> list[Node]:
    """Returns the nodes of operations below the outputs."""
    stack, found = [x.node for x in outputs if x.node is not None], {}
    while stack:
        node = stack.pop()
        if node not in found and node.parents:
            found[node] = hasattr(node, "instruction")
            stack += [parent for parent in node.parents if parent is not None]
    return [node for node, was_recorded in found.items() if was_recorded]


def bytes_text(size: float) -> str:
    """Returns a number of bytes with a unit."""
    units = iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while size >= 1024 and unit != "TiB":
        size, unit = size / 1024, next(units)
    return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
