"""
Draws the pictures of the README and the docs.

    python src/draw.py [--metrics work_dir/gpt2-small-shakespeare/metrics.jsonl]

Without --metrics the loss curve is left as it is. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from canvas import AMBER, BLUE, GREEN, INK, LINE, PALE, RED, SOFT, WHITE, Canvas

# The backward pass: loss = h.square() + h with h = x * w, at x = 2 and w = 3.

PLACES = {"x": (46, 116), "w": (46, 198), "mul": (148, 157), "square": (242, 112), "add": (330, 157)}
VALUES = {"x": "2", "w": "3", "mul": "6", "square": "36", "add": "42"}
GATES = {"x": 1, "w": 1, "mul": 2, "square": 1, "add": 0}  # how many gradients will arrive
EDGES = {  # and where the gradient is written, from the middle of the edge
    ("x", "mul"): (9, -9), ("w", "mul"): (9, 10), ("mul", "square"): (-10, -9), ("square", "add"): (12, -8),
    ("mul", "add"): (0, 14),
}  # fmt: skip
STEPS: list[dict] = [
    {
        "title": "Count",
        "words": ["How many gradients will arrive at each gate?", "Two at mul: h is used twice."],
        "sent": {}, "arrived": {}, "state": {},
    },
    {
        "title": "add runs",
        "words": ["It passes 1 to both of its inputs. The gate of square", "opens. mul still waits for one."],
        "sent": {("mul", "add"): "1", ("square", "add"): "1"},
        "arrived": {"mul": 1, "square": 1},
        "state": {"add": "now", "square": "open", "mul": "waits"},
    },
    {
        "title": "square runs",
        "words": ["It passes 1 · 2h = 12. Now mul has both, 1 + 12 = 13,", "and its gate opens."],
        "sent": {("mul", "square"): "12"},
        "arrived": {"mul": 2, "square": 1},
        "state": {"add": "done", "square": "now", "mul": "open"},
    },
    {
        "title": "mul runs, once",
        "words": ["It passes 13 · w to x and 13 · x to w. These are", "leaves: they keep it, in .grad."],
        "sent": {("x", "mul"): "39", ("w", "mul"): "26"},
        "arrived": {"mul": 2, "square": 1, "x": 1, "w": 1},
        "state": {"add": "done", "square": "done", "mul": "now", "x": "now", "w": "now"},
        "values": {"x": "grad 39", "w": "grad 26"},
    },
]  # fmt: skip
LOOK = {  # fill and edge of a node, by what it is doing
    "": (WHITE, LINE), "waits": (PALE[AMBER], AMBER), "open": (PALE[BLUE], BLUE), "now": (PALE[GREEN], GREEN),
    "done": (PALE[LINE], LINE),
}  # fmt: skip
LEGEND = [
    (26, "now", "runs now"), (150, "open", "gate open, runs next"), (346, "waits", "waits at its gate"),
    (520, "done", "done"),
]  # fmt: skip


def draw_autograd() -> None:
    sheet = Canvas(640)
    sheet.text(26, 34, "The backward pass", 13, bold=True)
    sheet.text(26, 62, "x = 2,  w = 3        h = x * w        loss = h.square() + h", 10.5, code=True)
    for number, step in enumerate(STEPS):
        _draw_step(sheet, 20 + 385 * (number % 2), 88 + 250 * (number // 2), number + 1, step)
    y = 610
    for x, state, words in LEGEND:
        sheet.box(x, y - 9, 26, 18, *LOOK[state], radius=4)
        sheet.text(x + 34, y, words, 9.5, SOFT)
    _draw_gate(sheet, 618, y, 2, 1)
    sheet.text(636, y, "1 of 2 has arrived", 9.5, SOFT)
    sheet.save("autograd")


def _draw_step(sheet: Canvas, left: float, top: float, number: int, step: dict) -> None:
    sheet.box(left, top, 375, 238, radius=8)
    sheet.dot(left + 22, top + 22, 11, INK, INK)
    sheet.text(left + 22, top + 22, str(number), 9.5, WHITE, ha="center", bold=True)
    sheet.text(left + 42, top + 22, step["title"], 11, bold=True)
    for row, words in enumerate(step["words"]):
        sheet.text(left + 14, top + 49 + 18 * row, words, 9.2, SOFT)
    for edge in EDGES:
        _draw_edge(sheet, left, top, edge, step["sent"].get(edge))
    for name, (x, y) in PLACES.items():
        state = step["state"].get(name, "")
        value = step.get("values", {}).get(name, VALUES[name])
        sheet.box(left + x - 32, top + y - 18, 64, 36, *LOOK[state], thick=2 if state == "now" else 1.2)
        sheet.text(left + x, top + y - 7, name, 9.5, ha="center", code=True, bold=True)
        sheet.text(left + x, top + y + 9, value, 8.5, SOFT, ha="center", code=True)
        _draw_gate(sheet, left + x, top + y + 27, GATES[name], step["arrived"].get(name, 0))


def _draw_edge(sheet: Canvas, left: float, top: float, edge: tuple[str, str], gradient: str | None) -> None:
    """A grey line of the forward pass, or a green arrow back along it with the gradient that it carries."""
    (x0, y0), (x1, y1) = (PLACES[name] for name in edge)
    start, end = (left + x0 + 32, top + y0), (left + x1 - 32, top + y1)
    if gradient is None:
        sheet.line(start, end)
        return
    sheet.arrow(end, start, GREEN, thick=2)
    x, y = ((a + b) / 2 + beside for a, b, beside in zip(start, end, EDGES[edge], strict=True))
    sheet.text(x, y, gradient, 10, GREEN, ha="center", bold=True)


def _draw_gate(sheet: Canvas, x: float, y: float, expected: int, arrived: int) -> None:
    """A dot for each gradient that will arrive, filled when it has."""
    for i in range(expected):
        sheet.dot(x + 12 * i - 6 * (expected - 1), y, 4, GREEN if i < arrived else WHITE, GREEN)


# How an op and a composite are written.

STAGES = [  # of a call; the lines below each
    ("unwrap", "Tensor → NumPy", "or CuPy array"), ("promote", "int + float", "→ float"),
    ("call", "the function", "above"), ("record", "a node with", "the vjp"),
    ("fit", "undo broadcast", "and cast"), ("add up", "many paths,", "one gradient"),
]  # fmt: skip
VARIANTS = [  # option, name, what it is, colour, edge, height, code
    ("auto=True", "the reference", "readable Tensor code: it defines the result", BLUE, "-", 108, [
        [("@composite", BLUE)],
        [("def ", BLUE), ("silu(input):", INK)],
        [("    return ", BLUE), ("input / (1 + (-input).exp())", INK)],
    ]),
    ("default", "manual backward", "the gradient derived on paper, as an op", GREEN, "-", 128, [
        [("@silu.manual", BLUE)],
        [("def ", BLUE), ("_silu(x):", INK)],
        [("    s, _ = sigmoid.forward(x);  y = x * s", INK)],
        [("    return ", BLUE), ("y", GREEN), (", ", INK), ("lambda g: g * (s + y * (1 - s))", AMBER)],
    ]),
    ("fused=True", "a kernel", "Numba on the CPU, Triton on the GPU", SOFT, "--", 88, [
        [('@silu.fused("cpu")', SOFT)],
        [("def _silu_cpu(x): …", SOFT)],
    ]),
]  # fmt: skip


def draw_ops() -> None:
    sheet = Canvas(728)
    _draw_op(sheet, 36)
    sheet.line((26, 300), (774, 300), thick=1)
    sheet.text(26, 330, "A composite has one meaning and up to three implementations", 13, bold=True)
    _draw_variants(sheet, 356)
    sheet.save("ops")


def _draw_op(sheet: Canvas, top: float) -> None:
    sheet.text(26, top, "An op is one function on raw arrays", 13, bold=True)
    sheet.box(26, top + 24, 430, 104)
    sheet.code(42, top + 46, [
        [("@op", BLUE), ('(promote="common")', INK)],
        [("def ", BLUE), ("mul(x, y):", INK)],
        [("    return ", BLUE), ("x * y", GREEN), (", (", INK), ("lambda g: g * y", AMBER), (",", INK)],
        [("                   ", INK), ("lambda g: g * x", AMBER), (")", INK)],
    ])  # fmt: skip
    for y, color, words in ((52, GREEN, "the result"), (78, AMBER, "the vjp: from g, the gradient")):
        sheet.box(478, top + y - 6, 12, 12, color, color, radius=2)
        sheet.text(500, top + y, words)
    sheet.text(500, top + 98, "of the result, to that of each input")
    sheet.text(26, top + 154, "All the rest is done once, for every op:", 10.5)
    y = top + 174
    for i, (name, *rows) in enumerate(STAGES):
        x = 26 + 126 * i
        sheet.box(x, y, 118, 66, *((PALE[GREEN], GREEN) if name == "call" else (WHITE, LINE)))
        sheet.text(x + 59, y + 14, name, ha="center", bold=True)
        for row, words in enumerate(rows):
            sheet.text(x + 59, y + 34 + 17 * row, words, 8.8, SOFT, ha="center")
        if i:
            sheet.arrow((x - 8, y + 33), (x, y + 33), thick=1)


def _draw_variants(sheet: Canvas, y: float) -> None:
    gap, trunk = 10, 162
    middles, bottom = [], y
    for *_, height, _ in VARIANTS:
        middles.append(bottom + height / 2)
        bottom += height + gap
    call = middles[1]
    sheet.box(26, call - 30, 118, 60, PALE[BLUE], BLUE)
    sheet.text(85, call - 10, "F.silu(x)", 11, ha="center", code=True, bold=True)
    sheet.text(85, call + 13, "chooses one", 9, SOFT, ha="center")
    sheet.line((144, call), (trunk, call), color=SOFT)
    sheet.line((trunk, middles[0]), (trunk, middles[-1]), color=SOFT)
    for middle, (option, name, words, color, style, height, code) in zip(middles, VARIANTS, strict=True):
        sheet.arrow((trunk, middle), (270, middle))
        sheet.text(214, middle - 13, option, 9.5, color, ha="center", code=True)
        sheet.box(270, middle - height / 2, 504, height, WHITE, color, style=style)
        sheet.text(286, middle - height / 2 + 21, name, 10.5, color, bold=True)
        sheet.text(758, middle - height / 2 + 21, words, 9.2, SOFT, ha="right")
        sheet.code(286, middle - height / 2 + 47, code)


# The layers of the package. tests/test_layers.py has the same order, and holds every import to it.

LAYERS = [
    ("cli", "mytorchrun: config, test, launch, env", BLUE),
    ("models   accelerate", "GPT-2; Accelerator: precision, accumulation, checkpoints", BLUE),
    ("distributed", "collectives on MPI and NCCL, DDP, ZeRO, the launcher", BLUE),
    ("serialization   tokenizers   utils", "files, text, DataLoader", BLUE),
    ("optim", "SGD, Adam, Muon, …, schedules; flat buffers", BLUE),
    ("func", "grad(f), hessian(f), functional_call", BLUE),
    ("nn", "Module, layers, initialisation, clipping, kernels", BLUE),
    ("nn.functional", "activations, losses, convolution, attention, …", BLUE),
    ("methods   numpy_protocol   linalg   cuda", "which op is which method, or function of NumPy", GREEN),
    ("autograd", "grad, Function, checkpoint, gradients of gradients", GREEN),
    ("ops   random", "one file a family: elementwise, reduce, index, …", GREEN),
    ("core", "Array, Tensor, @op, the graph, the backward pass", AMBER),
    ("backends", "devices, dtypes, matrix products, threads", AMBER),
]
GROUPS = [("to build with", 0, 8, BLUE), ("to differentiate", 8, 11, GREEN), ("core", 11, 13, AMBER)]


def draw_layers() -> None:
    top, row = 66, 40
    bottom = top + row * len(LAYERS) - 6
    sheet = Canvas(bottom + 24)
    sheet.text(26, 34, "Imports point one way", 13, bold=True)
    sheet.text(716, 35, "a file imports only what is beside or below it", 10, SOFT, ha="right")
    for i, (names, words, color) in enumerate(LAYERS):
        y = top + row * i
        sheet.box(26, y, 690, row - 6, PALE[color], color, thick=1)
        sheet.text(40, y + 17, names, code=True, bold=True)
        sheet.text(702, y + 17, words, 9.5, SOFT, ha="right")
    for name, first, last, color in GROUPS:
        middle = top + row * (first + last) / 2 - 3
        sheet.text(736, middle, name, 9.5, color, ha="center", down=True)
    sheet.arrow((766, top), (766, bottom), thick=2)
    sheet.save("layers")


# The loss of a run.


def draw_loss(metrics: Path) -> None:
    rows = [json.loads(row) for row in metrics.read_text().splitlines()]
    train = [(row["iteration"], row["loss"]) for row in rows if "loss" in row]
    val = [(row["iteration"], row["val_loss"]) for row in rows if "val_loss" in row]
    last = next((row for row in rows if row.get("whole_split")), None)
    if last is None:
        raise SystemExit(f"{metrics}: not finished, no loss over the whole validation split")
    sheet = Canvas(400)
    sheet.text(26, 32, "A GPT learns Tiny Shakespeare, character by character", 13, bold=True)
    axes = sheet.figure.add_axes((0.085, 0.14, 0.885, 0.715), facecolor=WHITE)
    axes.plot(*zip(*train, strict=True), color="#8fb0d9", linewidth=1, label="training, one batch")
    axes.plot(*zip(*val, strict=True), color=RED, marker="o", markersize=4, clip_on=False, label="validation")
    axes.annotate(
        f"{last['val_loss']:.3f} over the whole validation split", (last["iteration"], last["val_loss"]),
        xytext=(-4, 34), textcoords="offset points", ha="right", color=RED, size=10.5, weight="bold",
        arrowprops={"arrowstyle": "-", "color": RED, "linewidth": 1},
    )  # fmt: skip
    axes.set_xlim(0, last["iteration"] * 1.015)
    axes.set_xlabel("iteration", color=SOFT)
    axes.set_ylabel("cross entropy, nats a character", color=SOFT)
    axes.tick_params(colors=SOFT, labelsize=9.5)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(color=LINE, linewidth=0.6, alpha=0.7)
    axes.spines[:].set_color(LINE)
    axes.legend(frameon=False, labelcolor=INK, loc="upper right")
    sheet.save("loss")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws the pictures of the README and the docs.")
    parser.add_argument("--metrics", type=Path, help="metrics.jsonl of a finished run, for the loss curve")
    args = parser.parse_args()
    draw_autograd()
    draw_ops()
    draw_layers()
    if args.metrics:
        draw_loss(args.metrics)


if __name__ == "__main__":
    main()
