"""
Engines: what moves the numbers. All have the same methods, on raw C-contiguous arrays:

    all_reduce(x, op)  broadcast(x, root)  reduce(x, root, op)       in place
    all_gather(out, x, counts)  reduce_scatter(out, x, op, counts)   `out` or `x` has a row a rank, or is flat
                                                                     with so many elements of each
    gather(out, x, root)  scatter(out, x, root)                      `out`, `x` may be None where not needed
    all_to_all(out, x, out_counts, counts)                           flat; counts in elements
    send(x, peer, tag)  recv(x, peer, tag)

Each starts the operation and returns a `Request`. Ranks are those of the group.
"""

from __future__ import annotations

from .request import Request

__all__ = ["Request"]
