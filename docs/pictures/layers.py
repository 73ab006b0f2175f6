"""The picture of the package: its layers, and which imports which, from the statements in the files."""

from __future__ import annotations

from canvas import AMBER, BLUE, GRAY, GREEN, LIGHT, LIGHT_GRAY, WHITE, Canvas

from tests.imports import FILES, imported, name_of
from tests.test_layers import LAYERS, layer

WORDS = {  # of a layer, by its first entry
    "version": "names of modules", "backends": "devices, dtypes, matrix products, threads",
    "core": "Array, Tensor, @op, the graph, the backward pass",
    "random": "one file a family: elementwise, reduce, index, …",
    "autograd": "grad, Function, checkpoint, second derivatives",
    "fft": "which op is which method, or NumPy's function",
    "nn/functional": "activations, losses, attention, …",
    "nn/fused_ops": "Module, layers, initialisation, kernels",
    "func": "grad(f), hessian(f); probability distributions",
    "optim": "SGD, Adam, Muon, …, schedules; flat buffers", "serialization": "files, text, DataLoader",
    "stream": "instructions: log, profiler, timeline", "compiler": "programs, and what is done with them",
    "distributed": "collectives, DDP, ZeRO, the launcher",
    "models": "GPT-2, Llama, BERT", "accelerate": "accumulation, checkpoints",
    "amp": "autocast, loss scale, float32 weights", "cli": "mytorchrun; conversations",
    "__init__": "the public names",
}
CORE, DIFFERENTIATE = ("version", "backends", "core"), ("random", "autograd", "fft")
ROW, TOP, CELL, MATRIX = 28, 92, 14, 510


def draw_layers() -> Canvas:
    """Returns the layers, the highest first, with a dot for each layer that a layer imports."""
    rows = list(reversed(LAYERS))
    canvas = Canvas(TOP + ROW * len(rows) + 20)
    canvas.text(26, 34, "Imports point one way", 13, bold=True)
    canvas.text(26, 62, "A file imports only from its own layer and from those below.", 10, GRAY)
    canvas.text(MATRIX + 4, 62, "which imports which", 10, GRAY)
    for i, names in enumerate(rows):
        _draw_layer(canvas, TOP + ROW * i, names)
    _draw_imports(canvas, len(rows))
    return canvas


def _draw_layer(canvas: Canvas, y: float, names: tuple[str, ...]) -> None:
    color = AMBER if names[0] in CORE else GREEN if names[0] in DIFFERENTIATE else BLUE
    shown = ", ".join(name.replace("/", ".") for name in names[:2]) + ", …" * (len(names) > 2)
    canvas.box(26, y, 466, ROW - 5, LIGHT[color], color, linewidth=1, radius=4)
    canvas.text(38, y + 12, shown.replace("__init__", "mytorch"), 8.8, code=True, bold=True)
    canvas.text(482, y + 12, WORDS[names[0]], 8.6, GRAY, ha="right")


def _draw_imports(canvas: Canvas, count: int) -> None:
    """Draws a row for each layer and a column for each that it may import; a dot where it does."""
    found = set()
    for path in FILES:
        found |= {(layer(name_of(path)), layer(target)) for target in imported(path)}
    for i in range(count):
        for j in range(i, count):  # the layers below
            x, y = MATRIX + CELL * j + 8, TOP + ROW * i + 11
            if i == j:
                canvas.box(x - 5, y - 5, 10, 10, LIGHT_GRAY, LIGHT_GRAY, radius=2)
            elif (count - 1 - i, count - 1 - j) in found:
                canvas.circle(x, y, 4.5, GRAY, GRAY)
                canvas.words.append(f"{i} imports {j}")
            else:
                canvas.circle(x, y, 1.2, WHITE, LIGHT_GRAY)
