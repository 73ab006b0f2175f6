"""Minimum cuts: where a graph is cut into two parts at the least cost, found by its maximum flow."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import pairwise


class Network:
    """A directed graph with capacities: integers, so that sums are exact.

    Attributes:
        residual: by node and neighbour, the capacity that is left; each edge has one in the other direction.
    """

    def __init__(self) -> None:
        self.residual: dict[Hashable, dict[Hashable, int]] = {}

    def add(self, a: Hashable, b: Hashable, capacity: int) -> None:
        """Adds an edge from `a` to `b`."""
        there = self.residual.setdefault(a, {})
        there[b] = there.get(b, 0) + capacity
        self.residual.setdefault(b, {}).setdefault(a, 0)

    def behind_cut(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """Returns the nodes on the side of the sink, of all minimum cuts of the one nearest to it.

        Source: Dinic's algorithm, https://en.wikipedia.org/wiki/Dinic%27s_algorithm
        """
        while sink in (distances := self._distances(source)):
            self._block(source, sink, distances)
        found, waiting = {sink}, [sink]
        while waiting:
            b = waiting.pop()
            reaching = [a for a in self.residual.get(b, ()) if self.residual[a][b] and a not in found]
            found.update(reaching)
            waiting += reaching
        return found

    def _distances(self, source: Hashable) -> dict[Hashable, int]:
        """Returns the number of edges to each node that more can flow to."""
        found, waiting = {source: 0}, deque([source])
        while waiting:
            a = waiting.popleft()
            for b, capacity in self.residual.get(a, {}).items():
                if capacity and b not in found:
                    found[b] = found[a] + 1
                    waiting.append(b)
        return found

    def _block(self, source: Hashable, sink: Hashable, distances: dict[Hashable, int]) -> None:
        """Adds flow along shortest paths until each of them has an edge that is full."""
        left = {a: [*self.residual[a]] for a in distances}  # neighbours that may still lead to the sink
        path = [source]
        while path:
            a = path[-1]
            if a == sink:
                flow = min([self.residual[a][b] for a, b in pairwise(path)])
                for a, b in pairwise(path):
                    self.residual[a][b] -= flow
                    self.residual[b][a] += flow
                path = [source]
            elif not left[a]:
                path.pop()
                if path:
                    left[path[-1]].pop()
            elif self.residual[a][b := left[a][-1]] and distances.get(b) == distances[a] + 1:
                path.append(b)
            else:
                left[a].pop()
