"""Timelines: lanes, idle time, arrows, what hangs; and the files that are drawn of them."""

import itertools
import json
import re
import threading
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import numpy as np
import pytest

import mytorch
from mytorch.backends.functions import KINDS
from mytorch.cli import main
from mytorch.profiler.chrome_trace import trace_events
from mytorch.stream import Instruction, Operand, start, stop, timeline_picture
from mytorch.stream.log import LogWriter, read_log
from mytorch.stream.timeline import COLOURS, make_timeline
from mytorch.stream.timeline_html import write_timeline
from mytorch.stream.timeline_picture import draw_timeline
from tests.browser import chromium
from tests.profiler.test_profile import check_trace


def instruction(number, name, phase, start, duration, rank=0, nbytes=64, **named):
    array = Operand(number, (nbytes // 4,), np.dtype("float32"), "cpu", nbytes)
    i = Instruction(number, name, phase, "", ("left",), (array,), named, None, rank, 0)
    i.start, i.duration = 100.0 + start, duration
    return i


def two_ranks():
    return [
        instruction(1, "matmul", "forward", 0.0, 4.0, nbytes=4096),
        instruction(2, "add", "forward", 1.0, 1.0),  # inside
        instruction(3, "all_reduce", "communication", 4.0, 4.0, group="WORLD", seq=1),
        instruction(4, "all_reduce", "communication", 6.0, 3.0, group="WORLD", seq=2),
        instruction(5, "SGD.step", "optimizer", 9.0, 1.0),
        instruction(1, "DataLoader", "data", 0.0, 1.0, rank=1),
        instruction(2, "matmul", "backward", 1.0, 5.0, rank=1),
        instruction(3, "all_reduce", "communication", 6.0, 2.0, rank=1, group="WORLD", seq=1),
        instruction(4, "all_reduce", "communication", 6.5, 2.0, rank=1, group="WORLD", seq=2),
    ]


def test_lanes_and_idle_time():
    line = make_timeline(two_ranks())
    assert line.ranks == [0, 1] and line.seconds == 10.0
    assert [b.instruction.name for b in line.bars[0, "compute"]] == ["matmul", "SGD.step"]
    idle = {key: round(line.idle(*key), 3) for key in line.bars}
    assert idle == {
        (0, "compute"): 0.5, (0, "communication"): 0.5, (1, "data"): 0.9, (1, "compute"): 0.5,
        (1, "communication"): 0.75,
    }
    assert [(b.row, b.rows) for b in line.bars[0, "communication"]] == [(0, 2), (1, 2)]
    assert line.phases[0] == [("forward", 0.0, 4.0), ("optimizer", 9.0, 10.0)]
    assert line.bars[0, "compute"][0].height == 1.0 > line.bars[0, "compute"][1].height > 0.3


def test_bars_are_as_high_as_their_bytes_in_decades():
    for sizes, heights in (((0,), [1.0]), ((40000, 4000, 400, 4, 0), [1.0, 0.825, 0.65, 0.3, 0.3])):
        listed = [instruction(i, "add", "forward", i, 1.0, nbytes=n) for i, n in enumerate(sizes)]
        bars = make_timeline(listed).bars[0, "compute"]
        assert [bar.height for bar in bars] == pytest.approx(heights)


def test_other_threads_have_a_lane(tmp_path, capsys):
    """They aren't lost where they run while the first thread does, in a log and in a trace of it."""
    writer = LogWriter(tmp_path / "ops.log")

    def work(count):
        for _ in range(count):
            mytorch.ones(2).exp()

    @mytorch.core.op.op
    def outer(x):
        threads = [threading.Thread(target=work, args=(1,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return x + 1, None

    start(writer)
    work(4)
    outer(mytorch.ones(3))
    stop(writer)
    line = make_timeline(read_log(writer.path))
    assert [b.instruction.name for b in line.bars[0, "compute"]] == ["exp"] * 4 + ["outer"]
    others = line.bars[0, "threads"]
    assert [b.instruction.name for b in others] == ["exp"] * 2
    assert ", thread 1" in others[0].text and "thread" not in line.bars[0, "compute"][0].text
    assert main(["timeline", str(writer.path), "--output", str(tmp_path / "t.json")]) == 0
    assert "rank 0 threads" in capsys.readouterr().out
    names = [e["args"]["name"] for e in check_trace(tmp_path / "t.json") if e["name"] == "thread_name"]
    assert "thread 1" in names


def test_arrows_lead_from_the_rank_that_came_last():
    arrows = make_timeline(two_ranks()).arrows
    ends = [
        (a.late.instruction.rank, a.late.start, a.waiting.instruction.rank, a.waiting.end) for a in arrows
    ]
    assert ends == [(1, 6.0, 0, 8.0), (1, 6.5, 0, 9.0)]


def test_collectives_that_run_at_once_are_all_drawn():
    found = two_ranks()
    found[3].duration = 1.0  # within the other
    line = make_timeline(found)
    assert [(b.row, b.rows) for b in line.bars[0, "communication"]] == [(0, 2), (1, 2)]
    assert len(line.arrows) == 2


def test_collectives_share_a_lane_of_a_trace_if_one_follows_the_other():
    spans = [(0.0, 1.0), (0.5, 1.0), (1.0, 0.5), (1.5, 1.0)]
    listed = [instruction(i, "all_reduce", "communication", *span) for i, span in enumerate(spans)]
    lanes = [event["tid"] for event in trace_events(listed, 100.0) if event["ph"] == "X"]
    assert lanes == [3, 4, 3, 3]


def test_a_part_of_it_and_what_hangs():
    found = two_ranks()
    found[4].duration = None
    line = make_timeline(found, start=5.0, end=9.5)
    assert line.seconds == pytest.approx(4.0 + 0.03 * 9.0) and (0, "data") not in line.bars
    assert make_timeline(found, start=9.2).ranks == [0, 1]  # also where one of them does nothing
    (bar,) = line.bars[0, "compute"]
    assert (line.begin, line.first, bar.start) == (5.0, 100.0, 9.0)  # times as of the whole log
    assert line.idle(0, "communication") == 1 - 4.0 / line.seconds
    assert bar.end - bar.start == pytest.approx(0.03 * 9.0)  # wide enough to be seen
    assert make_timeline(found[4:5]).seconds > 0  # also where it is all that began
    assert [b.is_open for b in line.bars[0, "compute"]] == [True]
    assert "never ended" in line.bars[0, "compute"][0].text
    with pytest.raises(ValueError, match="no operation between 50"):
        make_timeline(found, start=50.0)
    with pytest.raises(ValueError, match="the log has no operations"):
        make_timeline([])


def test_every_kind_has_a_colour():
    assert set(COLOURS) == set(KINDS)
    colours = [np.array([int(c[n : n + 2], 16) for n in (1, 3, 5)]) for c in COLOURS.values()]
    for a, b in itertools.combinations(colours, 2):
        assert np.linalg.norm(a - b) > 40  # they can be told apart


def test_narrow_bars_have_their_colour(tmp_path):
    """No white line hides them."""
    image = pytest.importorskip("matplotlib.image")
    line = make_timeline([instruction(n, "matmul", "forward", 1e-4 * n, 0.8e-4) for n in range(5000)])
    draw_timeline(line, tmp_path / "t.png")
    pixels = image.imread(tmp_path / "t.png")[..., :3]
    colour = np.array([int(COLOURS["product"][n : n + 2], 16) / 255 for n in (1, 3, 5)])
    distance = np.abs(pixels - colour).max(-1)
    assert np.mean(distance < 0.25, axis=1).max() > 0.5  # of the widest row


def test_bars_lie_in_their_rows():
    bars, drawn = make_timeline(two_ranks()).bars[0, "communication"], []
    axes = SimpleNamespace(add_collection=lambda collection, **_: drawn.extend(collection.get_paths()))
    middles = {}
    timeline_picture._draw_bars(axes, make_timeline(two_ranks()), bars, 5.0, middles)
    row = timeline_picture._LANE / 2
    for bar, path in zip(bars, drawn, strict=True):
        (left, low), (right, high) = path.vertices.min(0), path.vertices.max(0)
        assert (left, right) == (1e3 * bar.start, 1e3 * bar.end)
        assert 5 + bar.row * row < low < middles[id(bar)] < high < 5 + (bar.row + 1) * row
        assert low + high == pytest.approx(2 * middles[id(bar)])


def test_the_axis_of_a_part_has_the_times_of_the_log(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    draw_timeline(make_timeline(two_ranks(), 5.0, 5.01), tmp_path / "t.svg")
    labels = [float(text) for text in re.findall(r"<!-- (\d+) -->", (tmp_path / "t.svg").read_text())]
    assert labels[0] == 5000 and labels[-1] == 5010


def test_a_title_is_no_formula(tmp_path):
    pytest.importorskip("matplotlib")
    draw_timeline(make_timeline(two_ranks()), tmp_path / "t.svg", r"cost $5 and \frac{ $")
    assert r"cost $5 and \frac{ $" in (tmp_path / "t.svg").read_text()  # in a comment before the glyphs


def test_what_hangs_or_fails_is_named(tmp_path, capsys):
    writer = LogWriter(tmp_path / "ops.log")
    for i in two_ranks()[:4]:
        writer.begin(i)
        i.failed, i.duration = i.name == "matmul", 1e-6
        if i.name != "all_reduce":
            writer.end(i)
    assert main(["timeline", str(writer.path), "--output", str(tmp_path / "t.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = ["#1 matmul failed", "#3 all_reduce never ended", "#4 all_reduce never ended"]
    assert sorted(line.removeprefix("  rank 0 ") for line in lines[-3:]) == named
    assert "matmul  (failed after 0.001 ms)" in (tmp_path / "t.html").read_text()
    bars = json.loads(re.search(r"const data = (.*);\n", (tmp_path / "t.html").read_text())[1])["bars"]
    assert sorted(bar["text"].split()[0] for bar in bars if bar["hatched"]) == [
        "all_reduce", "all_reduce", "matmul"
    ]
    assert main(["timeline", str(writer.path), "--output", str(tmp_path / "t.json")]) == 0
    events = [e for e in check_trace(tmp_path / "t.json") if e["ph"] in "BX"]
    assert [(e["name"], e["ph"]) for e in events] == [
        ("matmul", "X"), ("add", "X"), ("all_reduce", "B"), ("all_reduce", "B")
    ]
    assert events[0]["args"]["failed"] and len({e["tid"] for e in events}) == 3


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        writer = LogWriter(tmp_path / "ops.log")
        for i in two_ranks():
            if i.rank == rank:
                i.name, i.duration = i.name.replace("matmul", "</script>"), 1e-6
                writer.begin(i)
                writer.end(i)
    return tmp_path / "ops.log"


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".svg", ".html", ".json"])
def test_the_command_writes(log, suffix, capsys):
    pytest.importorskip("matplotlib")
    path = log.with_suffix(suffix)
    assert main(["timeline", str(log), "--output", str(path), "--title", "DATA of two <ranks>"]) == 0
    assert "rank 1 communication" in capsys.readouterr().out
    if suffix.lower() == ".png":
        assert path.read_bytes().startswith(b"\x89PNG")
    elif suffix == ".svg":
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    elif suffix == ".json":
        assert {e["pid"] for e in check_trace(path)} == {0, 1}
    else:
        page = path.read_text()
        assert page.count("</script>") == 1 and page.count("DATA of two &lt;ranks&gt;") == 2
        assert not re.search(r"""(?:src|href)\s*=|@import|url\(""", page)  # self-contained
        data = json.loads(re.search(r"const data = (.*);\n", page)[1])
        assert len(data["bars"]) >= 5 and data["ranks"] == [0, 1] and data["arrows"]


def test_a_wrong_call_is_explained(tmp_path, capsys):
    assert main(["timeline", str(tmp_path / "no.log")]) == 2
    assert main(["timeline", str(tmp_path / "no.log"), "--output", "timeline.gif"]) == 2
    errors = capsys.readouterr().err
    assert "no such log" in errors and "--output ends in .png" in errors


def test_what_hangs_within_another_operation_is_named_and_in_the_trace(tmp_path, capsys):
    writer = LogWriter(tmp_path / "ops.log")
    loads, reads = (instruction(n, name, "data", 0.0, 1.0) for n, name in enumerate(("DataLoader", "slice")))
    for i in (loads, reads):
        writer.begin(i)
    assert main(["timeline", str(writer.path), "--output", str(tmp_path / "t.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["  rank 0 #0 DataLoader never ended", "  rank 0 #1 slice never ended"]
    found = [e for e in check_trace(tmp_path / "t.json") if e["ph"] == "B"]
    assert [e["name"] for e in found] == ["DataLoader", "slice"] and len({e["tid"] for e in found}) == 1


def test_the_page_draws_what_hangs_hatched(tmp_path):
    found = two_ranks()[:3]
    found[2].duration = None
    write_timeline(make_timeline(found), tmp_path / "t.html")
    with chromium() as page:
        page.goto(f"file://{tmp_path / 't.html'}")
        page.screenshot(path=tmp_path / "t.png")
    pixels = pytest.importorskip("matplotlib.image").imread(tmp_path / "t.png")
    ended, hangs = pixels[90, 600:620], pixels[140, 1076:1096]
    assert np.ptp(ended, 0).max() == 0 and np.ptp(hangs, 0).max() > 0.2


def test_many_that_failed_are_counted(tmp_path, capsys):
    writer = LogWriter(tmp_path / "ops.log")
    for n in range(30):
        writer.begin(i := instruction(n, "add", "forward", 0.0, 1.0))
        i.failed = True
        writer.end(i)
    assert main(["timeline", str(writer.path), "--output", str(tmp_path / "t.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  30 operations never ended, or failed; the last are" in lines and len(lines) == 23
