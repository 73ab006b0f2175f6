"""Write names.txt: the public names of real CuPy, with their signatures and the dtypes of their ufuncs.

Importing CuPy needs no GPU, so this runs anywhere. The stand-in is as strict as the strictest CuPy that we
support: record the oldest and the newest version, each in an environment of its own, and keep what both have.
bfloat16, which only CuPy 14 knows, is left out: of the ufuncs, the stand-in lets a few have it (ufunc.py).

    python -m tests.strict_cupy.record dump > 13.txt
    python -m tests.strict_cupy.record dump > 14.txt
    python -m tests.strict_cupy.record merge 13.txt 14.txt > names.txt      # then move it here
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

OWNERS = """
cupy cupy.linalg cupy.lib.stride_tricks cupy.random cupy.random.Generator cupy.random.RandomState
cupy.ndarray cupy.ufunc cupy.cuda cupy.cuda.runtime cupy.cuda.Device cupy.cuda.Stream cupy.cuda.Event
cupyx cupyx.scipy.special
"""


def dump() -> list[str]:
    """A line a name: `sum(a, axis=None, …)`, `exp: e->e f->f …`, `pi = numpy`, or only the name."""
    lines = [f"# CuPy {importlib.import_module('cupy').__version__}"]
    for path in OWNERS.split():
        owner = _find(path)
        inner = {other.rpartition(".")[2] for other in OWNERS.split() if other.rpartition(".")[0] == path}
        names = sorted(name for name in {*dir(owner), *inner} if _is_recorded(path, name))
        lines += [f"[{path}]", *(_describe(owner, name) for name in names)]
    return lines


def _find(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError:
        parent, _, name = path.rpartition(".")
        return getattr(_find(parent), name)


def _is_recorded(path: str, name: str) -> bool:
    if path == "cupy.ndarray" and name.startswith("__"):
        return name not in dir(object) and not name.startswith(("__pyx", "__module", "__slots"))
    if path == "cupy.cuda.runtime" and name.startswith("cuda"):  # hundreds of constants
        return False
    return not name.startswith("_") and name != "annotations"


def _describe(owner: Any, name: str) -> str:
    value = getattr(owner, name)
    if value is getattr(importlib.import_module("numpy"), name, owner):
        return f"{name} = numpy"
    if type(value).__name__ == "ufunc":
        return f"{name}: {' '.join(loop for loop in value.types if not set(loop) & set('EV'))}"
    if not callable(value) or isinstance(value, type) or name.startswith("__"):
        return name
    return name + _signature(value)


def _signature(function: Any) -> str:
    """The parameters without annotations; for compiled functions, from the first line of the docstring."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        found = re.match(r"[\w.]+\((.*)\)", (function.__doc__ or "").split("\n")[0])
        if not found:
            return ""
        words = [re.sub(r"^(\w+ )+(?=\w)", "", word) for word in found[1].split(", ")]  # C types
        return f"({', '.join(word for word in words if word not in ('self', 'cls'))})"
    parameters = [p.replace(annotation=p.empty) for p in parameters if p.name != "self"]
    text = str(inspect.Signature(parameters))
    return re.sub(r"<class '([\w.]+)'>", r"\1", text)


def merge(oldest: list[str], newest: list[str]) -> list[str]:
    """What both have: common names, and of the parameters those that the oldest takes too."""
    old, owner, merged = {}, "", [oldest[0], newest[0]]
    for line in oldest[1:]:
        owner = line if line.startswith("[") else owner
        old[owner, _name(line)] = line
    for line in newest[1:]:
        owner = line if line.startswith("[") else owner
        if (owner, _name(line)) in old:
            merged.append(_common(old[owner, _name(line)], line))
    return merged


def _name(line: str) -> str:
    return re.match(r"\[?[\w.]+", line)[0]


def _common(old: str, new: str) -> str:
    if "(" not in new or "**" in old:
        return new
    known = set(re.findall(r"\w+", old))
    name, _, parameters = new.removesuffix(")").partition("(")
    kept = re.split(r", (?![^(]*\))", parameters)
    kept = [p for p in kept if p in "*/" or re.search(r"\w+", p)[0] in known]
    if kept[-1:] == ["*"]:
        kept.pop()
    return f"{name}({', '.join(kept)})"


if __name__ == "__main__":
    command, *files = sys.argv[1:]
    recorded = [Path(file).read_text().splitlines() for file in files]
    print("\n".join(dump() if command == "dump" else merge(*recorded)))
