"""Compiled: a function that is traced when it is called, and then runs as a program."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..backends.device import META, RawArray, is_meta, thread
from ..backends.door import forces, in_force
from ..core.grad_mode import _state
from ..core.tensor import Tensor
from ..utils.nested import leaves
from . import trace_lock
from .backend import Backend
from .building import Options, build
from .cache_entry import CacheEntry, EagerEntry, GuardFailure
from .graph_breaks.splitting import Split, split
from .graph_breaks.watching import Changed
from .guards.keys import difference, key_of, key_of_call, repeated, shapes_of
from .guards.modes import modes
from .guards.number_inputs import NumberInputs
from .guards.snapshot import KINDS
from .program.program import Program
from .running import checked
from .running.host_functions import Mismatch
from .symbolic_sizes import SymbolicSizes
from .trace_errors import is_in_package, place_of
from .tracing.numbers import Numbers
from .tracing.sizes import Sizes
from .tracing.stale import Picked
from .witness import check_resized

LIMIT = 8  # traces for arguments of the same shapes; other calls then run eagerly
MOST_TRACES = 256  # in all; other calls then run eagerly
MOST_ENTRIES = 32
functions: weakref.WeakSet[Compiled] = weakref.WeakSet()
warned: set[str] = set()  # the texts of warnings


class Compiled:
    """A function that runs as a program, for each kind of arguments another.

    Arguments differ in kind if tensors differ in shape, strides, dtype, `requires_grad` or class, and others
    in value, except numbers that are inputs: see `NumberInputs`. A program also depends on grad mode,
    autocast, `use_fused` and the default dtype, on the Python values that `Reachable` finds, and on the
    elements that the function reads (`if x.sum() > 0:`).

    Args:
        function: the function or module.
        fullgraph: raise where there would be a graph break, or the function would run eagerly.
        mode, dynamic, backend: see `compile`.

    Attributes:
        history: for each trace what made it necessary, and what came of it, the cache entry while it is kept,
            or text. Parts of a function that was split have their own.
        eager_calls: the number of calls that ran eagerly because of a limit.
        is_callee: whether it is called by a function that was split, and compiled for that reason.
    """

    is_callee = False

    def __init__(
        self, function: Callable, fullgraph: bool = False, mode: str | None = None,
        dynamic: bool | None = None, backend: Backend = "inductor",
    ):
        functools.update_wrapper(self, function, updated=())
        self._function, self._fullgraph, self._mode, self._dynamic = function, fullgraph, mode, dynamic
        self._backend = backend
        functions.add(self)
        self.reset()

    def __reduce__(self) -> tuple:
        given = self._function, self._fullgraph, self._mode, self._dynamic, self._backend
        return Compiled, given  # copies trace for themselves

    def reset(self) -> None:
        """Forgets all programs."""
        self._entries: list[CacheEntry | EagerEntry] = []  # the one that ran last comes first
        self._last_key: tuple | None = None
        self._numbers, self.symbolic_sizes = NumberInputs(self._dynamic), SymbolicSizes(self._dynamic)
        self._split: Split | None = None
        self._picks, self._finds_changes = True, False
        self._retried: list[tuple] = []  # the keys of calls that are traced again
        self.history: list[tuple[str, CacheEntry | str]] = []
        self.eager_calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _state.transforming or (forces and thread.kinds):  # another program is traced, say
            if self._split is not None:
                in_force().once("a compiled function that is split")
            return self._function(*args, **kwargs)
        if self._split is not None:
            return self._split.call(*args, **kwargs)
        finished = trace_lock.wait() if trace_lock.is_tracing else trace_lock.finished
        tensors: list[Tensor] = []
        raws: list[RawArray] = []
        numbers: list[float | int] = []
        inputs = self._numbers.positions
        arguments = key_of(args, tensors, raws, numbers, inputs)  # as `key_of_call`, without the call
        named = key_of(kwargs, tensors, raws, numbers, inputs) if kwargs else ()
        key = arguments, named, modes(), repeated(tensors) if len(tensors) > 1 else ()
        given = self._numbers.given(raws, numbers) if inputs and numbers else raws
        failures: list[GuardFailure | Mismatch] = []
        for entry in self._entries:
            if entry.key == key:
                try:
                    result = entry.run(tensors, given, args, kwargs)
                except (GuardFailure, Mismatch) as failure:
                    failures.append(failure)
                    continue
                if entry is not self._entries[0]:
                    self._entries = [entry, *[x for x in self._entries if x is not entry]]
                return result
        return self._recompile(args, kwargs, finished, failures)

    def _recompile(
        self, args: tuple, kwargs: dict, finished: int, failures: Sequence[GuardFailure | Mismatch]
    ) -> Any:
        """Traces the function for arguments that no cache entry is for, and runs the new one; if that can't
        be, the function itself.

        Args:
            finished: the number of traces when the entries were looked at.
            failures: why entries that are for these arguments could not be used.
        """
        tensors: list[Tensor] = []
        raws: list[RawArray] = []
        key = key_of_call(args, kwargs, tensors, raws, [], self._numbers.positions)
        if thread.default_device is META or any(map(is_meta, raws)):  # nothing would be computed
            return self._function(*args, **kwargs)
        if self._count(key) >= LIMIT or len(self.history) >= MOST_TRACES:
            if len(self.history) >= MOST_TRACES and not self.eager_calls:
                self._warn(f"was traced {MOST_TRACES} times in all; other calls run eagerly")
            self.eager_calls += 1
            return self._function(*args, **kwargs)
        if not trace_lock.acquire(finished):
            return self(*args, **kwargs)
        try:
            self.symbolic_sizes.begin(key, tensors, self._entries)
            entry = None if failures else self._resized(args, kwargs, raws)
            if entry is None:
                reason = self._learn(key, failures)
                entry = self._traced(args, kwargs, raws, reason)
        finally:
            trace_lock.release()
        if isinstance(entry, Exception):
            return self._untraced(entry, reason, args, kwargs)
        return self._first_run(entry, args, kwargs)

    def _resized(self, args: tuple, kwargs: dict, raws: list[RawArray]) -> CacheEntry | None:
        """Returns a cache entry for arguments that differ in sizes alone, if it needs no trace.

        The first one of a symbolic trace is compared with a trace of its own, which nothing else is made of.
        """
        entry = self.symbolic_sizes.resized(raws)
        if entry is None:
            return None
        if checked.is_on() or not self.symbolic_sizes.is_compared:
            try:
                sizes = Sizes(entry.partition.choices)
                made = self._built(args, kwargs, raws, sizes)
                check_resized(entry.partition, made.partition, sizes)
            except Exception as error:  # also what the function does on arrays without elements
                if checked.is_on():
                    raise
                self.symbolic_sizes.give_up(error)
                return None
            self.symbolic_sizes.is_compared = True
        entry.partition.optimize(self._mode, self._backend)
        entry.prepare()
        return entry

    def _first_run(self, entry: CacheEntry, args: tuple, kwargs: dict) -> Any:
        """Keeps a new cache entry, and returns what it computes."""
        tensors: list[Tensor] = []
        raws: list[RawArray] = []
        self._last_key = entry.key = key_of_call(args, kwargs, tensors, raws, [], self._numbers.positions)
        others, dropped = self._entries[: MOST_ENTRIES - 1], self._entries[MOST_ENTRIES - 1 :]
        self._entries = [entry, *others]
        if dropped:
            self.history = [(reason, str(x) if x in dropped else x) for reason, x in self.history]
        given = self._numbers.given(raws, _numbers_in(args, kwargs))
        try:
            return entry.run(tensors, given, args, kwargs, asks_guards=False)
        except Mismatch:  # loops round otherwise: the sign of a sum near 0 may be another
            return self._function(*args, **kwargs)

    def _count(self, key: tuple) -> int:
        """Returns the number of entries that count towards the limit."""
        shapes = shapes_of(key)
        return len([entry for entry in self._entries if shapes_of(entry.key) == shapes])

    def _learn(self, key: tuple, failures: Sequence[GuardFailure | Mismatch]) -> str:
        """Makes inputs of numbers that have changed; returns why no entry could be used."""
        stale = [x.entry for x in failures if isinstance(x, GuardFailure)]
        self._numbers.learn_places({place for entry in stale for place in entry.changed_numbers()})
        if failures:
            return str(failures[0])
        self._numbers.learn([entry.key for entry in self._entries if isinstance(entry, CacheEntry)], key)
        is_second_attempt = self._last_key == key and key in self._retried
        return "a second attempt" if is_second_attempt else difference(self._last_key, key)

    def _traced(self, args: tuple, kwargs: dict, raws: list, reason: str) -> CacheEntry | Exception:
        """Returns a new cache entry, or why there is none."""
        try:
            entry = self.symbolic_sizes.built(lambda sizes: self._built(args, kwargs, raws, sizes))
        except Picked:  # the index of a view is a constant
            self._picks = False
            return self._traced(args, kwargs, raws, reason)
        except Exception as error:  # whatever the function does on arrays without elements
            if isinstance(error, Changed) and not self._finds_changes:  # which line does that?
                self._finds_changes = True
                return self._traced(args, kwargs, raws, reason)
            if self._fullgraph:
                place = place_of(error, self._function)
                raise RuntimeError(f"compile(fullgraph=True): {place}: {error}") from error
            return error
        self.symbolic_sizes.finish(entry)
        if self._numbers.has_learned:
            reason += ", and is an input from now on"
        self.history.append((reason, entry))
        if self._count(key_of_call(args, kwargs, [], [], [], ())) == LIMIT - 1:
            self._warn(f"was traced {LIMIT} times, the last time because {reason}; others run eagerly")
        return entry

    def _built(self, args: tuple, kwargs: dict, raws: list, sizes: Sizes | None) -> CacheEntry:
        """Returns a new cache entry, of a trace with these sizes.

        Raises:
            Exception: whatever the function does on arrays without elements.
        """
        options = Options(self._mode, self._backend, self._picks, self._finds_changes)

        def trace(inputs: Numbers) -> CacheEntry:
            if sizes is not None:
                sizes.forget()
            return build(self._function, args, kwargs, raws, inputs, options, sizes)

        return self._numbers.traced(trace, _numbers_in(args, kwargs))

    def _untraced(self, error: Exception, reason: str, args: tuple, kwargs: dict) -> Any:
        """Returns what a function does whose trace failed: eagerly this once if a package is the reason, else
        split from now on, or eagerly for these arguments."""
        self._last_key = key = key_of_call(args, kwargs, [], [], [], ())  # other numbers may do
        if is_in_package(error) and len(self._retried) < LIMIT and key not in self._retried:
            self._retried.append(key)  # packages often do more in their first call
            outcome = f"ran eagerly this once: {place_of(error, self._function)}: {error}"
            self.history.append((reason, outcome))
            return self._function(*args, **kwargs)
        make = functools.partial(Compiled, mode=self._mode, dynamic=self._dynamic, backend=self._backend)
        return self._broken(split(self._function, error, make), error, reason, args, kwargs)

    def _broken(self, made: Split | None, error: Exception, reason: str, args: tuple, kwargs: dict) -> Any:
        """Returns what a function does, split, or eagerly if it couldn't be; unless it raises an error as its
        trace did: that is the function's own, and the next call is traced again."""
        place, key = place_of(error, self._function), self._last_key
        outcome = f"runs eagerly for these arguments: {place}: {error}"
        if made is not None:
            outcome = made.described(place, error)
        before = self._entries, len(self.history)
        self._entries, self._split = [EagerEntry(self._function, key), *self._entries], made
        self.history.append((reason, outcome))
        has_place = made is None or (made.line is not None and not made.is_in_callee)
        is_programs = isinstance(error, NotImplementedError)
        if has_place and is_programs:
            self._warn(outcome)
        try:
            result = (self._function if made is None else made.call)(*args, **kwargs)
        except type(error):
            self._entries, self._split = before[0], None
            del self.history[before[1] :]
            raise
        if has_place and not is_programs:
            self._warn(outcome)
        return result

    def _warn(self, text: str) -> None:
        name = getattr(self._function, "__name__", type(self._function).__name__).partition(" line")[0]
        text = f"mytorch.compile: {name} {text}"
        if not (self.is_callee and text in warned):  # once for all layers of a model
            warned.add(text)
            warnings.warn(text, stacklevel=6)

    def programs(self) -> list[Program]:
        """Returns the programs that were traced so far, also of parts: forward, and backward where there is
        one."""
        partitions = [entry.partition for entry in self._entries if isinstance(entry, CacheEntry)]
        own = [program for x in partitions for program in (x.forward, x.backward) if program is not None]
        return own + [program for part in self.parts() for program in part.programs()]

    def parts(self) -> list[Compiled]:
        """Returns the parts of a function that was split, and what it calls that was."""
        return [] if self._split is None else [*self._split.parts, *self._split.callees.values()]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Makes it a method where it decorates one."""
        return self if instance is None else functools.partial(self, instance)


def _numbers_in(args: tuple, kwargs: dict) -> list[float | int]:
    return [x for x in leaves((args, kwargs)) if type(x) in KINDS]
