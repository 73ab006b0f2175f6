"""Writes the pages of the API reference from the docstrings of what is imported.

mytorch's functions get their arguments, their `out=` and their names from decorators, and some are made in
loops: a reader of source files would miss them, and `inspect` doesn't.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields", "Warns", "Note")
TABLE = 40  # a class with more methods has a table of them: those of Tensor are the functions of mytorch


def page(name: str, url: str) -> str:
    """Returns the page of a module or class, in Markdown; sources are linked below `url`."""
    place = find(name)
    lines = [f"# {name}", ""]
    if inspect.isclass(place):
        return "\n".join([*lines, *entry(name, place, url), *members(name, place, url)])
    lines += [markdown(inspect.getdoc(place) or ""), ""]
    seen: dict[int, str] = {}
    for short, value in sorted(public(place).items(), key=lambda item: item[0].lower()):
        lines += [f"## {short}", ""]
        if id(value) in seen:
            lines += [f"The same as [`{seen[id(value)]}`](#{seen[id(value)].lower()}).", ""]
            continue
        seen[id(value)] = short
        lines += entry(f"{name}.{short}", value, url)
        if inspect.isclass(value):
            lines += members(f"{name}.{short}", value, url)
    return "\n".join(lines)


def find(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        parent, _, last = name.rpartition(".")
        return getattr(importlib.import_module(parent), last)


def public(module: types.ModuleType) -> dict[str, Any]:
    """Returns the functions and classes of a module by name, without those that have pages of their own."""
    names = getattr(module, "__all__", None) or dir(module)
    values = {name: getattr(module, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in values.items() if is_documented(value, module)}


def is_documented(value: Any, module: types.ModuleType) -> bool:
    if isinstance(value, types.ModuleType) or not is_ours(value):
        return False
    has_page = inspect.isclass(value) and value.__name__ in ("Tensor", "Array")
    return not (has_page and module.__name__ == "mytorch")


def is_ours(value: Any) -> bool:
    """Returns whether it is a function or class of mytorch with a docstring."""
    module = getattr(value, "__module__", None) or ""
    return callable(value) and bool(value.__doc__) and module.partition(".")[0] == "mytorch"


def entry(name: str, value: Any, url: str) -> list[str]:
    """Returns the signature, the docstring and the link to the source."""
    return ["```python", signature(name, value), "```", "", markdown(inspect.getdoc(value) or ""), "",
            f"[source]({url}/blob/main/{source(value)})", ""]


def members(name: str, cls: type, url: str) -> list[str]:
    """Returns the entries of a class's own public methods, or their first sentences if there are many."""
    found = {key: getattr(cls, key) for key in vars(cls) if not key.startswith("_")}
    found = {key: value for key, value in sorted(found.items()) if is_ours(value)}
    if len(found) > TABLE:
        rows = (f"| `{key}` | {first_sentence(value)} |" for key, value in found.items())
        return ["| method | |", "|---|---|", *rows, ""]
    last, lines = name.rpartition(".")[2], []
    for key, value in found.items():
        lines += [f"### {last}.{key}", "", *entry(f"{last}.{key}", value, url)]
    return lines


def first_sentence(value: Any) -> str:
    text = " ".join(inspect.getdoc(value).split("\n\n")[0].split())
    return escape(re.split(r"(?<=[.!?]) ", text)[0]).replace("|", "\\|")


class _Text(str):
    """An annotation, without the quotes of a string."""

    __repr__ = str.__str__


def signature(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    plain = [p.replace(annotation=text(p.annotation)) for p in found.parameters.values()]
    found = found.replace(parameters=plain, return_annotation=text(found.return_annotation))
    shown = name + re.sub(r"<(?:function|class|built-in function|dtype) '?([\w.]+).*?>", r"\1", str(found))
    if len(shown) > 90:  # an argument a line
        start, end = len(name) + 1, shown.rindex(") ->") if ") ->" in shown else len(shown) - 1
        arguments = re.sub(r", (?=\*|/|\w+[:=])", ",\n    ", shown[start:end])
        shown = f"{shown[:start]}\n    {arguments}\n{shown[end:]}"
    return shown


def text(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def source(value: Any) -> str:
    """Returns the path of the file that defines it, with the line of a function."""
    function = inspect.unwrap(value)
    code = getattr(function, "__code__", None)
    file = code.co_filename if code else sys.modules[value.__module__].__file__
    line = f"#L{code.co_firstlineno}" if code else ""
    return Path(file).resolve().relative_to(ROOT).as_posix() + line


def markdown(doc: str) -> str:
    """Returns a docstring as Markdown: sections become lists, examples and formulas blocks of code."""
    return "\n\n".join(map(block, re.split(r"\n\n+(?! {4}\S)|\n(?=(?:Args|Raises|Returns|Source):)", doc)))


def block(paragraph: str) -> str:
    head, _, rest = paragraph.partition("\n")
    if paragraph.startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    if head.rstrip(":") in SECTIONS and head.endswith(":"):
        return f"**{head.rstrip(':')}**\n\n{items(textwrap.dedent(rest))}"
    before, blank, indented = paragraph.partition("\n\n    ")  # a formula, below the text that it belongs to
    if blank:
        return f"{escape(before)}\n\n```text\n{textwrap.dedent('    ' + indented)}\n```"
    is_code = paragraph.startswith("    ")
    return f"```text\n{textwrap.dedent(paragraph)}\n```" if is_code else escape(paragraph)


def items(lines: str) -> str:
    """Returns a list with an item for each line `name: text`; further lines of an item are indented."""
    found = []
    for item in re.split(r"\n(?! )", lines):
        name, words = re.fullmatch(r"(?:([\w*, ]+): )?(.*)", " ".join(item.split())).groups()
        found.append(f"- `{name}`: {escape(words)}" if name else f"- {escape(words)}")
    return "\n".join(found)


def escape(words: str) -> str:
    """Returns text in which only links and `code` mean something to Markdown."""
    parts = re.split(r"(`+[^`]*`+|https?://\S+[\w/])", words)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([\\*_<\[\]#])", r"\\\1", part)
        elif part.startswith("http"):
            parts[i] = f"<{part}>"
    return "".join(parts)
