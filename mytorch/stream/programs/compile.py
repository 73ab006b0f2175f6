"""mytorch.compile: functions that are captured when they are called, and then run as programs."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ...backends.device import RawArray, device_of, refuse_tracing, thread
from ...core.tensor import Tensor
from ...nn.module import Module
from .boundary import refuse_arguments, refuse_changes, refuse_objects, refuse_views
from .capture import traced
from .host import Mismatch
from .keys import difference, key_of, modes
from .partition import Partition
from .passes import check_mode
from .program import Program, Value, fits, leaves
from .reachable import Comparison, Reachable
from .splitting import Prints, Split, split
from .syntax import is_part, place_of_print
from .tracing import Tracer

_LIBRARY = sysconfig.get_path("stdlib")
LIMIT = 8  # captures of a function; other calls then run eagerly
_PACKAGE = str(Path(__file__).parents[2])
_EFFECTS = {f"host.{name}" for name in ("set_grad", "step", "call", "norm", "draw", "kept", "random")}
_functions: weakref.WeakSet[Compiled] = weakref.WeakSet()


class Compiled:
    """A function that runs as a program, for each kind of arguments another.

    Arguments differ in kind if tensors differ in shape, strides, dtype or `requires_grad`, and others in
    value. A program also depends on grad mode, autocast, `use_fused` and the default dtype, on the Python
    values that `Reachable` finds, and on the elements that the function reads (`if x.sum() > 0:`).

    Args:
        function: the function or module.
        fullgraph: raise where it would be split or run eagerly.
        mode: see `compile`.

    Attributes:
        history: for each capture what made it necessary, and what came of it, the version or text. Parts of
            a function that was split have their own.
    """

    def __init__(self, function: Callable, fullgraph: bool = False, mode: str | None = None):
        functools.update_wrapper(self, function, updated=())
        self._function, self._fullgraph, self._mode = function, fullgraph, mode
        _functions.add(self)
        self.reset()

    def __reduce__(self) -> tuple:
        return Compiled, (self._function, self._fullgraph, self._mode)  # copies capture for themselves

    def reset(self) -> None:
        """Forgets all programs."""
        self._versions: list[tuple[tuple | None, _Version | None]] = []  # the last one that ran comes first
        self._last_key: tuple | None = None
        self._split: Split | None = None
        self.history: list[tuple[str, _Version | str]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread.tracer is not None:  # a part of the program that is captured now
            if self._split is not None or place_of_print(self._function) is not None:
                refuse_tracing("a compiled function that is split")
            return self._function(*args, **kwargs)
        if self._split is not None:
            return self._split.call(*args, **kwargs)
        tensors: list[Tensor] = []
        raws: list[RawArray] = []
        key = (key_of(args, tensors, raws), key_of(kwargs, tensors, raws) if kwargs else (), modes())
        reason = None
        for entry in self._versions:
            if entry[0] != key:
                continue
            version = entry[1]
            if version is None:  # can't be captured
                return self._function(*args, **kwargs)
            reason = version.change()
            if reason is None:
                if version.writes and version.overlap(raws):
                    return self._function(*args, **kwargs)
                try:
                    result = version.partition(tensors, raws)
                except Mismatch as mismatch:
                    reason = str(mismatch)
                    continue
                if entry is not self._versions[0]:
                    self._versions = [entry, *[e for e in self._versions if e is not entry]]
                return result
        if len(self.history) >= LIMIT:
            return self._function(*args, **kwargs)
        reason = reason or difference(self._last_key, key)
        version = self._captured(args, kwargs, raws, reason)
        self._last_key = key
        if isinstance(version, Exception):
            return self._uncaptured(version, reason, key, args, kwargs)
        self._versions = [(key, version), *self._versions]
        if version.writes and version.overlap(raws):
            return self._function(*args, **kwargs)
        return version.partition(tensors, raws)

    def _captured(self, args: tuple, kwargs: dict, raws: list, reason: str) -> _Version | Exception:
        """Returns a new version, or why there is none."""
        try:
            if (place := place_of_print(self._function)) is not None:
                raise Prints(*place)
            version = _Version(self._function, args, kwargs, raws, self._mode)
        except Exception as error:  # whatever the function does on arrays without elements
            if self._fullgraph:
                place = _place(error, self._function)
                raise RuntimeError(f"compile(fullgraph=True): {place}: {error}") from error
            return error
        self.history.append((reason, version))
        if len(self.history) == LIMIT:
            self._warn(f"was captured {LIMIT} times, the last time because {reason}; others run eagerly")
        return version

    def _uncaptured(self, error: Exception, reason: str, key: tuple, args: tuple, kwargs: dict) -> Any:
        """Returns what a function does that can't be captured: split from now on, or eagerly for these
        arguments; unless that raises such an error, too, which then is the function's own."""
        made = split(self._function, error, functools.partial(Compiled, mode=self._mode))
        place = _place(error, self._function)
        outcome = f"runs eagerly for these arguments: {place}: {error}"
        if made is not None:
            outcome = made.described(place, error)
        before = self._versions, len(self.history)
        self._versions, self._split = [(key, None), *self._versions], made
        self.history.append((reason, outcome))
        has_place = made is None or made.line is not None
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
        warnings.warn(f"mytorch.compile: {name} {text}", stacklevel=4)

    def programs(self) -> list[Program]:
        """Returns the programs that were captured so far, also of parts: forward, and backward where there is
        one."""
        versions = [version for _, version in self._versions if version is not None]
        own = [p for v in versions for p in (v.partition.forward, v.partition.backward) if p is not None]
        return own + [p for part in self.parts() for p in part.programs()]

    def parts(self) -> list[Compiled]:
        """Returns the parts of a function that was split."""
        return [] if self._split is None else self._split.parts

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Makes it a method where it decorates one."""
        return self if instance is None else functools.partial(self, instance)


class _Version:
    """A program for one kind of arguments."""

    def __init__(self, function: Callable, args: tuple, kwargs: dict, raws: list, mode: str | None):
        self._raws = raws
        others = [x for x in leaves((args, kwargs)) if not isinstance(x, Tensor)]
        if is_part(function):
            refuse_arguments(others)
        self._reachable = Reachable(function, *others)
        try:
            self._capture(function, args, kwargs)
        finally:
            change = self._reachable.undo()
            self._reachable.seen.clear()
        if change is not None:
            raise NotImplementedError(f"a program can't hold what it does to Python's objects: {change}")
        self._owners = [x for x in self._owners if x[0]() is not None]  # without those it made of arrays
        self._have_grads = self._grads()
        del self._raws
        self._arrays = [raw for _, _, raw, _ in self._owners]
        self._have_arrays = self._comparison()
        self.partition.optimize(mode)
        self.writes = self.partition.forward.executable().writes

    def _capture(self, function: Callable, args: tuple, kwargs: dict) -> None:
        with traced(function, args, kwargs, self._reachable.tensors, self._answer) as found:
            self._owners = [
                (weakref.ref(owner), value, found.tracer.state[value], owner.requires_grad)
                for value, owner in found.tracer.owners.items()
            ]
            if any([x._grad is not None for x in found.arguments if isinstance(x, Tensor)]):
                raise NotImplementedError("backward() would set the .grad of an argument")
            refuse_changes(found)
            refuse_objects(found, self._reachable.seen)
            if is_part(function):
                refuse_views(found)
            names = {i.name for i in found.tracer.instructions}
            self.partition = Partition(found)
        names |= self._reachable.names & {"grad", "zero_grad"}  # of None it makes no instruction
        self._depends_on_grads = not names.isdisjoint({"host.grad", "host.set_grad", "grad", "zero_grad"})

    def _answer(self, tracer: Tracer, value: Value) -> Any:
        """Returns the element that the function asks for: what the program so far computes.

        Raises:
            NotImplementedError: it is no bool or integer, or the program has done more than to compute.
        """
        if value.dtype.kind not in "biu":
            raise NotImplementedError(
                f"it asks for the element of an array of {value.dtype}, which may differ each time; "
                "return the tensor, and ask outside"
            )
        if any([i.written or i.name in _EFFECTS for i in tracer.instructions]):
            raise NotImplementedError("it asks for an element after it has written in place or drawn numbers")
        with tracer.suspended():
            answer = tracer.program(value).executable()(*self._raws).item()
        tracer.host("expect", value, answer)
        return answer

    def _comparison(self) -> Callable[[], bool]:
        """Returns whether tensors of the state have their arrays, and need gradients as in the capture."""
        comparison = Comparison()
        arrays = comparison.name(self._arrays)
        for k, (reference, _, _, requires_grad) in enumerate(self._owners):
            comparison.terms += [
                f"(x := {comparison.name(reference)}()) is not None", f"x._data._array is {arrays}[{k}]",
                f"(x._node is not None) is {requires_grad}",
            ]  # fmt: skip
        return comparison.compiled()

    def change(self) -> str | None:
        """Returns what has changed since the capture; None if the program still holds."""
        if not self._have_arrays():
            for k, (reference, value, raw, requires_grad) in enumerate(self._owners):
                if (change := self._change_of(k, reference(), value, raw, requires_grad)) is not None:
                    return change
        if self._depends_on_grads and self._grads() != self._have_grads:
            ours, then = ([has for has, _ in found] for found in (self._grads(), self._have_grads))
            if ours == then:
                return "a parameter has other hooks"
            return "parameters have a .grad where they had none, or none where they had one"
        return self._reachable.change()

    def _change_of(
        self, k: int, owner: Tensor | None, value: Value, raw: RawArray, requires_grad: bool
    ) -> str | None:  # fmt: skip
        """Returns what has changed about a tensor of the state; the program gets its new array."""
        if owner is None:
            return "a tensor of the state is gone"
        now = owner._data._array
        if now is not raw:
            target = self.partition.forward.device
            if not fits(now, value, target):
                old, new = f"{value.dtype}{list(value.shape)}", f"{now.dtype}{list(now.shape)}"
                return f"a tensor of the state is {new} on {device_of(now)}, was {old} on {target}"
            self._owners[k] = weakref.ref(owner), value, now, requires_grad
            self._arrays[k] = now
            self.partition.forward.executable().bind()
        if owner.requires_grad != requires_grad:
            return f"requires_grad of a tensor of the state of shape {list(value.shape)} has changed"
        return None

    def _grads(self) -> list[tuple[bool, tuple]]:
        """Returns of each tensor of the state whether it has a gradient, and the hooks of it."""
        owners = [reference() for reference, *_ in self._owners]
        return [
            (x._grad is None, () if x._node is None or not x._node.hooks else tuple(x._node.hooks.values()))
            for x in owners
        ]

    def overlap(self, raws: list) -> bool:
        """Returns whether the program would write to memory that another tensor shares: see `Executable`."""
        return self.partition.forward.executable().overlap(raws)

    def __str__(self) -> str:
        programs = [p for p in (self.partition.forward, self.partition.backward) if p is not None]
        counts = [f"{p.name}: {len(p.instructions)} instructions" for p in programs]
        return ", ".join([*counts, *filter(None, [str(self.partition.graph)])])


def _place(error: BaseException, function: Callable) -> str:
    """Returns the line of the user's program at which an error was raised: "train.py:12"."""
    if isinstance(error, Prints):
        return f"{Path(error.file).name}:{error.line}"
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
        fullgraph, mode: see `compile`.
    """

    def __init__(self, module: Module, fullgraph: bool = False, mode: str | None = None):
        super().__init__()
        self.__dict__["forward"] = Compiled(module, fullgraph, mode)
        self._orig_mod = module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_orig_mod", "training", "_hooks"):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)


def compile(
    model: Callable | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable = "inductor", mode: str | None = None, options: dict | None = None,
    disable: bool = False,
) -> Any:  # fmt: skip
    """Returns a function or module that is captured as a program when it is called, and runs as that.

    Elementwise operations and reductions of rows become loops, and little is left of Python. Best for whole
    training steps, with `backward()` and `optimizer.step()` in them. For other arguments, modes or Python
    values than before it is captured again, eight times at most (see `compiler.explain`). At a statement that
    programs don't hold (`losses.append(loss.item())`, `print`) a function is split, after a warning: the
    statement runs eagerly, and what is around it as programs.

    Other effects of Python code (prints of functions that it calls, files) happen during the capture only.

    Args:
        model: None returns a decorator.
        fullgraph: raise instead of splitting, or of running eagerly.
        mode: "max-autotune" measures several strategies for each loop when the function is captured, and
            keeps on disk which was the fastest: `print(compiled.programs()[0].strategies())`. With
            "reduce-overhead" programs on a GPU are replayed as CUDA graphs: see `on_gpu.Graphed`.
        dynamic, backend, options, other modes: for code written for PyTorch, without effect.
        disable: return `model` as it is.

    Raises:
        RuntimeError: an unknown mode. When called: fullgraph, and the function can't be captured; it names
            the line.

    >>> @mytorch.compile
    ... def norm(x):
    ...     return x / (x * x).sum().sqrt()
    >>> norm(mytorch.tensor([3.0, 4.0]))
    tensor([0.60000 0.80000])
    """
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, mode=mode, disable=disable)
    if not callable(model):
        raise TypeError(f"compile(): expected a function or a module, got {type(model).__name__}")
    if disable or isinstance(model, (Compiled, OptimizedModule)):
        return model
    check_mode(mode)
    return (OptimizedModule if isinstance(model, Module) else Compiled)(model, fullgraph, mode)


def reset() -> None:
    """Makes all compiled functions forget their programs."""
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
        yield f"   {part.__name__}{'' if part.history else ': not called yet'}"
        yield from [f"     {line}" for line in _explained(part)]
