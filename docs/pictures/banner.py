"""The banner of the README."""

from __future__ import annotations

from canvas import BLACK, BLUE, GRAY, GREEN, LIGHT, WHITE, Canvas

NODES = {"x": (470, 62), "w": (470, 138), "mul": (560, 100), "square": (645, 62), "add": (730, 100)}
EDGES = [("x", "mul"), ("w", "mul"), ("mul", "square"), ("square", "add"), ("mul", "add")]


def draw_banner() -> Canvas:
    canvas = Canvas(200)
    canvas.text(40, 72, "mytorch", 38, BLACK, bold=True)
    canvas.text(42, 124, "PyTorch's interface, in plain Python,", 11.5, GRAY)
    canvas.text(42, 148, "on NumPy and CuPy: to read, and to train with", 11.5, GRAY)
    for start, end in EDGES:
        (x0, y0), (x1, y1) = NODES[start], NODES[end]
        canvas.arrow((x1 - 26, y1), (x0 + 26, y0), GREEN, linewidth=1.8)
    for name, (x, y) in NODES.items():
        color = (LIGHT[BLUE], BLUE) if name in "xw" else (WHITE, GREEN)
        canvas.box(x - 28, y - 16, 56, 32, *color)
        canvas.text(x, y, name, 9.5, ha="center", code=True, bold=True)
    return canvas
