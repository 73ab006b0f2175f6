"""Trigonometric and hyperbolic functions, their inverses, and angles."""

from __future__ import annotations

import math

import numpy as np

from ...core.op import op
from .operands import refuse

__all__ = [
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "sinc", "hypot", "deg2rad", "rad2deg",
]


@op(promote="float", half="float16")
def sin(x):
    """Returns the sine, of radians.

    >>> mytorch.tensor([0.0, 1.0]).sin()
    tensor([0.00000 0.84147])
    """
    return np.sin(x), lambda g: g * np.cos(x)


@op(promote="float", half="float16")
def cos(x):
    """Returns the cosine, of radians.

    >>> mytorch.tensor([0.0, 1.0]).cos()
    tensor([1.00000 0.54030])
    """
    return np.cos(x), lambda g: -g * np.sin(x)


@op(promote="float", half="float16")
def tan(x):
    """Returns the tangent, of radians.

    >>> mytorch.tensor([0.0, 1.0]).tan()
    tensor([0.00000 1.55741])
    """
    y = np.tan(x)
    return y, lambda g: g * (1 + y * y)


@op(promote="float", half="float16")
def asin(x):
    """Returns the angle, from -pi/2 to pi/2, whose sine is x.

    >>> mytorch.tensor([0.0, 1.0]).asin()
    tensor([0.00000 1.57080])
    """
    return np.arcsin(x), lambda g: g / np.sqrt(1 - x * x)


@op(promote="float", half="float16")
def acos(x):
    """Returns the angle, from 0 to pi, whose cosine is x.

    >>> mytorch.tensor([1.0, 0.0]).acos()
    tensor([0.00000 1.57080])
    """
    return np.arccos(x), lambda g: -g / np.sqrt(1 - x * x)


@op(promote="float", half="float16")
def atan(x):
    """Returns the angle, from -pi/2 to pi/2, whose tangent is x.

    >>> mytorch.tensor([0.0, 1.0]).atan()
    tensor([0.00000 0.78540])
    """
    return np.arctan(x), lambda g: g / (1 + x * x)


@op(promote="float", tensors=2, half="float16")
def atan2(x, y):
    """The angle, from -pi to pi, of the point at height x and distance y: atan(x / y) in the right quadrant.

    The gradient in the origin is 0.

    >>> mytorch.tensor([1.0]).atan2(mytorch.tensor([-1.0]))
    tensor([2.35619])
    """

    def over_square(v):
        square = x * x + y * y
        return np.where(np.equal(square, 0), 0, v / square)

    return np.arctan2(x, y), (lambda g: g * over_square(y), lambda g: -g * over_square(x))


@op(promote="float", half="float16")
def sinh(x):
    """(exp(x) - exp(-x)) / 2

    >>> mytorch.tensor([0.0, 1.0]).sinh()
    tensor([0.00000 1.17520])
    """
    return np.sinh(x), lambda g: g * np.cosh(x)


@op(promote="float", half="float16")
def cosh(x):
    """(exp(x) + exp(-x)) / 2

    >>> mytorch.tensor([0.0, 1.0]).cosh()
    tensor([1.00000 1.54308])
    """
    return np.cosh(x), lambda g: g * np.sinh(x)


@op(promote="float", half="float16")
def tanh(x):
    """sinh(x) / cosh(x)

    >>> mytorch.tensor([0.0, 1.0]).tanh()
    tensor([0.00000 0.76159])
    """
    y = np.tanh(x)
    return y, lambda g: g * (1 - y * y)


@op(promote="float", half="float16")
def asinh(x):
    """Returns the number whose hyperbolic sine is x.

    >>> mytorch.tensor([0.0, 1.0]).asinh()
    tensor([0.00000 0.88137])
    """
    return np.arcsinh(x), lambda g: g / np.sqrt(x * x + 1)


@op(promote="float", half="float16")
def acosh(x):
    """Returns the number, 0 or more, whose hyperbolic cosine is x.

    >>> mytorch.tensor([1.0, 2.0]).acosh()
    tensor([0.00000 1.31696])
    """
    return np.arccosh(x), lambda g: g / np.sqrt(x * x - 1)


@op(promote="float", half="float16")
def atanh(x):
    """Returns the number whose hyperbolic tangent is x.

    >>> mytorch.tensor([0.0, 0.5]).atanh()
    tensor([0.00000 0.54931])
    """
    return np.arctanh(x), lambda g: g / (1 - x * x)


@op(promote="float")
def sinc(x):
    """sin(pi x) / (pi x), and 1 where x is 0

    >>> mytorch.tensor([0.0, 0.5]).sinc()
    tensor([1.00000 0.63662])
    """
    angle = math.pi * x
    safe = np.where(np.equal(x, 0), 1, angle)

    def vjp(g):
        slope = (np.cos(angle) - np.sin(angle) / safe) / safe
        return g * np.where(np.equal(x, 0), 0, math.pi * slope)

    return np.where(np.equal(x, 0), 1, np.sin(safe) / safe), vjp


@op(promote="common", tensors=2, half="float16")
def hypot(x, y):
    """sqrt(x ** 2 + y ** 2), without overflow.

    >>> mytorch.tensor([3.0]).hypot(mytorch.tensor([4.0]))
    tensor([5.00000])
    """
    refuse("biu", "hypot", x, y)
    z = np.hypot(x, y)
    return z, (lambda g: g * (x / z), lambda g: g * (y / z))


@op(promote="float")
def deg2rad(x):
    """x * pi / 180

    >>> mytorch.tensor([180.0]).deg2rad()
    tensor([3.14159])
    """
    return x * (math.pi / 180), lambda g: g * (math.pi / 180)


@op(promote="float")
def rad2deg(x):
    """x * 180 / pi

    >>> mytorch.tensor([mytorch.pi]).rad2deg()
    tensor([180.00000])
    """
    return x * (180 / math.pi), lambda g: g * (180 / math.pi)
