"""Drawings of programs are SVG in which each instruction has its box, and nothing lies over another."""

import importlib.util
import itertools
from pathlib import Path
from xml.etree import ElementTree

import pytest

import mytorch
from mytorch import nn
from mytorch.compiler import capture
from mytorch.nn import functional as F
from tests.every import every

ROOT = Path(__file__).parents[2]


def svg(program):
    return program.draw().svg()


def training():
    model = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128))

    def step(x):
        x[0] = 1
        loss = F.softmax(model(x.view(128, 128)), -1).square().sum()
        return loss, mytorch.autograd.grad(loss, list(model.parameters()))

    return capture(step, mytorch.randn(128, 128)).optimized()


def boxes(drawing):
    """The boxes (x, y, width, height) and all lines of text of a drawing, and its number of arrows."""
    root = ElementTree.fromstring(drawing)
    name = "{http://www.w3.org/2000/svg}"
    keys = "x", "y", "width", "height"
    background, *found = [tuple(float(x.get(key) or 0) for key in keys) for x in root.iter(f"{name}rect")]
    left, top, width, height = background
    right, bottom = left + width, top + height
    assert every(left < x and y > top and x + w < right and y + h < bottom for x, y, w, h in found)
    arrows = [x for x in root.iter(f"{name}path") if x.get("marker-end")]
    return found, [x.text for x in root.iter(f"{name}text")], len(arrows)


def test_a_drawing():
    program = capture(lambda x, y: (x * y).view(-1) - (y + 2), mytorch.ones(3), mytorch.ones(3))
    found, lines, arrows = boxes(svg(program))
    assert len(found) == 6 and arrows == 6  # the view has no box
    assert lines[:4] == ["input", "%0: float32[3]", "input", "%1: float32[3]"]
    assert {"multiply", "add", "2", "subtract"} <= {*lines} and lines[-2] == "return"


def test_boxes_lie_beside_each_other():
    program = training()
    found, lines, _ = boxes(svg(program))
    for (x, y, w, h), (x2, y2, w2, h2) in itertools.combinations(found, 2):
        assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    assert {"layer_norm", "layer_norm.vjp", "linear.vjp", "gelu", "return"} <= {*lines}
    assert any(line.startswith("writes %") for line in lines)


def test_what_is_written_comes_before_what_is_read():
    def function(x):
        y = x.clone()
        y[0] = 5
        return y * 2

    _, lines, arrows = boxes(svg(capture(function, mytorch.ones(3))))
    rows = dict(zip(lines, heights(svg(capture(function, mytorch.ones(3)))), strict=True))
    assert rows[".copy"] < rows[".setitem"] < rows["multiply"] and arrows == 4


def frames(drawing):
    """The names of the frames, each before those inside it."""
    found = ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}g")
    return [x[1].text for x in found if x.get("class") == "box module"]


def heights(drawing):
    return [float(x.get("y")) for x in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]


def test_files(tmp_path):
    program = training()
    program.draw(tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text() == svg(program)
    program.draw(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    assert page.count("<svg") == 1 and f"<title>{program.name}</title>" in page
    importlib.util.find_spec("matplotlib") and program.draw(tmp_path / "p.png")
    with pytest.raises(ValueError, match="saved as .html, .svg or .png, got .*p.pdf"):
        program.draw(tmp_path / "p.pdf")


def test_instructions_are_in_the_frames_of_their_modules(tmp_path):
    inner = nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Softmax(-1))
    model = nn.Sequential(nn.Sequential(inner, nn.LayerNorm(128)), nn.Linear(128, 128))
    program = capture(model, mytorch.ones(128, 128))
    depths = {i.origin.count(".") for i in program.instructions}
    assert depths == {0, 1, 2}
    program.draw(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text()
    drawing = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
    _, lines, _ = boxes(drawing)
    assert frames(drawing) == ["0", "0", "0", "1", "2", "1", "1"]
    assert len(boxes(svg(program))[0]) + len(frames(drawing)) == len(boxes(drawing)[0])


def test_calls_of_objects():
    model = nn.Linear(4, 4)
    optimizer = mytorch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    _, lines, _ = boxes(svg(capture(step, mytorch.ones(3, 4)).optimized()))
    assert {"host.set_grad", "host.step"} <= {*lines} and "<SGD>" in lines


def test_text_is_escaped():
    program = capture(lambda x: [x, "<script>alert(1)</script>"], mytorch.ones(3))
    assert "<script>" not in svg(program)
    assert boxes(svg(program))[1][-1].endswith("'<script>alert(1)</script>']")


def test_the_pictures_are_up_to_date():
    path = ROOT / "docs" / "pictures" / "programs.py"
    spec = importlib.util.spec_from_file_location("pictures_of_programs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, content in module.pictures().items():
        saved = (path.parent / name).read_text(encoding="utf-8")
        assert saved == content, "run python docs/pictures/programs.py"
