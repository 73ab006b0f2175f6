"""Python's own help pages: text about a thousand names, which needs no network."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType

# They open a browser or a window, print a poem, or are no part of the library's help.
EXCLUDED = {"antigravity", "idlelib", "lib2to3", "pydoc_data", "this", "tkinter", "turtle", "turtledemo"}
# The rest of a page has values of this machine: os.environ, sys.path, names of files.
END = re.compile(r"\n(?:DATA|VERSION|DATE|AUTHOR|CREDITS|FILE)\n")


def modules(names: Sequence[str] | None = None) -> Iterator[ModuleType]:
    """Yields modules of the standard library, those that this system has; all by default."""
    library = sorted(n for n in sys.stdlib_module_names if not n.startswith("_") and n not in EXCLUDED)
    for name in library if names is None else names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecated modules
                yield importlib.import_module(name)
        except ImportError:
            if names is not None:
                raise
            # Windows has modules that Linux lacks, and the other way round.


def pages(names: Sequence[str] | None = None) -> Iterator[str]:
    """Yields the help page of each module, and without `names` the topics of `help("topics")`."""
    for module in modules(names):
        yield END.split(pydoc.plaintext.document(module))[0]
    if names is None:
        from pydoc_data.topics import topics

        yield from (topics[name] for name in sorted(topics))


def sentences(names: Sequence[str] | None = None) -> dict[str, str]:
    """Returns the first sentence about each function, class and method; no two names have the same one."""
    found: dict[str, str] = {}
    for module in modules(names):
        for path, thing in _members(module):
            sentence = _first_sentence(inspect.getdoc(thing) or "")
            if sentence:
                found.setdefault(sentence, path)
    return {path: sentence for sentence, path in found.items()}


def _members(module: ModuleType) -> Iterator[tuple[str, object]]:
    prefix = "" if module.__name__ == "builtins" else f"{module.__name__}."
    for name, thing in sorted(vars(module).items()):
        if name.startswith("_") or not (inspect.isroutine(thing) or inspect.isclass(thing)):
            continue
        yield f"{prefix}{name}", thing
        if inspect.isclass(thing):
            methods = sorted((n, m) for n, m in vars(thing).items() if inspect.isroutine(m))
            yield from ((f"{prefix}{name}.{n}", m) for n, m in methods if not n.startswith("_"))


def _first_sentence(text: str) -> str:
    """Returns the sentence that a docstring begins with; "" if it isn't one of 15 to 120 characters."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    match = re.match(r"[A-Z][a-z].*?\.(?= [A-Z]|$)", paragraph)
    return match[0] if match and 15 <= len(match[0]) <= 120 and "->" not in match[0] else ""
