"""The picture of an op and of a composite."""

from __future__ import annotations

from canvas import AMBER, BLACK, BLUE, GRAY, GREEN, LIGHT, LIGHT_GRAY, WHITE, Canvas

from mytorch.nn.fused_ops.kernels import KERNELS
from mytorch.nn.fused_ops.registry import FOLDERS

STAGES = [  # of a call: name, two lines of description
    ("unwrap", "Tensor → NumPy", "or CuPy array"), ("promote", "int + float", "→ float"),
    ("call", "the function", "above"), ("record", "a node with", "the vjp"),
    ("fit", "undo broadcast", "and cast"), ("add up", "many paths,", "one gradient"),
]
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
]


def draw_ops() -> Canvas:
    canvas = Canvas(768)
    _draw_op(canvas, 36)
    canvas.line((26, 300), (774, 300), linewidth=1)
    canvas.text(26, 330, "A composite has one meaning and up to three implementations", 13, bold=True)
    _draw_variants(canvas, 356)
    return canvas


def _draw_op(canvas: Canvas, top: float) -> None:
    canvas.text(26, top, "An op is one function on raw arrays", 13, bold=True)
    canvas.box(26, top + 24, 430, 104)
    canvas.code(42, top + 46, [
        [("@op", BLUE), ('(promote="common")', BLACK)],
        [("def ", BLUE), ("mul(x, y):", BLACK)],
        [("    return ", BLUE), ("x * y", GREEN), (", (", BLACK), ("lambda g: g * y", AMBER), (",", BLACK)],
        [("                   ", BLACK), ("lambda g: g * x", AMBER), (")", BLACK)],
    ])
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
