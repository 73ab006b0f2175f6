"""The Jinja environment of chat templates, as transformers has it; it needs the package jinja2."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """The tag `{% generation %}`, with which a template marks answers for training: its body is written."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller: Macro) -> str:
        return caller()


def tojson(
    x: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:
    """Returns JSON; Jinja's own filter would escape HTML and sort the keys."""
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    """What a template calls for messages that it can't write."""
    raise TemplateError(message)


def literals(source: str) -> str:
    """Returns the strings and the text of a program, with null characters between them."""
    program = environment().parse(source)
    found = [node.data for node in program.find_all(nodes.TemplateData)]
    found += [node.value for node in program.find_all(nodes.Const) if isinstance(node.value, str)]
    return "\0".join(found)


def environment() -> ImmutableSandboxedEnvironment:
    """Returns a sandbox: a program in it can read what it is given, and nothing else."""
    found = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    found.filters["tojson"] = tojson
    found.globals["raise_exception"] = raise_exception
    return found
