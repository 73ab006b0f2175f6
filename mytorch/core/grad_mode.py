"""Grad modes: whether the forward pass is recorded, per thread; contexts and decorators."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any


class _State(threading.local):
    recording = True
    anomaly: Any = None  # what checks the forward and backward pass for NaNs; see `autograd.anomaly`
    tape: list | None = None  # the nodes made while a checkpoint runs; see `checkpoint`
    autocast: dict | None = None  # the dtype of products by kind of device; see `amp`
    backward_pass: Any = None  # the one that runs; see `engine`
    transforming = False  # whether a function runs that `func` differentiates
    stream: Any = None  # what records all threads' operations: set on the class; see `mytorch.stream`


_state = _State()


def is_grad_enabled() -> bool:
    """Returns whether operations are recorded for the backward pass in this thread.

    >>> mytorch.is_grad_enabled()
    True
    """
    return _state.recording


class _GradMode:
    """A mode for a `with` block or for each call of a decorated function; reentrant."""

    def __init__(self, mode: bool):
        self.mode = bool(mode)
        self.previous: list[bool] = []

    def __enter__(self) -> _GradMode:
        self.previous.append(_state.recording)
        _state.recording = self.mode
        return self

    def __exit__(self, *exception: object) -> None:
        _state.recording = self.previous.pop()

    def __call__(self, function: Callable) -> Any:
        mode = self.mode
        if inspect.isgeneratorfunction(function):
            return _generator(function, mode)

        @functools.wraps(function)
        def call(*args, **kwargs):
            with _GradMode(mode):
                return function(*args, **kwargs)

        return call


class _Named(_GradMode):
    """A mode without arguments, which also decorates without brackets (`@no_grad`)."""

    fixed: bool

    def __new__(cls, function: Callable | None = None) -> Any:
        return object.__new__(cls) if function is None else cls()(function)

    def __init__(self, function: Callable | None = None):
        self.mode, self.previous = self.fixed, []


class no_grad(_Named):  # noqa: N801 - PyTorch's names
    """Disables recording: `with no_grad(): …` or `@no_grad()`.

    >>> x = mytorch.ones(2, requires_grad=True)
    >>> with mytorch.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    fixed = False


class enable_grad(_Named):  # noqa: N801
    """Enables recording, also within `no_grad`: `with enable_grad(): …` or `@enable_grad()`.

    >>> x = mytorch.ones(2, requires_grad=True)
    >>> with mytorch.no_grad(), mytorch.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    fixed = True


class inference_mode(_GradMode):  # noqa: N801
    """The same as `no_grad`; views and version counters cost too little here to be worth a third mode.

    >>> x = mytorch.ones(2, requires_grad=True)
    >>> with mytorch.inference_mode():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __init__(self, mode: bool = True):
        super().__init__(not mode)


class set_grad_enabled(_GradMode):  # noqa: N801
    """Enables or disables recording: as a plain call from then on, as a context inside, as a decorator.

    Args:
        mode: True to record.

    >>> with mytorch.set_grad_enabled(False):
    ...     mytorch.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool):
        super().__init__(mode)
        self.before, _state.recording = _state.recording, self.mode

    def __exit__(self, *exception: object) -> None:
        self.previous.pop()
        _state.recording = self.before

    def __call__(self, function):
        _state.recording = self.before
        return super().__call__(function)


def _generator(function, mode):
    """A generator whose body runs in `mode`, and whose consumer keeps its own mode between two items."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        running = function(*args, **kwargs)
        step, arguments = running.send, (None,)
        while True:
            try:
                with _GradMode(mode):
                    item = step(*arguments)
            except StopIteration as stop:
                return stop.value
            try:
                step, arguments = running.send, ((yield item),)
            except GeneratorExit:
                with _GradMode(mode):
                    running.close()
                raise
            except BaseException as error:  # thrown in by the consumer: the body's to handle
                step, arguments = running.throw, (error,)

    return call
