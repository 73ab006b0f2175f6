"""mytorch.compile: functions that are captured when they are called, and then run as programs."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import warnings
import weakref
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ...backends.device import META, RawArray, is_meta, refuse_tracing, thread
from ...core.grad_mode import _state
from ...core.tensor import Tensor
from ...nn.module import Module
from ..programs.host_functions import Mismatch
from ..programs.nested import leaves
from ..programs.numbers import Numbers
from ..programs.passes import check_mode
from ..programs.program import Program
from ..programs.snapshot import KINDS
from . import turns
from .backend import Backend, check_backend
from .keys import difference, key_of, modes, repeated
from .number_inputs import NumberInputs
from .splitting import Split, split
from .version import Version

_LIBRARY = sysconfig.get_path("stdlib")
LIMIT = 8  # captures of a function; other calls then run eagerly
_PACKAGE = str(Path(__file__).parents[2])
_functions: weakref.WeakSet[Compiled] = weakref.WeakSet()
_said: set[str] = set()  # warnings


class Compiled:
    """A function that runs as a program, for each kind of arguments another.

    Arguments differ in kind if tensors differ in shape, strides, dtype or `requires_grad`, and others in
    value, except numbers that are inputs: see `NumberInputs`. A program also depends on grad mode, autocast,
    `use_fused` and the default dtype, on the Python values that `Reachable` finds, and on the elements that
    the function reads (`if x.sum() > 0:`).

    Args:
        function: the function or module.
        fullgraph: raise where it would be split or run eagerly.
        mode, dynamic, backend: see `compile`.

    Attributes:
        history: for each capture what made it necessary, and what came of it, the version or text. Parts of
            a function that was split have their own.
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
        _functions.add(self)
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
        self.history: list[tuple[str, Version | str]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread.tracer is not None or _state.transforming:  # of another program, or `func`
            if self._split is not None:
                refuse_tracing("a compiled function that is split")
            return self._function(*args, **kwargs)
        if self._split is not None:
            return self._split.call(*args, **kwargs)
        seen = turns.wait() if turns.count % 2 else turns.count
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
                if version.writes and version.overlap(raws):
                    return self._function(*args, **kwargs)
                try:
                    whole = version.given(given) if version.places else given
                    result = version.partition(tensors, whole)
                except Mismatch as mismatch:
                    reason = reason or str(mismatch)
                    continue
                if entry is not self._versions[0]:
                    self._versions = [entry, *[e for e in self._versions if e is not entry]]
                return result
        if thread.default_device is META or any(map(is_meta, raws)):  # nothing would be computed
            return self._function(*args, **kwargs)
        if self._numbers.count(self._versions, key) >= LIMIT:
            return self._function(*args, **kwargs)
        if not turns.begin(seen):
            return self(*args, **kwargs)
        try:
            reason = self._learn(key, reason, stale)
            numbers = [x for x in leaves((args, kwargs)) if type(x) in KINDS]
            version = self._captured(args, kwargs, raws, numbers, reason)
        finally:
            turns.end()
        if isinstance(version, Exception):  # other numbers may do
            self._last_key = key = _key(args, kwargs, ())
            return self._uncaptured(version, reason, key, args, kwargs)
        self._last_key = key = _key(args, kwargs, self._numbers.positions)
        self._versions = [(key, version), *self._versions]
        if version.writes and version.overlap(raws):
            return self._function(*args, **kwargs)
        return version.partition(tensors, version.given(self._numbers.given(raws, numbers)))

    def _learn(self, key: tuple, reason: str | None, stale: tuple[Version, ...]) -> str:
        """Makes inputs of numbers that have changed; returns why no version fits."""
        if reason is None:
            reason = difference(self._last_key, key)
            self._numbers.learn([k for k, version in self._versions if version is not None], key)
        self._numbers.learn_places({place for version in stale for place in version.changed_numbers()})
        return reason

    def _captured(
        self, args: tuple, kwargs: dict, raws: list, numbers: list, reason: str
    ) -> Version | Exception:  # fmt: skip
        """Returns a new version, or why there is none."""

        def capture(inputs: Numbers) -> Version:
            return Version(self._function, args, kwargs, raws, self._mode, self._backend, inputs)

        try:
            version = self._numbers.captured(capture, numbers)
        except Exception as error:  # whatever the function does on arrays without elements
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
        if not (self.is_callee and text in _said):  # the same of each layer of a model is said once
            _said.add(text)
            warnings.warn(text, stacklevel=4)

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


def _key(args: tuple, kwargs: dict, inputs: Container[int]) -> tuple:
    """Returns what programs depend on, with these numbers as inputs, as in `Compiled.__call__`."""
    lists = tensors, _, _ = [], [], []
    arguments, named = key_of(args, *lists, inputs), key_of(kwargs, *lists, inputs) if kwargs else ()
    return arguments, named, modes(), repeated(tensors)


def _place(error: BaseException, function: Callable) -> str:
    """Returns the line of the user's program at which an error was raised: "train.py:12"."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    users = [(file, line) for file, line in frames if not file.startswith((_PACKAGE, _LIBRARY))]
    if users:
        return f"{Path(users[-1][0]).name}:{users[-1][1]}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return type(function).__name__ if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


class OptimizedModule(Module):
    """A module whose calls run as programs: `compile(module)`.

    Its attributes are the module's, and the names in its `state_dict` begin with "_orig_mod.", as in PyTorch.

    Args:
        module: it is called with its hooks.
        others: fullgraph, mode, dynamic and backend, see `compile`.
    """

    def __init__(self, module: Module, *others: Any):
        super().__init__()
        del self.__dict__["training"]  # it is the module's
        self.__dict__["forward"] = Compiled(module, *others)
        self._orig_mod = module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_orig_mod", "_hooks"):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)


def compile(
    model: Callable | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable | None = "inductor", mode: str | None = None, options: dict | None = None,
    disable: bool = False,
) -> Any:  # fmt: skip
    """Returns a function or module that is captured as a program when it is called, and runs as that.

    Elementwise operations and reductions of rows become loops, and little is left of Python. Best for whole
    training steps, with `backward()` and `optimizer.step()` in them. For other arguments, modes or Python
    values than before it is captured again, eight times at most (see `compiler.explain`). A number that
    changes from call to call, among the arguments or what else it uses, becomes an input. At a statement that
    programs don't hold (`losses.append(loss.item())`, `print`) a function is split, after a warning: the
    statement runs eagerly, and what is around it as programs. So are functions and modules that it calls.

    Other effects of Python code (files, logs) happen during the capture only.

    Args:
        model: None returns a decorator.
        fullgraph: raise instead of splitting, or of running eagerly.
        mode: "max-autotune" measures several strategies for each loop when the function is captured, and
            keeps on disk which was the fastest: `print(compiled.programs()[0].strategies())`. With
            "reduce-overhead" programs on a GPU are replayed as CUDA graphs: see `on_gpu.Graphed`.
        dynamic: which numbers are inputs of programs: None for those that were seen to change, True for these
            and all among the arguments, False for none, each value of which is captured. Shapes are constants
            in any case, but with True captures for other shapes don't count towards the eight.
        backend: "eager" and "aot_eager" run programs as they were captured, without passes and loops: is it
            the capture, or the compiler, that is wrong? A function is called as `backend(program, inputs)`
            when a captured part runs for the first time, and returns the function of inputs that runs in
            place of the program. It doesn't get backward programs of their own, as a module's, which run as
            always. None is "inductor". See `compiler.list_backends`.
        options, other modes: for code written for PyTorch, without effect.
        disable: return `model` as it is.

    Raises:
        RuntimeError: an unknown mode or backend. When called: fullgraph, and the function can't be captured;
            it names the line.

    >>> @mytorch.compile
    ... def norm(x):
    ...     return x / (x * x).sum().sqrt()
    >>> norm(mytorch.tensor([3.0, 4.0]))
    tensor([0.60000 0.80000])
    """
    if model is None:
        named = {"fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode}
        return functools.partial(compile, **named, disable=disable)
    if not callable(model):
        raise TypeError(f"compile(): expected a function or a module, got {type(model).__name__}")
    if disable or isinstance(model, (Compiled, OptimizedModule)):
        return model
    check_mode(mode)
    backend = "inductor" if backend is None else backend
    check_backend(backend)
    made = OptimizedModule if isinstance(model, Module) else Compiled
    return made(model, fullgraph, mode, dynamic, backend)


def reset() -> None:
    """Makes all compiled functions forget their programs."""
    _said.clear()
    for function in [*_functions]:
        function.reset()


def explain(function: Callable) -> str:
    """Returns for each capture of a compiled function why it was necessary, and what came of it.

    Raises:
        TypeError: it isn't compiled.

    >>> double = mytorch.compile(lambda x: x * 2)
    >>> _ = double(mytorch.ones(2)), double(mytorch.ones(3))
    >>> print(mytorch.compiler.explain(double))
    1. first call
       <lambda>: 1 instructions
    2. an argument is float32[3], was float32[2]
       <lambda>: 1 instructions
    """
    compiled = function.forward if isinstance(function, OptimizedModule) else function
    if not isinstance(compiled, Compiled):
        raise TypeError(f"explain(): expected a compiled function, got {type(function).__name__}")
    return "\n".join(_explained(compiled))


def _explained(compiled: Compiled) -> Iterator[str]:
    for k, (reason, outcome) in enumerate(compiled.history, 1):
        yield from (f"{k}. {reason}", f"   {outcome}")
    for part in compiled.parts():
        name = getattr(part, "__name__", type(part._function).__name__)
        yield f"   {name}{'' if part.history else ': not called yet'}"
        yield from [f"     {line}" for line in _explained(part)]
