"""mode="max-autotune": strategies compute the same, and the fastest is kept, or the one that is chosen."""

import json

import numpy as np
import pytest

import mytorch
from mytorch.compiler import capture
from mytorch.compiler.codegen.numba_source import Strategy, candidates, loaded
from mytorch.compiler.codegen.source_files import module_of
from mytorch.compiler.running import autotune, execution
from mytorch.compiler.running.autotune import Tuning
from mytorch.nn import functional as F
from tests.compiler.loop_cases import assert_close, captured
from tests.every import every

pytest.importorskip("numba")
x = mytorch.randn(64, 100)


CHANGES = [{}, {"bits": 0}, {"keeps": False}, {"threads": 0}]
USUAL = Strategy(threads=1)


def program(mode=None):
    with F.use_fused(False):
        return capture(lambda x: F.softmax(x, -1), x).optimized(mode)


def tuning(rows=64, pool=2, cpu=""):
    (i,) = program().instructions
    return Tuning(i.kwargs["loop"], rows, 100, ("float32",), pool, cpu)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MYTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(execution, "get_num_threads", lambda: 2)
    execution._tunings.cache_clear()
    yield tmp_path
    execution._tunings.cache_clear()
    module_of.cache_clear()


@pytest.fixture
def figures(monkeypatch):
    """The milliseconds that the strategies take from now on, and what was measured."""
    ms, asked = [], []

    def measured(tuning, found):
        asked.append(found)
        return dict(zip(found, ms, strict=False))

    monkeypatch.setattr(Tuning, "measured", measured)
    return ms, asked


def test_all_strategies_compute_the_same():
    (softmax,) = captured(lambda x: F.softmax(x, -1), x)
    found = candidates(softmax.loop, 6400, 2)
    assert found == [USUAL._replace(**change) for change in CHANGES]
    for strategy in [*found[:3], Strategy(threads=1, block=32), Strategy(parts=3)]:
        assert_close(softmax.outputs(loaded(softmax.loop, strategy)), softmax.outputs())


def test_strategies_that_change_nothing_are_left_out():
    """Nothing is kept for a second pass where there is one pass only; there is one thread."""
    (i,) = capture(lambda x: x * 2 + 1, x).optimized().instructions
    assert [s.bits for s in candidates(i.kwargs["loop"], 6400, 1)] == [512, 0]


@pytest.mark.parametrize(("ms", "chosen"), [([2, 1, 3, 4], 1), ([2, 3, 1.95, 4], 0), ([2, 3, 3, 1.5], 3)])
def test_the_fastest_is_chosen(cache, figures, ms, chosen):
    """Unless it gains less than 5 %."""
    figures[0][:] = ms
    assert tuning().chosen == [*tuning().times][chosen]


def test_figures_are_kept(cache, figures):
    ms, asked = figures
    ms[:] = [4, 3, 2, 1]
    want = tuning().times
    ms[:] = [1, 2, 3, 4]
    assert tuning().times == want and len(asked) == 1
    for changed in (tuning(rows=65), tuning(cpu="another"), tuning(pool=3)):
        assert [*changed.times.values()] == ms
    assert len(asked) == 4
    listed = json.dumps([[x._asdict(), 7] for x in want])
    for text in ('[[{"threads": "import os"}, 1]]', "[[], {}]", "5", f'[{listed}, {{"is": "none"}}]'):
        for path in cache.glob("programs/*/strategies.json"):
            path.write_text(text)
        asked.clear()
        assert [*tuning().times.values()] == ms and len(asked) == 1


def test_the_table(cache, figures):
    figures[0][:] = [4, 2, 3, 8]
    lines = str(program().strategies()).splitlines()
    assert lines[0] == "loop0, 64 rows of 100"
    assert [line.split() for line in lines[1:4]] == [
        ["2.0000", "ms", "0.50", "bits=0", "(chosen)"], ["3.0000", "ms", "0.75", "keeps=False"],
        ["4.0000", "ms", "1.00", "as", "usual"],
    ]
    with F.use_fused(False), pytest.raises(RuntimeError, match="not compiled"):
        program().strategies()


def test_programs_run_what_was_chosen(cache, figures, monkeypatch):
    figures[0][:], taken = [4, 2, 3, 8], []
    monkeypatch.setattr(execution, "loaded", lambda loop, s: taken.append(s.bits) or loop.in_numpy)

    def double(x):
        return (x * 2).exp() + 1

    for mode in ("max-autotune", "default", None):
        compiled = mytorch.compile(double, mode=mode)
        np.testing.assert_allclose(compiled(x).numpy(), double(x).numpy(), 1e-5)
        assert ("wide_registers" in compiled.programs()[0].source()) == (mode != "max-autotune")
    assert taken == [0, 512, 512] and len(figures[1]) == 1


def test_a_strategy_can_be_read_and_assigned(cache, figures):
    """It is kept, as the measured ones, also for a function that has run already."""
    figures[0][:] = [4, 5, 6, 7]
    compiled = mytorch.compile(lambda x: (x * 2).exp().sum(-1))
    want = compiled(x).numpy()
    strategies = compiled.programs()[0].strategies()
    (found,) = strategies.values()
    assert found.chosen == USUAL and [*found.times.values()][:2] == [4, 5]
    mine = found.chosen._replace(block=16, parts=3)
    figures[0][:] = [1.5]
    strategies["loop0"] = mine
    assert found.chosen == mine and found.times[mine] == 1.5
    source = compiled.programs()[0].source()
    assert "range(0, n, 16)" in source and "parts = min(rows, 3)" in source
    np.testing.assert_allclose(compiled(x).numpy(), want, 1e-5)
    execution._tunings.cache_clear()
    assert compiled.programs()[0].strategies()["loop0"].chosen == mine
    assert "block=16 parts=3  (chosen)" in str(strategies)


def test_an_assigned_strategy_runs(cache, figures, monkeypatch):
    figures[0][:], taken = [4, 5, 6, 7], []
    monkeypatch.setattr(execution, "loaded", lambda loop, s: taken.append(s) or loop.in_numpy)
    compiled = mytorch.compile(lambda x: (x * 2).exp() + 1)
    compiled(x)
    strategies = compiled.programs()[0].strategies()
    figures[0][:] = [1.5]
    strategies["loop0"] = USUAL._replace(parts=3)
    compiled(x)
    assert taken == [USUAL, USUAL._replace(parts=3)]


def test_it_measures(cache, monkeypatch):
    monkeypatch.setattr(autotune, "loaded", lambda loop, strategy: loop.in_numpy)
    found = tuning()
    assert [*found.times] == candidates(found.loop, 6400, 2)
    assert every(0 < ms < 1e3 for ms in found.times.values())


def test_an_unknown_mode():
    for use in (program, lambda mode: mytorch.compile(lambda x: x, mode=mode)):
        with pytest.raises(RuntimeError, match="Unrecognized mode=fast, should be one of"):  # as PyTorch's
            use("fast")
