"""Trigonometric and hyperbolic functions, their inverses, and angles."""

from __future__ import annotations

import math

import numpy as np

from ...core.op import op
from .operands import refuse

__all__ = [
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "sinc", "hypot", "deg2rad", "rad2deg",
]  # fmt: skip


@op(promote="float", half="float16")
def sin(x):
    return np.sin(x), lambda g: g * np.cos(x)


@op(promote="float", half="float16")
def cos(x):
    return np.cos(x), lambda g: -g * np.sin(x)


@op(promote="float", half="float16")
def tan(x):
    y = np.tan(x)
    return y, lambda g: g * (1 + y * y)


@op(promote="float", half="float16")
def asin(x):
    return np.arcsin(x), lambda g: g / np.sqrt(1 - x * x)


@op(promote="float", half="float16")
def acos(x):
    return np.arccos(x), lambda g: -g / np.sqrt(1 - x * x)


@op(promote="float", half="float16")
def atan(x):
    return np.arctan(x), lambda g: g / (1 + x * x)


@op(promote="float", tensors=2, half="float16")
def atan2(x, y):
    """The angle, from -pi to pi, of the point at height x and distance y: atan(x / y) in the right quadrant.

    The gradient in the origin is 0.
    """

    def over_square(v):
        square = x * x + y * y
        return np.where(np.equal(square, 0), 0, v / square)

    return np.arctan2(x, y), (lambda g: g * over_square(y), lambda g: -g * over_square(x))


@op(promote="float", half="float16")
def sinh(x):
    """(exp(x) - exp(-x)) / 2"""
    return np.sinh(x), lambda g: g * np.cosh(x)


@op(promote="float", half="float16")
def cosh(x):
    """(exp(x) + exp(-x)) / 2"""
    return np.cosh(x), lambda g: g * np.sinh(x)


@op(promote="float", half="float16")
def tanh(x):
    """sinh(x) / cosh(x)"""
    y = np.tanh(x)
    return y, lambda g: g * (1 - y * y)


@op(promote="float", half="float16")
def asinh(x):
    return np.arcsinh(x), lambda g: g / np.sqrt(x * x + 1)


@op(promote="float", half="float16")
def acosh(x):
    return np.arccosh(x), lambda g: g / np.sqrt(x * x - 1)


@op(promote="float", half="float16")
def atanh(x):
    return np.arctanh(x), lambda g: g / (1 - x * x)


@op(promote="float")
def sinc(x):
    """sin(pi x) / (pi x), and 1 where x is 0"""
    angle = math.pi * x
    safe = np.where(np.equal(x, 0), 1, angle)

    def vjp(g):
        slope = (np.cos(angle) - np.sin(angle) / safe) / safe
        return g * np.where(np.equal(x, 0), 0, math.pi * slope)

    return np.where(np.equal(x, 0), 1, np.sin(safe) / safe), vjp


@op(promote="common", tensors=2, half="float16")
def hypot(x, y):
    """sqrt(x ** 2 + y ** 2), without overflow."""
    refuse("biu", "hypot", x, y)
    z = np.hypot(x, y)
    return z, (lambda g: g * (x / z), lambda g: g * (y / z))


@op(promote="float")
def deg2rad(x):
    """x * pi / 180"""
    return x * (math.pi / 180), lambda g: g * (math.pi / 180)


@op(promote="float")
def rad2deg(x):
    """x * 180 / pi"""
    return x * (180 / math.pi), lambda g: g * (180 / math.pi)
