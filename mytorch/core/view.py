"""Views: tensors that share the memory of another one, their base."""

from __future__ import annotations

from typing import Any


class View:
    """What makes a tensor a view: its base, and how to get from the base to it again.

    base:   the tensor that owns the memory (itself never a view); where it was made a view of its former self
            in place (`x.t_()`), that one.
    replay: the view ops, outermost last, as (op, args, kwargs).
    origin: the base's node when this view was made; another one now means that the base was written since.
    """

    __slots__ = ("_base", "replay", "origin", "multiple")

    def __init__(self, base: Any, replay: tuple, multiple: bool = False):
        self._base, self.replay, self.origin = base, replay, base._node
        self.multiple = multiple  # one of several outputs of an op: not to be written in place under autograd

    @property
    def base(self) -> Any:
        base = self._base
        return base if base._view is None else base._view.base


def replay_views(replay: tuple, x: Any) -> Any:
    """Apply a chain of view ops (`View.replay`) to another tensor of the base's shape."""
    for op, args, kwargs in replay:
        x = op(x, *args, **kwargs)
    return x
