"""What can go wrong between processes; all of it is a RuntimeError, as in torch.distributed."""

from __future__ import annotations


class DistError(RuntimeError):
    """A collective, or what surrounds it, failed."""


class DistTimeout(DistError):
    """A collective was not over at its deadline: some rank didn't come, or stopped."""


class DistMismatch(DistError):
    """The ranks of a group entered different collectives, or with different shapes, dtypes or arguments.

    Attributes:
        finished: the ranks that had already come to the end of the program, if any.
    """

    def __init__(self, message: str, finished: tuple[int, ...] = ()):
        super().__init__(message)
        self.finished = finished
