"""The pages of `draw` and `step_through`, as a reader uses them: in a browser, by clicks and keys."""

import pytest

import mytorch
from mytorch import nn
from mytorch.autograd import draw, step_through
from tests.browser import chromium


@pytest.fixture(scope="module")
def page():
    with chromium() as page:
        yield page


def states(page):
    """The state, gate and gradient of each box, by its title."""
    found = {}
    for box in page.locator("g.box").all():
        title, _, gate, grad = box.locator("text").all_text_contents()
        found[title] = (box.get_attribute("class").removeprefix("box").strip(), gate, grad)
    return found


def test_each_click_runs_a_step(page, tmp_path):
    x = mytorch.tensor(2.0, requires_grad=True)
    w = mytorch.tensor(3.0, requires_grad=True)
    h = x * w
    steps = step_through(h.square() + h, tmp_path / "steps.html", names={"x": x, "w": w, "h": h}).data
    page.goto((tmp_path / "steps.html").as_uri())
    assert states(page) == {
        "x": ("", "○", ""), "w": ("", "○", ""), "mul (h)": ("", "○○", ""), "square": ("", "○", ""),
        "add": ("open", "", ""),
    }
    assert page.locator("#back").is_disabled()
    expected = [
        {"add": ("now", "", "grad 1"), "square": ("open", "●", ""), "mul (h)": ("waits", "●○", "")},
        {"add": ("done", "", "grad 1"), "square": ("now", "●", "grad 1"), "mul (h)": ("open", "●●", "")},
        {"mul (h)": ("now", "●●", "grad 13"), "x": ("open", "●", ""), "w": ("open", "●", "")},
        {"mul (h)": ("done", "●●", "grad 13"), "w": ("now", "●", "grad 26"), "x": ("open", "●", "")},
        {"w": ("done", "●", "grad 26"), "x": ("now", "●", "grad 39")},
    ]
    passed = [["1", "1"], ["12"], ["26", "39"], [], []]
    for k, (boxes, labels) in enumerate(zip(expected, passed, strict=True), 1):
        page.click("#next")
        found = states(page)
        assert found == found | boxes
        assert page.locator("#title").text_content() == steps[k]["title"]
        assert page.locator("#text").text_content() == steps[k]["text"]
        assert page.locator("#count").text_content() == f"step {k} of 5"
        assert page.locator("#gates").text_content() == (", ".join(steps[k]["open"]) or "none")
        assert sorted(page.locator("text.label").all_text_contents()) == labels
        assert page.locator("path.passed").count() == (3 if k == 1 else len(labels))  # one passes a row
    assert page.locator("#leaves td").all_text_contents() == ["x", ".grad += 39", "w", ".grad += 26"]
    assert page.locator("#next").is_disabled()


def test_keys_go_back_and_forth(page, tmp_path):
    x = mytorch.ones(2, 3, requires_grad=True)
    step_through((x * x).sum(), tmp_path / "steps.html", names={"x": x})
    page.goto((tmp_path / "steps.html").as_uri())
    first = states(page)
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    assert states(page)["mul"] == ("now", "●", "grad (2, 3) of norm 2.45")
    assert page.locator("text.label").all_text_contents() == ["norm 2.45 and norm 2.45"]
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert states(page) == first and page.locator("#title").text_content() == "Count"


def test_modules_are_closed_and_opened(page, tmp_path):
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model = nn.Sequential(inner, nn.Linear(4, 2))
    with mytorch.stream.record():
        loss = model(mytorch.ones(3, 4)).sum()
    draw(loss, tmp_path / "graph.html", model=model)
    page.goto((tmp_path / "graph.html").as_uri())
    heading = page.locator("g.module > text.head").filter(has_text="0 Sequential")
    frame, below = heading.locator(".."), page.locator("g.module", has_text="1 Linear").last
    tanh, outside = page.get_by_text("tanh", exact=True), page.get_by_text("sum", exact=True)
    before = frame.bounding_box(), below.bounding_box()
    assert tanh.is_visible() and heading.text_content().startswith("▾")
    assert_inside(tanh, frame)
    heading.click()
    assert not tanh.is_visible() and outside.is_visible() and heading.text_content().startswith("▸")
    assert frame.bounding_box()["height"] < 60 < before[0]["height"]
    assert below.bounding_box()["y"] < before[1]["y"] - 60  # what is below moves up
    heading.click()
    assert (frame.bounding_box(), below.bounding_box()) == before and tanh.is_visible()
    page.click("#close")
    assert page.locator("g.op:visible, g.keeps:visible").count() == 1  # sum
    page.click("#open")
    assert tanh.is_visible()


def test_a_closed_drawing_opens_as_it_was_drawn(page, tmp_path):
    """What the page's script places is where Python placed it."""
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), nn.Linear(4, 2))
    x = mytorch.ones(3, 4)
    picture = draw((model(x) * model[0](x).sum()).sum(), tmp_path / "graph.html", model=model)
    page.goto((tmp_path / "graph.html").as_uri())
    page.click("#close")
    page.click("#open")
    moved = page.locator("g[transform]").evaluate_all("all => all.map(g => g.getAttribute('transform'))")
    assert moved and {abs(round(float(move[12:-1]), 1)) for move in moved} == {0}
    paths = page.locator("path[data-to]").evaluate_all("all => all.map(path => path.getTotalLength())")
    page.set_content(picture.svg())
    drawn = page.locator("path[data-to]").evaluate_all("all => all.map(path => path.getTotalLength())")
    assert paths == pytest.approx(drawn, abs=0.5)


def assert_inside(locator, frame):
    inner, outer = locator.bounding_box(), frame.bounding_box()
    assert outer["x"] < inner["x"] and inner["x"] + inner["width"] < outer["x"] + outer["width"]
    assert outer["y"] < inner["y"] and inner["y"] + inner["height"] < outer["y"] + outer["height"]
