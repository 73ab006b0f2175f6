"""What real CuPy has: names.txt as `NAMES["cupy"]["sum"]`, signatures and ufunc loops."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy

_LINE = re.compile(r"(\w+)(?:\((.*)\)|: (.*)| = (numpy))?")


class Name:
    """One public name: a function if it has parameters, a ufunc if it has loops, or simply something."""

    def __init__(self, parameters: str | None, loops: str | None, numpy_s_own: str | None):
        self.parameters = parameters
        self.loops = loops.split() if loops else None
        self.is_numpy_s_own = numpy_s_own is not None

    def signature(self, *first: str) -> inspect.Signature:
        """The signature; `first` are parameters to put in front, such as "self"."""
        parameters = ", ".join([*first, self.parameters] if self.parameters else first)
        return inspect.signature(eval(f"lambda {parameters}: 0", {"numpy": numpy}))


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _read() -> dict[str, dict[str, Name]]:
    owners: dict[str, dict[str, Name]] = {}
    for line in Path(__file__).with_name("names.txt").read_text().splitlines():
        if line.startswith("["):
            names = owners.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            name, *kind = _LINE.fullmatch(line).groups()
            names[name] = Name(*kind)
    return owners


NAMES = _read()
