"""mytorch.compile: functions that are traced when they are called, and then run as programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..nn.module import Module
from .backend import check_backend
from .compiled import LIMIT, MOST_TRACES, Compiled, functions, warned
from .passes import check_mode


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
) -> Any:
    """Returns a function or module that is traced when it is called, and runs as a program from then on.

    Elementwise operations and reductions of rows become loops, and little is left of Python. Best for whole
    training steps, with `backward()` and `optimizer.step()` in them. For other arguments, modes or Python
    values than before it is traced again, eight times at most for the same shapes (see `compiler.explain`).

    A size that differs from an earlier one is symbolic: others need no trace then, where the function does
    the same with them; the first of them is compared with one. `if x.shape[0] > 4:` has a trace for each
    answer; sizes 0 and 1, and those whose exact values the function needs (`range(len(x))`), have cache
    entries of their own, of which the 32 that were used last are kept. A number that changes from call to
    call, among the arguments or what else the function uses, becomes an input.

    At a statement that programs don't hold (`losses.append(loss.item())`, `print`), or that uses what can't
    be compared (clocks, locks, files, iterators), there is a graph break, after a warning: the statement runs
    eagerly, and what is around it as programs. So do functions and modules that the function calls.

    Args:
        model: None returns a decorator.
        fullgraph: raise instead of a graph break, or of running eagerly.
        mode: "max-autotune" measures several strategies for each loop when the function is traced, and
            keeps on disk which was the fastest: `print(compiled.programs()[0].strategies())`. With
            "reduce-overhead" programs on a GPU are replayed as CUDA graphs: see `on_gpu.Graphed`.
        dynamic: which sizes are symbolic, and which numbers are inputs of programs: None for those that were
            seen to change, True for these and all numbers among the arguments, False for none. See also
            `compiler.mark_dynamic` and `mark_static`.
        backend: "eager" and "aot_eager" run programs as they were traced, without passes and loops: is it
            the trace, or the compiler, that is wrong? A function is called as `backend(program, inputs)`
            when a traced part runs for the first time, and returns the function of inputs that runs in
            place of the program. It doesn't get backward programs of their own, as a module's, which run as
            always. None is "inductor". See `compiler.list_backends`.
        options, other modes: for code written for PyTorch, without effect.
        disable: return `model` as it is.

    Raises:
        RuntimeError: an unknown mode or backend. When called: fullgraph, and the function can't be traced;
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


def _in_place(module: Module, **options: Any) -> None:
    """Makes `forward` run as programs from now on, in place: see `mytorch.compile`, also for the options.

    >>> model = mytorch.nn.Linear(2, 2)
    >>> model.compile(fullgraph=True)
    >>> model(mytorch.ones(3, 2)).shape, [*model.state_dict()]
    (Size([3, 2]), ['weight', 'bias'])
    """
    module.__dict__["forward"] = compile(module.forward, **options)


Module.compile = _in_place  # it can't be in the class, which doesn't know of programs


def reset() -> None:
    """Makes all compiled functions forget their programs."""
    warned.clear()
    for function in [*functions]:
        function.reset()


def explain(function: Callable) -> str:
    """Returns for each trace of a compiled function why it was necessary, and what came of it; then for how
    many other sizes there was none, or why sizes are constants.

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
    compiled = function.forward if isinstance(function, Module) else function
    if not isinstance(compiled, Compiled):
        raise TypeError(f"explain(): expected a compiled function, got {type(function).__name__}")
    return "\n".join(_explained(compiled))


def _explained(compiled: Compiled) -> Iterator[str]:
    for k, (reason, outcome) in enumerate(compiled.history, 1):
        yield from (f"{k}. {reason}", f"   {outcome}")
    yield from [f"   {line}" for line in compiled.symbolic_sizes.described()]
    if compiled.eager_calls:
        count = f"{compiled.eager_calls} call{'s' * (compiled.eager_calls > 1)}"
        limit = MOST_TRACES if len(compiled.history) >= MOST_TRACES else LIMIT
        yield f"   {count} ran eagerly, as it was traced {limit} times, which is the limit"
    for part in compiled.parts():
        name = getattr(part, "__name__", type(part._function).__name__)
        yield f"   {name}{'' if part.history else ': not called yet'}"
        yield from [f"     {line}" for line in _explained(part)]
