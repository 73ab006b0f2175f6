"""
Draws the pictures of the README and the docs.

    python src/draw.py [--metrics work_dir/gpt2-small-shakespeare/metrics.jsonl]

The loss curve is drawn only with --metrics. Requires mytorch and matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from canvas import AMBER, BLACK, BLUE, GRAY, GREEN, LIGHT, LIGHT_GRAY, RED, WHITE, Canvas
from mytorch.nn.fused_ops.registry import FOLDERS, KERNELS

# The backward pass of loss = h.square() + h with h = x * w, at x = 2 and w = 3.

POSITIONS = {"x": (46, 116), "w": (46, 198), "mul": (148, 157), "square": (242, 112), "add": (330, 157)}
VALUES = {"x": "2", "w": "3", "mul": "6", "square": "36", "add": "42"}
NUM_GRADIENTS = {"x": 1, "w": 1, "mul": 2, "square": 1, "add": 0}
EDGES = {  # edge -> offset of its label from its middle
    ("x", "mul"): (9, -9), ("w", "mul"): (9, 10), ("mul", "square"): (-10, -9), ("square", "add"): (12, -8),
    ("mul", "add"): (0, 14),
}  # fmt: skip
STEPS: list[dict] = [
    {
        "title": "Count",
        "caption": ["How many gradients will arrive at each gate?", "Two at mul: h is used twice."],
        "gradients": {}, "arrived": {}, "state": {},
    },
    {
        "title": "add runs",
        "caption": [
            "It passes 1 to both of its inputs. The gate of square", "opens. mul still waits for one.",
        ],
        "gradients": {("mul", "add"): "1", ("square", "add"): "1"},
        "arrived": {"mul": 1, "square": 1},
        "state": {"add": "now", "square": "open", "mul": "waits"},
    },
    {
        "title": "square runs",
        "caption": ["It passes 1 · 2h = 12. Now mul has both, 1 + 12 = 13,", "and its gate opens."],
        "gradients": {("mul", "square"): "12"},
        "arrived": {"mul": 2, "square": 1},
        "state": {"add": "done", "square": "now", "mul": "open"},
    },
    {
        "title": "mul runs, once",
        "caption": ["It passes 13 · w to x and 13 · x to w. These are", "leaves: they keep it, in .grad."],
        "gradients": {("x", "mul"): "39", ("w", "mul"): "26"},
        "arrived": {"mul": 2, "square": 1, "x": 1, "w": 1},
        "state": {"add": "done", "square": "done", "mul": "now", "x": "now", "w": "now"},
        "values": {"x": "grad 39", "w": "grad 26"},
    },
]  # fmt: skip
STATE_COLORS = {  # state of a node -> fill and edge color
    "": (WHITE, LIGHT_GRAY), "waits": (LIGHT[AMBER], AMBER), "open": (LIGHT[BLUE], BLUE),
    "now": (LIGHT[GREEN], GREEN), "done": (LIGHT[LIGHT_GRAY], LIGHT_GRAY),
}  # fmt: skip
LEGEND = [
    (26, "now", "runs now"), (150, "open", "gate open, runs next"), (346, "waits", "waits at its gate"),
    (520, "done", "done"),
]  # fmt: skip


def draw_autograd() -> None:
    canvas = Canvas(640)
    canvas.text(26, 34, "The backward pass", 13, bold=True)
    canvas.text(26, 62, "x = 2,  w = 3        h = x * w        loss = h.square() + h", 10.5, code=True)
    for number, step in enumerate(STEPS):
        _draw_step(canvas, 20 + 385 * (number % 2), 88 + 250 * (number // 2), number + 1, step)
    y = 610
    for x, state, label in LEGEND:
        canvas.box(x, y - 9, 26, 18, *STATE_COLORS[state], radius=4)
        canvas.text(x + 34, y, label, 9.5, GRAY)
    _draw_gate(canvas, 618, y, 2, 1)
    canvas.text(636, y, "1 of 2 has arrived", 9.5, GRAY)
    canvas.save("autograd")


def _draw_step(canvas: Canvas, left: float, top: float, number: int, step: dict) -> None:
    canvas.box(left, top, 375, 238, radius=8)
    canvas.circle(left + 22, top + 22, 11, BLACK, BLACK)
    canvas.text(left + 22, top + 22, str(number), 9.5, WHITE, ha="center", bold=True)
    canvas.text(left + 42, top + 22, step["title"], 11, bold=True)
    for i, line in enumerate(step["caption"]):
        canvas.text(left + 14, top + 49 + 18 * i, line, 9.2, GRAY)
    for edge in EDGES:
        _draw_edge(canvas, left, top, edge, step["gradients"].get(edge))
    for name, (x, y) in POSITIONS.items():
        state = step["state"].get(name, "")
        value = step.get("values", {}).get(name, VALUES[name])
        linewidth = 2 if state == "now" else 1.2
        canvas.box(left + x - 32, top + y - 18, 64, 36, *STATE_COLORS[state], linewidth=linewidth)
        canvas.text(left + x, top + y - 7, name, 9.5, ha="center", code=True, bold=True)
        canvas.text(left + x, top + y + 9, value, 8.5, GRAY, ha="center", code=True)
        _draw_gate(canvas, left + x, top + y + 27, NUM_GRADIENTS[name], step["arrived"].get(name, 0))


def _draw_edge(canvas: Canvas, left: float, top: float, edge: tuple[str, str], gradient: str | None) -> None:
    """Draws an edge of the graph: a line, or with a gradient a reversed arrow and its label."""
    (x0, y0), (x1, y1) = (POSITIONS[name] for name in edge)
    start, end = (left + x0 + 32, top + y0), (left + x1 - 32, top + y1)
    if gradient is None:
        canvas.line(start, end)
        return
    canvas.arrow(end, start, GREEN, linewidth=2)
    x, y = ((a + b) / 2 + offset for a, b, offset in zip(start, end, EDGES[edge], strict=True))
    canvas.text(x, y, gradient, 10, GREEN, ha="center", bold=True)


def _draw_gate(canvas: Canvas, x: float, y: float, expected: int, arrived: int) -> None:
    """Draws a circle for each expected gradient, filled if the gradient has arrived."""
    for i in range(expected):
        canvas.circle(x + 12 * i - 6 * (expected - 1), y, 4, GREEN if i < arrived else WHITE, GREEN)


# The structure of an op and of a composite.

STAGES = [  # of a call: name, two lines of description
    ("unwrap", "Tensor → NumPy", "or CuPy array"), ("promote", "int + float", "→ float"),
    ("call", "the function", "above"), ("record", "a node with", "the vjp"),
    ("fit", "undo broadcast", "and cast"), ("add up", "many paths,", "one gradient"),
]  # fmt: skip
FILES = " and ".join(f"{folder}/{KERNELS['silu']}.py" for folder in FOLDERS.values())
KINDS = f"Numba on the CPU, Triton on the GPU: {len(KERNELS)} functions have one"
VARIANTS = [  # option, name, description, color, linestyle, height, code
    ("auto=True", "the reference", "readable Tensor code: it defines the result", BLUE, "-", 108, [
        [("@composite", BLUE)],
        [("def ", BLUE), ("silu(input):", BLACK)],
        [("    return ", BLUE), ("input * sigmoid(input)", BLACK)],
    ]),
    ("fused=False", "manual backward", "the gradient derived on paper, as an op", GREEN, "-", 128, [
        [("@silu.manual", BLUE)],
        [("def ", BLUE), ("_silu(x, inplace):", BLACK)],
        [("    s = raw_sigmoid(x);  y = x * s", BLACK)],
        [("    return ", BLUE), ("y", GREEN), (", ", BLACK), ("lambda g: g * (s + y * (1 - s))", AMBER)],
    ]),
    ("default", "a kernel", KINDS, AMBER, "-", 128, [
        [('@silu.fused("cpu")', AMBER)],
        [("def ", BLUE), ("_(x, inplace):", BLACK)],
        [("    return ", BLUE), ("unary(x, _silu, _silu_backward)", BLACK)],
        [(f"# in {FILES}", GRAY)],
    ]),
]  # fmt: skip


def draw_ops() -> None:
    canvas = Canvas(768)
    _draw_op(canvas, 36)
    canvas.line((26, 300), (774, 300), linewidth=1)
    canvas.text(26, 330, "A composite has one meaning and up to three implementations", 13, bold=True)
    _draw_variants(canvas, 356)
    canvas.save("ops")


def _draw_op(canvas: Canvas, top: float) -> None:
    canvas.text(26, top, "An op is one function on raw arrays", 13, bold=True)
    canvas.box(26, top + 24, 430, 104)
    canvas.code(42, top + 46, [
        [("@op", BLUE), ('(promote="common")', BLACK)],
        [("def ", BLUE), ("mul(x, y):", BLACK)],
        [("    return ", BLUE), ("x * y", GREEN), (", (", BLACK), ("lambda g: g * y", AMBER), (",", BLACK)],
        [("                   ", BLACK), ("lambda g: g * x", AMBER), (")", BLACK)],
    ])  # fmt: skip
    for y, color, label in ((52, GREEN, "the result"), (78, AMBER, "the vjp: from g, the gradient")):
        canvas.box(478, top + y - 6, 12, 12, color, color, radius=2)
        canvas.text(500, top + y, label)
    canvas.text(500, top + 98, "of the result, to that of each input")
    canvas.text(26, top + 154, "All the rest is done once, for every op:", 10.5)
    y = top + 174
    for i, (name, *lines) in enumerate(STAGES):
        x = 26 + 126 * i
        canvas.box(x, y, 118, 66, *((LIGHT[GREEN], GREEN) if name == "call" else (WHITE, LIGHT_GRAY)))
        canvas.text(x + 59, y + 14, name, ha="center", bold=True)
        for j, line in enumerate(lines):
            canvas.text(x + 59, y + 34 + 17 * j, line, 8.8, GRAY, ha="center")
        if i:
            canvas.arrow((x - 8, y + 33), (x, y + 33), linewidth=1)


def _draw_variants(canvas: Canvas, y: float) -> None:
    gap, branch_x = 10, 162
    centers, bottom = [], y
    for *_, height, _ in VARIANTS:
        centers.append(bottom + height / 2)
        bottom += height + gap
    call_y = centers[1]
    canvas.box(26, call_y - 30, 118, 60, LIGHT[BLUE], BLUE)
    canvas.text(85, call_y - 10, "F.silu(x)", 11, ha="center", code=True, bold=True)
    canvas.text(85, call_y + 13, "chooses one", 9, GRAY, ha="center")
    canvas.line((144, call_y), (branch_x, call_y), color=GRAY)
    canvas.line((branch_x, centers[0]), (branch_x, centers[-1]), color=GRAY)
    for center, (option, name, text, color, linestyle, height, code) in zip(centers, VARIANTS, strict=True):
        canvas.arrow((branch_x, center), (270, center))
        canvas.text(214, center - 13, option, 9.5, color, ha="center", code=True)
        canvas.box(270, center - height / 2, 504, height, WHITE, color, linestyle=linestyle)
        canvas.text(286, center - height / 2 + 21, name, 10.5, color, bold=True)
        canvas.text(758, center - height / 2 + 21, text, 9.2, GRAY, ha="right")
        canvas.code(286, center - height / 2 + 47, code)


# The layers of the package; tests/test_layers.py checks the imports against the same order.

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
    top, row_height = 66, 40
    bottom = top + row_height * len(LAYERS) - 6
    canvas = Canvas(bottom + 24)
    canvas.text(26, 34, "Imports point one way", 13, bold=True)
    canvas.text(716, 35, "a file imports only what is beside or below it", 10, GRAY, ha="right")
    for i, (names, text, color) in enumerate(LAYERS):
        y = top + row_height * i
        canvas.box(26, y, 690, row_height - 6, LIGHT[color], color, linewidth=1)
        canvas.text(40, y + 17, names, code=True, bold=True)
        canvas.text(702, y + 17, text, 9.5, GRAY, ha="right")
    for name, first, last, color in GROUPS:
        center = top + row_height * (first + last) / 2 - 3
        canvas.text(736, center, name, 9.5, color, ha="center", vertical=True)
    canvas.arrow((766, top), (766, bottom), linewidth=2)
    canvas.save("layers")


# The loss curve of a training run.


def draw_loss(metrics: Path) -> None:
    rows = [json.loads(row) for row in metrics.read_text().splitlines()]
    train = [(row["iteration"], row["loss"]) for row in rows if "loss" in row]
    val = [(row["iteration"], row["val_loss"]) for row in rows if "val_loss" in row]
    last = next((row for row in rows if row.get("whole_split")), None)
    if last is None:
        raise SystemExit(f"{metrics}: the loss over the whole validation split is missing")
    canvas = Canvas(400)
    canvas.text(26, 32, "A GPT learns Tiny Shakespeare, character by character", 13, bold=True)
    axes = canvas.figure.add_axes((0.085, 0.14, 0.885, 0.715), facecolor=WHITE)
    axes.plot(*zip(*train, strict=True), color="#8fb0d9", linewidth=1, label="training, one batch")
    axes.plot(*zip(*val, strict=True), color=RED, marker="o", markersize=4, clip_on=False, label="validation")
    axes.annotate(
        f"{last['val_loss']:.3f} over the whole validation split", (last["iteration"], last["val_loss"]),
        xytext=(-4, 34), textcoords="offset points", ha="right", color=RED, size=10.5, weight="bold",
        arrowprops={"arrowstyle": "-", "color": RED, "linewidth": 1},
    )  # fmt: skip
    axes.set_xlim(0, last["iteration"] * 1.015)
    axes.set_xlabel("iteration", color=GRAY)
    axes.set_ylabel("cross entropy, nats a character", color=GRAY)
    axes.tick_params(colors=GRAY, labelsize=9.5)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(color=LIGHT_GRAY, linewidth=0.6, alpha=0.7)
    axes.spines[:].set_color(LIGHT_GRAY)
    axes.legend(frameon=False, labelcolor=BLACK, loc="upper right")
    canvas.save("loss")


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
