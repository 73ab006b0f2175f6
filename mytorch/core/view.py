"""Views: tensors that share the memory of another one, their base."""

from __future__ import annotations

from typing import Any


class View:
    """The base of a tensor that is a view, and the ops that lead from the base to it.

    base:   the tensor that owns the memory (itself never a view); after `x.t_()`, which makes `x` a view of
            what it was, a tensor of the former shape.
    replay: the view ops, outermost last, as (op, args, kwargs).
    origin: the base's node when this view was made; if the base has another one now, it was written since.
    """

    __slots__ = ("_base", "replay", "origin", "multiple")

    def __init__(self, base: Any, replay: tuple, multiple: bool = False):
        self._base, self.replay, self.origin = base, replay, base._node
        self.multiple = multiple  # one of several outputs of an op: in-place writes under autograd raise

    @property
    def base(self) -> Any:
        base = self._base
        return base if base._view is None else base._view.base


def replay_views(replay: tuple, x: Any) -> Any:
    """Applies a chain of view ops (`View.replay`) to another tensor of the base's shape."""
    for op, args, kwargs in replay:
        x = op(x, *args, **kwargs)
    return x
