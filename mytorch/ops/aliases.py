"""PyTorch's second names for its ops (`arcsin` is `asin`), and its ops in place as functions: `exp_(x)`."""

from __future__ import annotations

from . import compare, elementwise, special
from .inplace import inplace

ALIASES = {
    "absolute": "abs", "negative": "neg", "sgn": "sign", "fix": "trunc", "clip": "clamp",
    "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}

# Those that are functions as well as methods in PyTorch.
IN_PLACE = """
    abs absolute acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil clamp
    clamp_max clamp_min clip cos cosh deg2rad erf erfc exp exp2 expm1 fill fix floor frac log log10 log1p log2
    logit nan_to_num neg negative rad2deg reciprocal round rsqrt sigmoid sin sinc sinh sqrt square tan tanh
    trunc xlogy zero
""".split()  # noqa: SIM905

_OPS = {name: getattr(family, name) for family in (elementwise, compare, special) for name in family.__all__}
_OPS.update({alias: _OPS[name] for alias, name in ALIASES.items()})
_FUNCTIONS = {f"{name}_": inplace(_OPS[name]) for name in IN_PLACE}
_FUNCTIONS.update({alias: _OPS[alias] for alias in ALIASES})

__all__ = list(_FUNCTIONS)
globals().update(_FUNCTIONS)
