"""`draw` and `step_through`: what the pictures say is what the graph holds and what the engine does."""

import contextlib
import io
import itertools
import re
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mytorch
from mytorch import nn
from mytorch.autograd import draw, step_through
from mytorch.autograd.diagram import Box, Diagram
from mytorch.autograd.stepping import MOST_NODES, steps_of
from mytorch.autograd.tape import backward_order
from mytorch.core import engine
from mytorch.nn import functional as F
from mytorch.utils.checkpoint import checkpoint
from tests.each import each
from tests.every import every

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    """A block of a GPT, with a list of modules, which has no forward."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.LayerNorm(4), nn.LayerNorm(4)])
        self.attention = nn.Linear(4, 12)
        self.mlp = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        q, k, v = self.attention(self.parts[0](x)).chunk(3, -1)
        x = x + F.softmax(q @ k.transpose(-1, -2), -1) @ v
        return x + self.mlp(self.parts[1](x))


def diamond():
    x = mytorch.tensor(2.0, requires_grad=True)
    w = mytorch.tensor(3.0, requires_grad=True)
    h = x * w
    return h.square() + h, {"x": x, "w": w, "h": h}


def block():
    model = nn.Sequential(Block(), Block())
    return model(mytorch.randn(2, 3, 4)).square().mean(), model


def boxes(picture):
    """The texts of the boxes of a drawing, and the boxes around each (its own last), as numbers."""
    found = {}

    def visit(element, around):
        for child in element:
            here = around
            if child.tag == f"{SVG}g" and "box" in child.get("class", ""):
                here = (*around, int(child.get("data-box")))
                found[here] = [line.text for line in child.findall(f"{SVG}text")]
            visit(child, here)

    visit(ElementTree.fromstring(picture.svg()), ())
    return found


def test_operations_shapes_bytes_names_and_gradients():
    w = mytorch.ones(3, 3, requires_grad=True)
    with mytorch.use_fused(False):
        h = mytorch.ones(2, 3) @ w
        loss = h.exp().sum()
    texts = list(boxes(draw(loss, names={"w": w, "h": h})).values())
    assert ["w", "float32[3,3]"] in texts and ["sum", "float32[]"] in texts
    assert ["exp", "float32[2,3]", "keeps 24 B"] in texts
    assert any(text[:2] == ["matmul (h)", "float32[2,3]"] for text in texts)
    loss.backward()
    after = list(boxes(draw(loss, names={"w": w})).values())
    assert ["w", "float32[3,3]", f"grad norm {np.linalg.norm(w.grad.numpy()):.3g}"] in after
    assert ["exp", "float32[2,3]", "freed"] in after


def test_arrows_are_the_edges():
    loss, names = diamond()
    root = ElementTree.fromstring(draw(loss, names=names).svg())
    titles = {g.get("data-box"): [t.text for t in g.iter(f"{SVG}text")] for g in root.iter(f"{SVG}g")}
    arrows = [(path.get("data-from"), path.get("data-to")) for path in root.iter(f"{SVG}path")]
    shown = [tuple(titles[number][0] if titles[number] else "" for number in arrow) for arrow in arrows]
    assert sorted(shown) == [  # that from mul to add passes the row of square
        ("", "add"), ("mul (h)", ""), ("mul (h)", "square"), ("square", "add"), ("w", "mul (h)"),
        ("x", "mul (h)"),
    ]


@each("recorded", [True, False])
def test_operations_are_in_their_modules(recorded):
    if recorded:
        with mytorch.stream.record():
            loss, model = block()
    else:
        loss, model = block()
    found = boxes(draw(loss, model=model))
    titles = {key[-1]: lines[0] for key, lines in found.items()}
    paths = {" / ".join([titles[number] for number in key]) for key in found}
    assert {"0 Block", "1 Block", "mean"} <= paths
    tanh = "mlp Sequential / 1 Tanh / tanh" if recorded else "mlp Sequential / tanh"
    parts = "attention Linear / linear", "parts.1 LayerNorm / weight", "add", "softmax", tanh
    for path in parts:
        assert f"0 Block / {path}" in paths, path
    assert not any("ModuleList" in path for path in paths)
    (first,) = [lines for key, lines in found.items() if lines[0] == "0 Block"]
    inside = [lines for key, lines in found.items() if titles[key[0]] == "0 Block" and len(key) > 1]
    ops = [lines for lines in inside if lines[0] not in ("weight", "bias") and "operation" not in lines[1]]
    assert re.fullmatch(rf"{len(ops)} operations, keeps [\d.]+ KB", first[1])


def test_boxes_lie_beside_or_inside_each_other():
    loss, model = block()
    root = ElementTree.fromstring(draw(loss, model=model).svg())
    places = {}
    for g in root.iter(f"{SVG}g"):
        if "box" in g.get("class", ""):
            rect = g.find(f"{SVG}rect")
            places[g] = [float(rect.get(key)) for key in ("x", "y", "width", "height")]
    for (a, (x, y, w, h)), (b, (x2, y2, w2, h2)) in itertools.combinations(places.items(), 2):
        if b in set(a.iter()):
            assert x < x2 and y < y2 and x2 + w2 < x + w and y2 + h2 < y + h
        else:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_a_module_that_runs_twice_has_two_frames():
    layer, head = nn.Linear(2, 2), nn.Linear(2, 2)
    model = nn.Sequential(layer, head, layer)
    with mytorch.stream.record():
        loss = model(mytorch.ones(1, 2)).sum()
    outer = [lines[0] for key, lines in boxes(draw(loss, model=model)).items() if len(key) == 1]
    assert outer == ["0 Linear", "1 Linear", "0 Linear", "sum"]


def test_several_outputs_are_one_box():
    a, b = mytorch.ones(2, 2, requires_grad=True).unbind(0)
    texts = list(boxes(draw((a * b).sum())).values())
    assert [text[0] for text in texts] == ["leaf", "unbind", "mul", "sum"]
    assert texts[1][1] == "several outputs"


def test_files(tmp_path, monkeypatch):
    loss, names = diamond()
    picture = draw(loss, tmp_path / "graph.svg", names=names)
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == picture.svg()
    picture.save(tmp_path / "graph.html")
    assert picture.svg() in (tmp_path / "graph.html").read_text(encoding="utf-8")
    picture.save(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes()[:4] == b"\x89PNG"
    assert "<iframe" in picture._repr_html_() and picture._repr_svg_() == picture.svg()
    with pytest.raises(ValueError, match=r"as .html, .svg or .png, got .*graph.gif"):
        draw(loss, tmp_path / "graph.gif")
    with pytest.raises(ValueError, match=r"as .html, got .*steps.svg"):
        step_through(loss, tmp_path / "steps.svg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        picture.save(tmp_path / "other.png")


def test_names_are_escaped(tmp_path):
    x = mytorch.ones(1, requires_grad=True)
    name = "</script><b>&"
    assert boxes(draw(x * x, names={name: x}))[0,][0] == name
    assert name not in step_through(x * x, names={name: x}).html()


def test_errors():
    x = mytorch.ones(3, requires_grad=True)
    for function, name in ((draw, "draw"), (step_through, "step_through")):
        with pytest.raises(TypeError, match=rf"{name}\(\): expected a Tensor, got int"):
            function(1)
        with pytest.raises(RuntimeError, match=rf"{name}\(\): no operation was recorded"):
            function(x.detach())
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        step_through(x * 2)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        step_through(loss)
    for _ in range(MOST_NODES):
        x = x + 1
    with pytest.raises(ValueError, match=f"a graph of {MOST_NODES + 2} nodes"):
        step_through(x.sum())


def shared():
    """A graph whose inputs are used several times, in several orders."""
    x, w = (mytorch.tensor(value, requires_grad=True) for value in (0.5, 1.5))
    a = mytorch.addcmul(x, w, x)
    b = a * a + x
    first, second = mytorch.stack([a, b, w]).chunk(2)
    return (first * first.sum()).sum() + second.sum() * b.exp()


GRAPHS = {
    "diamond": lambda: diamond()[0],
    "block": lambda: block()[0],
    "shared": shared,
    "checkpoint": lambda: checkpoint(nn.Linear(2, 2), mytorch.ones(1, 2, requires_grad=True)).sum(),
    "leaf": lambda: mytorch.tensor(1.0, requires_grad=True),
}


@each("name", GRAPHS)
def test_the_order_and_the_gradients_are_those_of_backward(name, monkeypatch):
    loss = GRAPHS[name]()
    steps = steps_of(loss)
    assert [step.node for step in steps] == backward_order(loss.node)
    visited = []
    call = engine.call_vjp
    monkeypatch.setattr(engine, "call_vjp", lambda node, *args: visited.append(node) or call(node, *args))
    leaves = [step for step in steps if not step.node.parents]
    assert every(step.node.tensor()._grad is None for step in leaves)  # nothing was stored
    tensors = [step.node.tensor() for step in leaves]
    loss.backward()  # and nothing freed
    assert [step.node for step in steps if step.node.parents] == visited
    for step, tensor in zip(leaves, tensors, strict=True):
        norm = tensor.grad.norm().item()
        shown = float(re.search(r"[-\d.e]+$", step.gradient)[0]) if "[" not in step.gradient else None
        assert shown is None or abs(shown) == pytest.approx(norm, rel=5e-3)


@each("name", GRAPHS)
def test_the_last_gate_that_opened_runs_next(name):
    page = step_through(GRAPHS[name]())
    for before, after in itertools.pairwise(page.data):
        opened = before["open"][-1]
        assert after["title"] in (f"{opened} runs", f"{opened} is a leaf")
        assert f"Next: {opened}" in before["text"]
        assert before["nodes"][after["runs"]][0] == "open"
        assert [state for state, *_ in after["nodes"].values()].count("now") == 1
    assert page.data[-1]["open"] == [] and "over" in page.data[-1]["text"]
    assert every("○" not in gate for _, gate, _ in page.data[-1]["nodes"].values())
    assert every(page.data[-1]["leaves"].values())


def test_the_steps_of_the_picture():
    loss, names = diamond()
    page = step_through(loss, names=names)
    assert [step["title"] for step in page.data] == [
        "Count", "add runs", "square runs", "mul (h) runs", "w is a leaf", "x is a leaf"
    ]
    assert "mul (h) will wait for 2" in page.data[0]["text"]
    assert "It passes 1 to mul (h), which waits for 1 more." in page.data[1]["text"]
    assert "The sum of its 2 gradients, 1 + 12, is 13. It passes 39 to x and 26 to w" in page.data[3]["text"]
    assert page.data[4]["leaves"] == {"x": "", "w": "26"}
    assert sorted(page.data[1]["nodes"].values()) == [
        ["", "○", ""], ["", "○", ""], ["now", "", "grad 1"], ["open", "●", ""], ["waits", "●○", ""]
    ]
    reached = {number for number, (_, gate, _) in page.data[1]["nodes"].items() if "●" in gate}
    assert page.data[1]["passed"] == dict.fromkeys(reached, "1")


def test_one_gate_or_several():
    loss, names = diamond()
    texts = [step["text"] for step in step_through(loss, names=names).data]
    assert texts[2].endswith("It passes 12 to mul (h), whose gate opens. Next: mul (h).")
    assert texts[3].endswith("to w, whose gates open. Next: w, the last whose gate opened.")


@pytest.mark.parametrize("factor, terms", [(1.234e5, ", 3 + 1.234e+05,"), (-1.234e5, "")])
def test_a_sum_shows_its_terms_where_they_are_short(factor, terms):
    h = mytorch.tensor(2.0, requires_grad=True).exp()
    texts = [step["text"] for step in step_through(h * factor + h * 3, names={"h": h}).data]
    assert f"The sum of its 2 gradients{terms} is {factor:.4g}. It passes" in texts[4]


def test_a_frame_in_a_notebook_is_as_high_as_its_picture_or_scrolls():
    x = mytorch.ones(2, requires_grad=True)
    for steps, high in ((1, None), (40, 760)):
        y = x
        for _ in range(steps):
            y = y.exp()
        picture = draw(y.sum())
        height = high or picture._diagram.height + 90
        assert height <= 760 and f"height: {height:.0f}px" in picture._repr_html_()


def test_devices_and_dtypes(device):
    x = mytorch.ones(2, 3, device=device, requires_grad=True)
    w = mytorch.full((3,), 2.0, dtype="float16", device=device, requires_grad=True)
    loss = (x * w.float() + x).sum()
    data = step_through(loss, names={"x": x, "w": w}).data
    assert data[-1]["leaves"] == {"x": "norm 7.35", "w": "[2., 2., 2.]"}
    loss.backward()
    where = "" if device == "cpu" else f"@{device}"
    assert ["w", f"float16[3]{where}", "grad norm 3.46"] in boxes(draw(loss, names={"w": w})).values()


def test_large_drawings(tmp_path):
    y = mytorch.ones(2, requires_grad=True)
    for _ in range(1000):
        y = y + 1
    assert len(boxes(draw(y.sum()))) == 1002
    Diagram([Box("op", ["x" * 10_000])], {"op": ("#ffffff", "#000000")}).save_png(tmp_path / "wide.png")
    width = int.from_bytes((tmp_path / "wide.png").read_bytes()[16:20], "big")
    assert 60_000 < width < 2**16  # matplotlib draws no larger one


def test_hooks_are_applied():
    x = mytorch.tensor(1.0, requires_grad=True)
    h = x * 2
    h.register_hook(lambda g: g * 10)
    assert steps_of(h * 3)[-1].gradient == "60"


def test_the_picture_of_the_docs_is_up_to_date():
    path = ROOT / "docs" / "pictures" / "autograd.py"
    for name, content in runpy.run_path(str(path))["pictures"]().items():
        saved = (path.parent / name).read_text(encoding="utf-8")
        assert saved == content, "run python docs/pictures/autograd.py"


def test_the_notebook_is_right():
    """What it claims it asserts; it needs no other package."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(ROOT / "notebooks" / "02_autograd.py"))
    assert "add → square → mul → leaf → leaf" in printed.getvalue()
