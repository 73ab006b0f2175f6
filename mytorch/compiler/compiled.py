"""Compiled: a function that is captured when it is called, and then runs as a program."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import warnings
import weakref
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from ..backends.device import META, RawArray, is_meta, thread
from ..backends.door import forces, in_force
from ..core.grad_mode import _state
from ..core.tensor import Tensor
from ..utils.nested import leaves
from . import capture_lock
from .backend import Backend
from .cache_entry import Version
from .graph_breaks.splitting import Split, split
from .graph_breaks.watching import Changed, frames_of
from .guards.keys import difference, key_of, modes, repeated
from .guards.number_inputs import NumberInputs
from .guards.snapshot import KINDS
from .program.program import Program
from .running.host_functions import Mismatch
from .tracing.numbers import Numbers
from .tracing.stale import Picked

_LIBRARY = sysconfig.get_path("stdlib")
LIMIT = 8  # captures of a function; other calls then run eagerly
_PACKAGE = str(Path(__file__).parents[1])
functions: weakref.WeakSet[Compiled] = weakref.WeakSet()
said: set[str] = set()  # warnings


class Compiled:
    """A function that runs as a program, for each kind of arguments another.

    Arguments differ in kind if tensors differ in shape, strides, dtype, `requires_grad` or class, and others
    in value, except numbers that are inputs: see `NumberInputs`. A program also depends on grad mode,
    autocast, `use_fused` and the default dtype, on the Python values that `Reachable` finds, and on the
    elements that the function reads (`if x.sum() > 0:`).

    Args:
        function: the function or module.
        fullgraph: raise where it would be split or run eagerly.
        mode, dynamic, backend: see `compile`.

    Attributes:
        history: for each capture what made it necessary, and what came of it, the version or text. Parts of
            a function that was split have their own.
        eager_calls: the number of calls that ran eagerly, since it was captured `LIMIT` times.
        is_callee: whether it is called by a function that was split, and compiled for that reason.
    """

    is_callee = False

    def __init__(
        self, function: Callable, fullgraph: bool = False, mode: str | None = None,
        dynamic: bool | None = None, backend: Backend = "inductor",
    ):  # fmt: skip
        functools.update_wrapper(self, function, updated=())
        self._function, self._fullgraph, self._mode, self._dynamic = function, fullgraph, mode, dynamic
        self._backend = backend
        functions.add(self)
        self.reset()

    def __reduce__(self) -> tuple:
        given = self._function, self._fullgraph, self._mode, self._dynamic, self._backend
        return Compiled, given  # copies capture for themselves

    def reset(self) -> None:
        """Forgets all programs."""
        self._versions: list[tuple[tuple | None, Version | None]] = []  # the last one that ran comes first
        self._last_key: tuple | None = None
        self._numbers = NumberInputs(self._dynamic)
        self._split: Split | None = None
        self._picks, self._watches = True, False
        self._retried: list[tuple] = []  # the keys of calls that are captured again
        self.history: list[tuple[str, Version | str]] = []
        self.eager_calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _state.transforming or (forces and thread.kinds):  # another program is captured, say
            if self._split is not None:
                in_force().once("a compiled function that is split")
            return self._function(*args, **kwargs)
        if self._split is not None:
            return self._split.call(*args, **kwargs)
        seen = capture_lock.wait() if capture_lock.count % 2 else capture_lock.count
        tensors: list[Tensor] = []
        raws: list[RawArray] = []
        numbers: list[float | int] = []
        inputs = self._numbers.positions
        arguments = key_of(args, tensors, raws, numbers, inputs)
        named = key_of(kwargs, tensors, raws, numbers, inputs) if kwargs else ()
        key = arguments, named, modes(), repeated(tensors) if len(tensors) > 1 else ()
        given = self._numbers.given(raws, numbers) if inputs and numbers else raws
        reason: str | None = None
        stale: tuple[Version, ...] = ()
        for entry in self._versions:
            if entry[0] != key:
                continue
            version = entry[1]
            if version is None:  # can't be captured
                return self._function(*args, **kwargs)
            change = version.change()
            if change is not None:
                reason = reason or change
                stale += (version,)
            else:
                if version.is_watched and version.must_run_eagerly(tensors, raws):
                    return self._function(*args, **kwargs)
                try:
                    whole = version.given(given) if version.places else given
                    result = version.partition(tensors, whole)
                except Mismatch as mismatch:
                    reason = reason or str(mismatch)
                    continue
                if version.flags:
                    version.set_flags()
                if entry is not self._versions[0]:
                    self._versions = [entry, *[e for e in self._versions if e is not entry]]
                return result
        return self._recompile(args, kwargs, seen, reason, stale)

    def _recompile(
        self, args: tuple, kwargs: dict, seen: int, reason: str | None, stale: tuple[Version, ...]
    ) -> Any:
        """Captures the function for arguments that no version is for, and runs that; if it can't, the
        function itself.

        Args:
            seen: the count of captures when the versions were looked at.
            reason: why one isn't for them, if not because of the arguments.
            stale: those for which something has changed.
        """
        tensors, raws, _ = lists = [], [], []
        key = _key(args, kwargs, self._numbers.positions, lists)
        if thread.default_device is META or any(map(is_meta, raws)):  # nothing would be computed
            return self._function(*args, **kwargs)
        if self._numbers.count(self._versions, key) >= LIMIT:
            self.eager_calls += 1
            return self._function(*args, **kwargs)
        if not capture_lock.begin(seen):
            return self(*args, **kwargs)
        try:
            reason = self._learn(key, reason, stale)
            numbers = [x for x in leaves((args, kwargs)) if type(x) in KINDS]
            version = self._captured(args, kwargs, raws, numbers, reason)
        finally:
            capture_lock.end()
        if isinstance(version, Exception):  # other numbers may do
            self._last_key = key = _key(args, kwargs, ())
            if _is_in_package(version) and len(self._retried) < LIMIT and key not in self._retried:
                self._retried.append(key)  # packages often do more in their first call
                outcome = f"ran eagerly this once: {_place(version, self._function)}: {version}"
                self.history.append((reason, outcome))
                return self._function(*args, **kwargs)
            return self._uncaptured(version, reason, key, args, kwargs)
        self._last_key = key = _key(args, kwargs, self._numbers.positions)
        self._versions = [(key, version), *self._versions]
        if version.is_watched and version.must_run_eagerly(tensors, raws):
            return self._function(*args, **kwargs)
        try:
            result = version.partition(tensors, version.given(self._numbers.given(raws, numbers)))
        except Mismatch:  # loops round otherwise: the sign of a sum that is nearly 0 may be another
            return self._function(*args, **kwargs)
        version.set_flags()
        return result

    def _learn(self, key: tuple, reason: str | None, stale: tuple[Version, ...]) -> str:
        """Makes inputs of numbers that have changed; returns why no version fits."""
        if reason is None:
            is_second_attempt = self._last_key == key and key in self._retried
            reason = "a second attempt" if is_second_attempt else difference(self._last_key, key)
            self._numbers.learn([k for k, version in self._versions if version is not None], key)
        self._numbers.learn_places({place for version in stale for place in version.changed_numbers()})
        return reason

    def _captured(
        self, args: tuple, kwargs: dict, raws: list, numbers: list, reason: str
    ) -> Version | Exception:  # fmt: skip
        """Returns a new version, or why there is none."""

        def capture(inputs: Numbers) -> Version:
            options = self._mode, self._backend, inputs, self._picks, self._watches
            return Version(self._function, args, kwargs, raws, *options)

        try:
            version = self._numbers.captured(capture, numbers)
        except Picked:  # the index of a view is a constant
            self._picks = False
            return self._captured(args, kwargs, raws, numbers, reason)
        except Exception as error:  # whatever the function does on arrays without elements
            if isinstance(error, Changed) and not self._watches:  # which line does that?
                self._watches = True
                return self._captured(args, kwargs, raws, numbers, reason)
            if self._fullgraph:
                place = _place(error, self._function)
                raise RuntimeError(f"compile(fullgraph=True): {place}: {error}") from error
            return error
        if self._numbers.has_learned:
            reason += ", and is an input from now on"
        self.history.append((reason, version))
        if self._numbers.count(self._versions, _key(args, kwargs, ())) == LIMIT - 1:
            self._warn(f"was captured {LIMIT} times, the last time because {reason}; others run eagerly")
        return version

    def _uncaptured(self, error: Exception, reason: str, key: tuple, args: tuple, kwargs: dict) -> Any:
        """Returns what a function does that can't be captured: split from now on, or eagerly for these
        arguments; unless that raises such an error, too, which then is the function's own."""
        make = functools.partial(Compiled, mode=self._mode, dynamic=self._dynamic, backend=self._backend)
        made = split(self._function, error, make)
        place = _place(error, self._function)
        outcome = f"runs eagerly for these arguments: {place}: {error}"
        if made is not None:
            outcome = made.described(place, error)
        before = self._versions, len(self.history)
        self._versions, self._split = [(key, None), *self._versions], made
        self.history.append((reason, outcome))
        has_place = made is None or made.line is not None and not made.is_in_callee
        is_programs = isinstance(error, NotImplementedError)
        if has_place and is_programs:
            self._warn(outcome)
        try:
            result = (self._function if made is None else made.call)(*args, **kwargs)
        except type(error):
            self._versions, self._split = before[0], None
            del self.history[before[1] :]
            raise
        if has_place and not is_programs:
            self._warn(outcome)
        return result

    def _warn(self, text: str) -> None:
        name = getattr(self._function, "__name__", type(self._function).__name__).partition(" line")[0]
        text = f"mytorch.compile: {name} {text}"
        if not (self.is_callee and text in said):  # the same of each layer of a model is said once
            said.add(text)
            warnings.warn(text, stacklevel=5)

    def programs(self) -> list[Program]:
        """Returns the programs that were captured so far, also of parts: forward, and backward where there is
        one."""
        versions = [version for _, version in self._versions if version is not None]
        own = [p for v in versions for p in (v.partition.forward, v.partition.backward) if p is not None]
        return own + [p for part in self.parts() for p in part.programs()]

    def parts(self) -> list[Compiled]:
        """Returns the parts of a function that was split, and what it calls that was."""
        return [] if self._split is None else [*self._split.parts, *self._split.callees.values()]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Makes it a method where it decorates one."""
        return self if instance is None else functools.partial(self, instance)


def _key(
    args: tuple, kwargs: dict, inputs: Container[int], lists: tuple[list, list, list] | None = None
) -> tuple:
    """Returns what programs depend on, with these numbers as inputs, as in `Compiled.__call__`; adds tensors,
    arrays and numbers to the lists."""
    lists = ([], [], []) if lists is None else lists
    arguments, named = key_of(args, *lists, inputs), key_of(kwargs, *lists, inputs) if kwargs else ()
    return arguments, named, modes(), repeated(lists[0])


def _place(error: BaseException, function: Callable) -> str:
    """Returns the line of the user's program at which an error was raised: "train.py:12"."""
    if users := _users_frames(error):
        return f"{Path(users[-1][0]).name}:{users[-1][1]}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return type(function).__name__ if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _users_frames(error: BaseException) -> list[tuple[str, int]]:
    """Returns the files and lines in which an error came about, without those of Python and the package."""
    frames = [(code.co_filename, line) for code, line in frames_of(error)]
    found = [(file, line) for file, line in frames if not file.startswith((_PACKAGE, "<frozen"))]
    return [x for x in found if x[0].endswith("py") and (_is_packages(x[0]) or not x[0].startswith(_LIBRARY))]


def _is_packages(file: str) -> bool:
    """Whether a file is that of an installed package."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _is_in_package(error: Exception) -> bool:
    """Whether it is an installed package that can't be captured."""
    frames = _users_frames(error) if isinstance(error, NotImplementedError) else []
    return bool(frames) and _is_packages(frames[-1][0])
