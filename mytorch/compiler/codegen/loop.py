"""Loops: several instructions on the elements, or the rows, of arrays in one pass."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FULL, ROW, COLUMN, SCALAR = "full", "row", "column", "scalar"

# The source of each function, in float32: Numba's, in which sums and differences are in the order written
# (see `in_order`), and Triton's.
EXPRESSIONS = {
    "add": ("plus({}, {})", "{} + {}"), "subtract": ("minus({}, {})", "{} - {}"),
    "multiply": ("times({}, {})", "{} * {}"), "divide": ("over({}, {})", "{} / {}"),
    "negative": ("-{}", "-{}"), "positive": ("{}", "{}"), "absolute": ("abs({})", "tl.abs({})"),
    "square": ("times({0}, {0})", "{0} * {0}"), "reciprocal": ("over(ONE, {})", "1.0 / {}"),
    "sqrt": ("np.sqrt({})", "tl.sqrt({})"), "exp": ("exp32({})", "tl.exp({})"),
    "tanh": ("tanh32({})", "tanh32({})"), "log": ("log32({})", "tl.log({})"),
    "log1p": ("log1p32({})", "log1p32({})"), "expm1": ("expm1_32({})", "expm132({})"),
    "sin": ("np.sin({})", "tl.sin({})"), "cos": ("np.cos({})", "tl.cos({})"),
    "trunc": ("np.trunc({})", "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))"),
    "floor": ("np.floor({})", "tl.floor({})"), "ceil": ("np.ceil({})", "tl.ceil({})"),
    "copysign": ("math.copysign({}, {})", "copysign32({}, {})"),
    "maximum": ("maximum32({}, {})", "larger({}, {})"), "minimum": ("minimum32({}, {})", "smaller({}, {})"),
    "where": ("({1} if {0} else {2})", "tl.where({}, {}, {})"),
    "less": ("{} < {}", "{} < {}"), "less_equal": ("{} <= {}", "{} <= {}"),
    "greater": ("{} > {}", "{} > {}"), "greater_equal": ("{} >= {}", "{} >= {}"),
    "equal": ("{} == {}", "{} == {}"), "not_equal": ("{} != {}", "{} != {}"),
    "logical_and": ("({} and {})", "{} & {}"), "logical_or": ("({} or {})", "{} | {}"),
    "logical_not": ("(not {})", "~{}"), ".copy": ("{}", "{}"),
}
REDUCTIONS = "sum", "max", "min"


class Step(NamedTuple):
    """A function of inputs "x0", …, of earlier steps "v0", …, and of numbers.

    Attributes:
        name: of EXPRESSIONS; of REDUCTIONS; or "take", the element of each row at an index.
        kind: whether there is a result for each element, for each row, or for each column.
        dtype: "float32" or "bool".
    """

    name: str
    args: tuple[str | float, ...]
    kind: str
    dtype: str = "float32"

    @property
    def reduces_rows(self) -> bool:
        """Whether it makes one number of the elements of a row."""
        return self.kind == ROW and (self.name in REDUCTIONS or self.name == "take")

    def steps(self) -> list[int]:
        """Returns the numbers of the steps among the arguments."""
        return [int(a[1:]) for a in self.args if isinstance(a, str) and a[0] == "v"]


@dataclass(frozen=True)
class Loop:
    """Steps over the elements of arrays that are (rows, n), all in C order.

    Attributes:
        inputs: of each, whether it is (rows, n), (rows,), (n,) or a single number.
        outputs: the numbers of the steps whose results are stored.
        places: the input in whose memory the result of a step is stored, as (step, input); see `in_place`.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    places: tuple[tuple[int, int], ...] = ()

    @property
    def is_flat(self) -> bool:
        """Whether rows don't matter."""
        return all(kind in (FULL, SCALAR) for kind in (*self.inputs, *[step.kind for step in self.steps]))

    @functools.cached_property
    def stages(self) -> tuple[int, ...]:
        """For each step the number of sweeps over the row that must be over before it."""
        stages: list[int] = []
        for step in self.steps:
            stages.append(max([stages[k] for k in step.steps()], default=0) + step.reduces_rows)
        return tuple(stages)

    @property
    def own(self) -> list[int]:
        """The outputs with arrays of their own."""
        return [k for k in self.outputs if k not in dict(self.places)]

    def may_store(self, k: int, x: int) -> bool:
        """Whether the result of a step may be stored in the memory of an input."""
        return self.inputs[x] == FULL == self.steps[k].kind and self.is_read_first(x)

    def is_read_first(self, x: int) -> bool:
        """Whether each element of an input is read before any result is stored in its place: in the only
        sweep, and not by a reduction, which follows what is stored."""
        for step, stage in zip(self.steps, self.stages, strict=True):
            reads = step.kind != ROW or step.reduces_rows
            if step.name == "take" or (reads and stage - step.reduces_rows > 0):
                return False
            if step.name in REDUCTIONS and f"x{x}" in step.args:
                return False
        return True

    def in_numpy(self, *arrays: np.ndarray) -> None:
        """Computes the same as the compiled loop, step by step; where there is no Numba."""
        *arrays, rows, n = arrays
        shapes = {FULL: (rows, n), ROW: (rows, 1), COLUMN: (n,), SCALAR: ()}
        pairs = zip(arrays, self.inputs, strict=False)
        values = {f"x{k}": x.reshape(shapes[kind]) for k, (x, kind) in enumerate(pairs)}
        stored = {f"v{k}": arrays[x] for k, x in self.places}
        stored |= {f"v{k}": y for k, y in zip(self.own, arrays[len(self.inputs) :], strict=True)}
        last_use = {a: k for k, step in enumerate(self.steps) for a in step.args}
        for k, step in enumerate(self.steps):
            args = [values[a] if isinstance(a, str) else np.float32(a) for a in step.args]
            if not any([isinstance(a, str) for a in step.args]):  # an array says on which device
                args[0] = np.full_like(arrays[0], args[0], np.float32, shape=())
            values[f"v{k}"] = _computed(step, args, (rows, n))
            for a in {*step.args} - stored.keys():
                if last_use[a] == k:
                    values.pop(a, None)  # its memory is free
        for name, y in stored.items():
            y.reshape(shapes[self.steps[int(name[1:])].kind])[...] = values[name]


def _computed(step: Step, args: list, shape: tuple[int, int]) -> np.ndarray:
    """Returns the result of a step for all elements, rows or columns."""
    if step.name == "take":
        return np.take_along_axis(*args, axis=1)
    if step.name in REDUCTIONS:
        options = {"axis": int(step.kind == ROW), "keepdims": step.kind == ROW}
        return getattr(np, step.name)(np.broadcast_to(args[0], shape), **options)
    result = getattr(np, step.name.lstrip("."))(*args)
    return np.broadcast_to(result, shape) if step.kind == FULL else result
