"""Checkpointing: less memory for activations, more computing.

The function runs as ever and leaves its nodes in the graph, but what they saved is freed. When backward
comes to the first of them, the function runs once more, with the same random numbers, and the new nodes give
the old ones what they had. So parameters, hooks, `grad()` and gradients of gradients work as without it.

Source: Chen, Xu, Zhang & Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016,
https://arxiv.org/abs/1604.06174
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from ..backends.door import in_force
from ..core.grad_mode import _state, enable_grad, is_grad_enabled
from ..core.graph import Deferred, Node
from ..core.overriding import overrides, overriding
from ..random import replayed, rng_states


def checkpoint(
    function: Callable, *args: Any, use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[AbstractContextManager, AbstractContextManager]] | None = None,
    preserve_rng_state: bool = True, determinism_check: str = "default", debug: bool = False, **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose activations are computed again in the backward pass instead of kept.

    Args:
        function: must do the same again: same inputs, same operations.
        use_reentrant, debug: for code written for PyTorch; there is one way here, which both values get.
        context_fn: returns two contexts, for the forward pass and for its repetition.
        preserve_rng_state: draw the same random numbers again (dropout).
        determinism_check: "default" compares the operations and shapes of both passes, "none" doesn't.

    Raises:
        RuntimeError: in backward, the second run made other operations than the first.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check is 'default' or 'none', got {determinism_check!r}")
    if not is_grad_enabled():
        return function(*args, **kwargs)
    in_force().once("a checkpoint, whose activations it would keep")
    first, second = (nullcontext(), nullcontext()) if context_fn is None else context_fn()
    states = rng_states() if preserve_rng_state else None
    settings = _state.autocast, overrides.modes, overrides.ignored
    others = [setting() for setting in _settings]
    with first, _taped() as tape:
        out = function(*args, **kwargs)

    def recompute() -> list[Node]:
        with (
            second,
            replayed(states) if states is not None else nullcontext(),
            enable_grad(),
            _as_in_forward(*settings),
            ExitStack() as stack,
            _taped() as new,
        ):
            for context in others:
                stack.enter_context(context())
            function(*args, **kwargs)
        return new

    _Region(tape, recompute, determinism_check == "default")
    return out


def checkpoint_sequential(
    functions: Sequence[Callable], segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """The functions (or the modules of a Sequential) one after the other, in `segments` checkpoints; as in
    PyTorch the last segment isn't one.

    Args:
        kwargs: `preserve_rng_state`, see `checkpoint`.
    """
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(functions) // segments

    def run(some: Sequence[Callable]) -> Callable:
        def chain(x: Any):
            for function in some:
                x = function(x)
            return x

        return chain

    for i in range(segments - 1):
        segment = run(functions[i * size : (i + 1) * size])
        input = checkpoint(segment, input, use_reentrant=use_reentrant, **kwargs)
    return run(functions[(segments - 1) * size :])(input)


_settings: list[Callable[[], Callable[[], AbstractContextManager]]] = []


def restored(setting: Callable[[], Callable[[], AbstractContextManager]]) -> Callable:
    """Registers a function that returns what makes a context with the present setting: the second run is in
    one; a decorator."""
    _settings.append(setting)
    return setting


@contextmanager
def _taped() -> Iterator[list[Node]]:
    """The nodes that are made inside, in their order; an outer tape has them as well."""
    outer, _state.tape = _state.tape, []
    tape = _state.tape
    try:
        yield tape
    finally:
        _state.tape = outer
        if outer is not None:
            outer.extend(tape)


@contextmanager
def _as_in_forward(autocast: dict | None, modes: tuple, ignored: int) -> Iterator[None]:
    """The casts of the forward pass, and what overrides functions in it."""
    before = _state.autocast, overrides.modes, overrides.ignored
    _state.autocast, overrides.modes, overrides.ignored = autocast, modes, ignored
    overriding.extend(modes)
    try:
        yield
    finally:
        _state.autocast, overrides.modes, overrides.ignored = before
        for _ in modes:
            overriding.pop()


class _Region:
    """The nodes of one checkpoint. They are held weakly: those of branches that led nowhere may go."""

    def __init__(self, tape: list[Node], recompute: Callable[[], list[Node]], checked: bool):
        self.nodes = [weakref.ref(node) for node in tape]
        self.steps = [(node.name, node.shape) for node in tape]
        self.recompute, self.checked = recompute, checked
        for i, node in enumerate(tape):
            self._defer(node, i)

    def _defer(self, node: Node, i: int) -> None:
        node.vjp, node.recompute, node.saved = Deferred(self.recover), None, ()
        self.nodes[i] = weakref.ref(node)

    def recover(self) -> None:
        """Run the function again and give the nodes what they had."""
        fresh = self.recompute()
        steps = [(node.name, node.shape) for node in fresh]
        if len(steps) != len(self.steps) or (self.checked and steps != self.steps):
            i = next((i for i, (a, b) in enumerate(zip(self.steps, steps, strict=False)) if a != b), -1)
            raise RuntimeError(
                f"checkpoint: the function made {len(self.steps)} operations in the forward pass and "
                f"{len(steps)} when it ran again"
                + (f"; number {i} was {self.steps[i]}, then {steps[i]}" if i >= 0 else "")
            )
        for i, new in enumerate(fresh):
            old = self.nodes[i]()
            if old is None or type(old.vjp) is not Deferred:
                continue
            if type(new.vjp) is Deferred:  # a checkpoint inside this one: its region now has the old node
                region = new.vjp.recover.__self__
                region._defer(old, region.nodes.index(weakref.ref(new)))
            else:
                old.vjp, old.recompute, old.saved = new.vjp, new.recompute, new.saved
