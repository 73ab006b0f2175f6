"""The pictures of the backward pass: the order in a tree, the gate, and the order of visits."""

from __future__ import annotations

from canvas import AMBER, BLACK, BLUE, GRAY, GREEN, LIGHT, LIGHT_GRAY, WHITE, Canvas

import mytorch

# The backward pass of loss = h.square() + h with h = x * w, at x = 2 and w = 3.

POSITIONS = {"x": (46, 116), "w": (46, 198), "mul": (148, 157), "square": (242, 112), "add": (330, 157)}
VALUES = {"x": "2", "w": "3", "mul": "6", "square": "36", "add": "42"}
NUM_GRADIENTS = {"x": 1, "w": 1, "mul": 2, "square": 1, "add": 0}
EDGES = {  # edge -> offset of its label from its middle
    ("x", "mul"): (9, -9), ("w", "mul"): (9, 10), ("mul", "square"): (-10, -9), ("square", "add"): (12, -8),
    ("mul", "add"): (0, 14),
}
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
]
STATE_COLORS = {  # state of a node -> fill and edge color
    "": (WHITE, LIGHT_GRAY), "waits": (LIGHT[AMBER], AMBER), "open": (LIGHT[BLUE], BLUE),
    "now": (LIGHT[GREEN], GREEN), "done": (LIGHT[LIGHT_GRAY], LIGHT_GRAY),
}
LEGEND = [
    (26, "now", "runs now"), (150, "open", "gate open, runs next"), (346, "waits", "waits at its gate"),
    (520, "done", "done"),
]


def draw_autograd() -> Canvas:
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
    return canvas


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


# The two orders, as the engine visits the nodes: of (a + b) * (c + d), and of the graph above.

TREE = {
    "a": (70, 128), "b": (70, 198), "c": (70, 278), "d": (70, 348), "left": (230, 163), "right": (230, 313),
    "mul": (390, 238),
}
TREE_EDGES = [
    ("a", "left"), ("b", "left"), ("c", "right"), ("d", "right"), ("left", "mul"), ("right", "mul"),
]
TREE_WORDS = [
    "A node that runs passes a gradient to", "each of its parents. The last parent",
    "runs next, and all that is behind it,", "before the other one: depth first.",
    "", "Every node gets one gradient here, so", "none has to wait.",
]


def visits(loss: mytorch.Tensor, **tensors: mytorch.Tensor) -> list[str]:
    """Returns the names of the tensors in the order in which the backward pass completes their gradients."""
    order: list[str] = []
    for name, tensor in tensors.items():
        tensor.register_hook(lambda _, name=name: order.append(name))
    loss.backward()
    return order


def _leaves(count: int) -> list[mytorch.Tensor]:
    return [mytorch.tensor(2.0 + i, requires_grad=True) for i in range(count)]


def draw_depth_first() -> Canvas:
    """Returns the order of the backward pass where every value is used once: depth first."""
    a, b, c, d = _leaves(4)
    left, right = a + b, c + d
    mul = left * right
    order = visits(mul, a=a, b=b, c=c, d=d, left=left, right=right, mul=mul)
    canvas = Canvas(400)
    canvas.text(26, 34, "Each value is used once: depth first", 13, bold=True)
    canvas.text(26, 62, "left = a + b        right = c + d        loss = left * right", 10.5, code=True)
    for parent, node in TREE_EDGES:
        (x0, y0), (x1, y1) = TREE[node], TREE[parent]
        canvas.arrow((x0 - 32, y0), (x1 + 32, y1), GREEN, linewidth=2)
    for name, (x, y) in TREE.items():
        _draw_node(canvas, x, y, name, "open" if name in "abcd" else "")
        _draw_number(canvas, x + 32, y - 18, order.index(name) + 1)
    for i, line in enumerate(TREE_WORDS):
        canvas.text(480, 158 + 26 * i, line, 10, GRAY)
    return canvas


def draw_order() -> Canvas:
    """Returns the nodes of the graph with a gate in the order in which they run: a topological order."""
    x, w = _leaves(2)
    mul = x * w
    square = mul.square()
    add = square + mul
    order = visits(add, x=x, w=w, mul=mul, square=square, add=add)
    canvas = Canvas(270)
    canvas.text(26, 34, "The gates make it a topological order", 13, bold=True)
    canvas.text(26, 62, "In a row, in the order in which they run, all edges point to the right:", 10, GRAY)
    canvas.text(26, 84, "a node runs after everything that used its value.", 10, GRAY)
    places = {name: (90 + 155 * i, 180) for i, name in enumerate(order)}
    for parent, node in EDGES:
        (x0, y), (x1, _) = places[node], places[parent]
        is_next = order.index(parent) == order.index(node) + 1
        ends = ((x0 + 32, y), (x1 - 32, y)) if is_next else ((x0 + 16, y - 18), (x1 - 16, y - 18))
        canvas.arrow(*ends, GREEN, linewidth=2, bend=0.0 if is_next else -0.2)
    for number, (name, (x, y)) in enumerate(places.items(), 1):
        _draw_node(canvas, x, y, name, "open" if name in "xw" else "")
        _draw_number(canvas, x, y + 44, number)
    return canvas


def _draw_node(canvas: Canvas, x: float, y: float, name: str, state: str) -> None:
    canvas.box(x - 32, y - 18, 64, 36, *STATE_COLORS[state])
    canvas.text(x, y, name, 9.5, ha="center", code=True, bold=True)


def _draw_number(canvas: Canvas, x: float, y: float, number: int) -> None:
    canvas.circle(x, y, 11, BLACK, BLACK)
    canvas.text(x, y, str(number), 9.5, WHITE, ha="center", bold=True)
