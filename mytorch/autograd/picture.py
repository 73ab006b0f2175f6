"""A drawing as SVG, PNG and a page that needs no network: what `draw` and `step_through` return."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import Any

from .diagram import Diagram
from .pages import PAGE


class Picture:
    """A drawing that Jupyter shows.

    Args:
        page: style, body (with SVG where the drawing is) and script of the HTML page.
        diagram: the drawing.
        data: what the script calls `data`.
        has_svg: the drawing says everything; otherwise only the page does.
        title: of the page.
    """

    def __init__(
        self, page: tuple[str, str, str], diagram: Diagram, data: Any = None, has_svg: bool = True,
        title: str = "The backward pass",
    ):
        self._page, self._diagram, self.data, self._has_svg, self._title = page, diagram, data, has_svg, title

    def svg(self) -> str:
        """Returns the drawing as SVG."""
        return self._diagram.svg()

    def html(self) -> str:
        """Returns the page."""
        style, body, script = self._page
        data = json.dumps(self.data, ensure_ascii=False).replace("</", "<\\/")
        return PAGE % (escape(self._title), style, body.replace("SVG", self.svg()), data, script)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the drawing as .html, .svg, or .png (with matplotlib).

        Raises:
            ValueError: another suffix.
            ImportError: .png without matplotlib.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in ((".html", ".svg", ".png") if self._has_svg else (".html",)):
            kinds = ".html, .svg or .png" if self._has_svg else ".html"
            raise ValueError(f"this is saved as {kinds}, got {path}")
        from ..utils.atomic import atomic_write  # its package imports this one

        with atomic_write(path) as file:
            if suffix == ".png":
                self._diagram.save_png(file)
            else:
                file.write_text(self.html() if suffix == ".html" else self.svg(), encoding="utf-8")

    def _repr_svg_(self) -> str | None:
        return self.svg() if self._has_svg else None

    def _repr_html_(self) -> str:
        height = min(self._diagram.height + 90, 760)  # in a frame: its styles are its own
        style = f"width: 100%; height: {height:.0f}px; border: 0"
        return f'<iframe srcdoc="{escape(self.html())}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._diagram.width:.0f} x {self._diagram.height:.0f} pixels>"
