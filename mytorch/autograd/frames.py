"""Boxes within frames, as what computes is within modules; arrows end at the edges of frames."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .diagram import Box

Path = tuple[str, ...]


class Frames:
    """The boxes of some items, within frames: one for neighbours that have the same name in their paths.

    Args:
        paths: for each item, in the order in which they are drawn, the names of the frames around it, the
            outermost first.
        box_of: returns the box of an item.
        lines_of: returns the lines of a frame, given its path and the items inside.

    Attributes:
        boxes: the outermost ones.
    """

    def __init__(
        self, paths: Mapping[Any, Path], box_of: Callable[[Any], Box],
        lines_of: Callable[[Path, list], list[str]],
    ):
        self._paths, self._box_of, self._lines_of = paths, box_of, lines_of
        self._chains: dict[Hashable, list[Box]] = {}  # the frames around an item's box, and the box
        self.boxes = self._level([*paths], [])

    def _level(self, items: Sequence[Any], around: list[Box]) -> list[Box]:
        """Returns the boxes inside some frames."""
        depth, boxes = len(around), []
        for name, group in itertools.groupby(items, lambda item: self._paths[item][depth : depth + 1]):
            members = list(group)
            if name:
                frame = Box("module", self._lines_of(self._paths[members[0]][: depth + 1], members))
                frame.inside = self._level(members, [*around, frame])
                boxes.append(frame)
                continue
            for item in members:
                boxes.append(self._box_of(item))
                self._chains[item] = [*around, boxes[-1]]
        return boxes

    def connect(self, source: Hashable, user: Hashable) -> None:
        """Adds the arrows from an item to another, out of the frames around it, and into the other's."""
        start, end = self._chains[source], self._chains[user]
        pairs = zip(start, end, strict=False)
        common = sum([1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs)])
        _link(start[common], end[common])
        for frame, box in itertools.pairwise(start[common:]):
            _link(box, _port(frame, "out"))
        for frame, box in itertools.pairwise(end[common:]):
            _link(_port(frame, "in"), box)


def _link(source: Box, box: Box) -> None:
    if source not in box.sources:
        box.sources.append(source)


def _port(frame: Box, kind: str) -> Box:
    """Returns a port of a frame, which it makes at the first call; "in" is amid the first leaves."""
    found = next((box for box in frame.inside if box.kind == kind), None)
    if found is None:
        found = Box(kind, [])
        leaves = sum([1 for _ in itertools.takewhile(lambda box: box.kind == "leaf", frame.inside)])
        frame.inside.insert(leaves // 2 if kind == "in" else len(frame.inside), found)
    return found
