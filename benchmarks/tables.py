"""Tables in Markdown, and files of results that are whole or as they were."""

import json
import os
from pathlib import Path


def table(head: list[str], rows: list[list[str]]) -> str:
    """Returns a table whose columns are aligned: the first to the left, the others to the right."""
    widths = [max(3, *map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    text = ""
    for first, *others in (head, rule, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text += f"| {' | '.join([first.ljust(widths[0]), *cells])} |\n"
    return text


def write(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(text, "utf-8")
    os.replace(unfinished, path)


def write_json(path: Path, result: dict) -> None:
    write(path, json.dumps(result, indent=1) + "\n")
