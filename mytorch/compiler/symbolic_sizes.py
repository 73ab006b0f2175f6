"""Which sizes of a compiled function's arguments may be others, without another trace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from weakref import finalize

from ..backends.device import RawArray
from ..backends.meta.layout import layout
from ..core.tensor import Tensor
from .cache_entry import CacheEntry, EagerEntry
from .guards.keys import kind_of
from .tracing.expressions import NotSymbolic
from .tracing.sizes import Sizes
from .witness import SymbolicTrace

_MOST_TRACES = 8
_ATTEMPTS = 3  # failed ones, after which sizes of one kind of arguments are constants


class _Marks:
    """Dims of tensors that are marked."""

    def __init__(self) -> None:
        self._dims: dict[int, set[int]] = {}  # by the ids of the tensors, while these live

    def add(self, t: Tensor, dim: int) -> None:
        if id(t) not in self._dims:
            self._dims[id(t)] = set()
            finalize(t, self._dims.pop, id(t)).atexit = False
        self._dims[id(t)].add(dim)

    def of(self, t: object) -> Collection[int]:
        return self._dims.get(id(t), ())


_dynamic = _Marks()
_static = _Marks()


def mark_dynamic(t: Tensor, index: int | Sequence[int]) -> None:
    """Says that dims of a tensor will have several sizes in calls of compiled functions.

    Without it, they are symbolic from the second size on, too. With it, a call raises an error when three
    traces have shown that they can't be.

    >>> x = mytorch.ones(4, 3)
    >>> mytorch.compiler.mark_dynamic(x, 0)
    """
    _mark(_dynamic, t, index)


def mark_static(t: Tensor, index: int | Sequence[int] | None = None) -> None:
    """Says that dims of a tensor, None for all, are constants: compiled functions are traced for each size.

    >>> x = mytorch.ones(4, 3)
    >>> mytorch.compiler.mark_static(x, 1)
    """
    _mark(_static, t, range(t.ndim) if index is None else index)


def _mark(marks: _Marks, t: Tensor, index: int | Sequence[int]) -> None:
    for dim in (index,) if isinstance(index, int) else index:
        if not -t.ndim <= dim < t.ndim:
            raise IndexError(f"there is no dim {dim} of a tensor of shape {list(t.shape)}")
        marks.add(t, dim % t.ndim)


class SymbolicSizes:
    """The traces of one function whose sizes are symbolic.

    Args:
        dynamic: see `compile`.

    Attributes:
        made: the number of cache entries without a trace.
    """

    def __init__(self, dynamic: bool | None):
        self._is_on, self.made = dynamic is not False, 0
        self._reasons: dict[tuple, str] = {}  # by the kind of arguments
        self._attempts: dict[tuple, int] = {}
        self._traces: list[tuple[tuple, SymbolicTrace, CacheEntry]] = []

    def begin(
        self, key: tuple, tensors: Sequence[Tensor], entries: Sequence[CacheEntry | EagerEntry]
    ) -> None:
        """Decides whether sizes are symbolic in the next trace: if they differ from those of an earlier one.

        Args:
            key: of the arguments.
            tensors: among these.
            entries: the earlier ones.
        """
        self._tensors = tensors
        self._kind = kind_of(key, map(_static.of, tensors))
        traced = [x for x in entries if isinstance(x, CacheEntry) and x.kind == self._kind]
        self._witnesses = [x for x in traced if x.key != key]
        self._sizes: Sizes | None = None

    def built(self, build: Callable[[Sizes | None], CacheEntry]) -> CacheEntry:
        """Returns a cache entry that `build` makes, with what notes sizes in its trace, if they are
        symbolic."""
        may_be = self._is_on and self._witnesses and self._attempts.get(self._kind, 0) < _ATTEMPTS
        self._sizes = Sizes(self._witnesses[0].partition.choices) if may_be else None
        try:
            entry = build(self._sizes)
        except NotImplementedError:  # what a program can't hold, whatever the sizes are
            raise
        except Exception as error:  # `n >> 1`: what stands for a size is no int
            if self._sizes is None:
                raise
            self._sizes, entry = None, build(None)
            self._fail([NotSymbolic(f"{type(error).__name__}: {error}")])
            return entry
        if self._sizes is not None and self._sizes.escaped():
            self._fail([NotSymbolic("the function keeps one in an object that isn't watched")])
            self._sizes = None
            entry = build(None)
        return entry

    def finish(self, entry: CacheEntry) -> None:
        """Takes a new cache entry.

        Raises:
            RuntimeError: sizes that were marked as dynamic are constants.
        """
        entry.kind = self._kind
        if self._sizes is None:
            return
        errors: list[NotSymbolic] = []
        try:
            trace = SymbolicTrace(entry.partition, self._sizes)
        except NotSymbolic as error:
            self._fail([error])
            return
        for witness in self._witnesses:
            try:
                trace.witness(witness.partition)
            except NotSymbolic as error:
                errors.append(error)
        if trace.is_witnessed:
            self._traces = [(self._kind, trace, entry), *self._traces[: _MOST_TRACES - 1]]
            self._attempts[self._kind] = 0
        else:
            self._fail(errors)

    def _fail(self, errors: Sequence[NotSymbolic]) -> None:
        self._attempts[self._kind] = self._attempts.get(self._kind, 0) + 1
        self._reasons[self._kind] = reason = f"sizes are constants: {errors[0]}"
        if self._attempts[self._kind] == _ATTEMPTS and any(map(_dynamic.of, self._tensors)):
            raise RuntimeError(f"mark_dynamic(): {reason}")

    @property
    def is_compared(self) -> bool:
        """Whether a program that the last `resized` has made was compared with a trace, as one of each
        symbolic trace is."""
        return self._used.is_compared

    @is_compared.setter
    def is_compared(self, value: bool) -> None:
        self._used.is_compared = value

    def give_up(self, error: Exception) -> None:
        """Makes sizes of the last kind of arguments constants: a third size isn't what the trace becomes."""
        self._traces = [x for x in self._traces if x[1] is not self._used]
        self._attempts[self._kind] = _ATTEMPTS - 1
        self.made -= 1
        self._fail([NotSymbolic(str(error))])

    def described(self) -> list[str]:
        """Returns what is to be said of sizes, as lines."""
        made = [f"for {self.made} other size{'s' * (self.made > 1)} without a trace"] if self.made else []
        symbolic = {kind for kind, *_ in self._traces}
        return [*made, *dict.fromkeys([text for kind, text in self._reasons.items() if kind not in symbolic])]

    def resized(self, raws: Sequence[RawArray]) -> CacheEntry | None:
        """Returns a cache entry for arrays of other sizes that needs no trace, if there is one."""
        for kind, trace, entry in self._traces:
            if kind != self._kind or entry.failure() is not None:
                continue
            numbers = len(entry.partition.traced[0].inputs) - len(raws)
            layouts = [layout(x.shape, x.strides, x.dtype) for x in raws]
            try:
                partition = trace.resized([*layouts, *[None] * numbers])
            except NotSymbolic as error:
                self.last_error = error
                continue
            self.made += 1
            self._used = trace
            return entry.resized(partition)
        return None
