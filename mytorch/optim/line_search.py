"""The line search of L-BFGS: a step that satisfies the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..core.tensor import Tensor

DECREASE, CURVATURE = 1e-4, 0.9  # the constants of the two conditions


class Point(NamedTuple):
    """A point on the line: the step t, the loss there, its gradient and its slope along the line."""

    t: float
    loss: float
    grad: Tensor
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, t: float, least: float, most: int
) -> tuple[Point, int]:
    """Returns a point of lower loss than `start` and flatter, and the number of evaluations.

        loss <= start.loss + DECREASE t start.slope,  |slope| <= CURVATURE |start.slope|

    Steps grow until they enclose such a point; then the interval shrinks, at the minimum of a cubic. If
    `most` evaluations or an interval below `least` don't suffice, it is the best point at hand.

    Args:
        evaluate: returns the point of a step.
        t: the first step.

    Source: Nocedal & Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6, equation 3.59.
    https://doi.org/10.1007/978-0-387-40065-5
    """
    previous, point, count = start, evaluate(t), 0
    low = high = None
    while count < most:
        if _too_high(point, start) or (count > 1 and point.loss >= previous.loss) or (
            not _is_flat(point, start) and point.slope >= 0
        ):
            low, high = _ordered(previous, point)
            break
        if _is_flat(point, start):
            return point, count + 1
        bounds = point.t + 0.01 * (point.t - previous.t), point.t * 10
        previous, point = point, evaluate(_minimum_of_cubic(previous, point, *bounds))
        count += 1
    if low is None:
        return _ordered(start, point)[0], count + 1
    return _zoom(evaluate, start, low, high, least, count, most)


def _zoom(evaluate, start, low, high, least, count, most):
    """Shrinks the interval between `low`, the better end, and `high`."""
    was_at_an_end = False
    while count < most and abs(high.t - low.t) >= least:
        left, right = sorted((low.t, high.t))
        t = _minimum_of_cubic(low, high, left, right)
        margin = 0.1 * (right - left)
        is_at_an_end = min(right - t, t - left) < margin
        if is_at_an_end and (was_at_an_end or t >= right or t <= left):
            t = right - margin if abs(t - right) < abs(t - left) else left + margin
            is_at_an_end = False
        was_at_an_end = is_at_an_end
        point = evaluate(t)
        count += 1
        if _too_high(point, start) or point.loss >= low.loss:
            low, high = _ordered(low, point)
            continue
        if _is_flat(point, start):
            return point, count + 1
        if point.slope * (high.t - low.t) >= 0:
            high = low
        low = point
    return low, count + 1


def _too_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + DECREASE * point.t * start.slope


def _is_flat(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -CURVATURE * start.slope


def _ordered(a: Point, b: Point) -> tuple[Point, Point]:
    """Returns the two, that of the lower loss first."""
    return (a, b) if a.loss <= b.loss else (b, a)


def _minimum_of_cubic(a: Point, b: Point, low: float, high: float) -> float:
    """Returns the step to the minimum of the cubic with these values and slopes, clipped; without one the
    middle."""
    a, b = (a, b) if a.t <= b.t else (b, a)
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = math.sqrt(square)
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, low), high)
