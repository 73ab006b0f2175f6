"""Errors of communication between processes; all are RuntimeErrors, as in torch.distributed."""

from __future__ import annotations


class DistError(RuntimeError):
    """An operation of a process group, or its setup, failed."""


class DistTimeout(DistError):
    """An operation missed its deadline: some rank didn't call it, or is stuck."""


class DistMismatch(DistError):
    """The ranks of a group called different collectives, or with different shapes, dtypes or arguments.

    Attributes:
        finished: the ranks that had already finished their programs, if any.
    """

    def __init__(self, message: str, finished: tuple[int, ...] = ()):
        super().__init__(message)
        self.finished = finished
