"""mode="max-autotune": strategies compute the same, and the fastest is kept."""

import numpy as np
import pytest

import mytorch
from mytorch.compiler import capture
from mytorch.compiler.codegen import numba_source
from mytorch.compiler.codegen.numba_source import DEFAULT, loaded
from mytorch.compiler.codegen.source_files import module_of
from mytorch.compiler.running import autotune, execution
from mytorch.nn import functional as F
from tests.compiler.loop_cases import assert_close, captured
from tests.every import every

pytest.importorskip("numba")
x = mytorch.randn(64, 100)


CHANGES = [{}, {"bits": 0}, {"keeps": False}, {"threads": 0}]


def program(mode=None):
    with F.use_fused(False):
        return capture(lambda x: F.softmax(x, -1), x).optimized(mode)


def case(**changes):
    (i,) = program().instructions
    return autotune._case_of(i)._replace(threads=2, **changes)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MYTORCH_CACHE", str(tmp_path))
    yield tmp_path
    autotune.measured.cache_clear()
    module_of.cache_clear()


@pytest.fixture
def figures(monkeypatch):
    """The milliseconds that the strategies take from now on, and the cases that were measured."""
    ms, asked = [], []

    def measure(case, found):
        asked.append(case)
        return [autotune.Measured(*pair) for pair in zip(found, ms, strict=False)]

    monkeypatch.setattr(autotune, "_measure", measure)
    return ms, asked


def test_all_strategies_compute_the_same():
    (softmax,) = captured(lambda x: F.softmax(x, -1), x)
    found = autotune.strategies(case())
    assert found == [DEFAULT._replace(**{"threads": 1} | given) for given in CHANGES]
    for strategy in found[:3]:
        assert_close(softmax.outputs(loaded(softmax.loop, strategy)), softmax.outputs())


def test_strategies_that_change_nothing_are_left_out():
    """Nothing is kept for a second pass where there is one pass only; there is one thread."""
    (i,) = capture(lambda x: x * 2 + 1, x).optimized().instructions
    assert [s.bits for s in autotune.strategies(autotune._case_of(i)._replace(threads=1))] == [512, 0]


@pytest.mark.parametrize(("ms", "chosen"), [([2, 1, 3, 4], 1), ([2, 3, 1.95, 4], 0), ([2, 3, 3, 1.5], 3)])
def test_the_fastest_is_chosen(cache, figures, ms, chosen):
    """Unless it gains less than 5 %."""
    figures[0][:] = ms
    assert autotune.best(case()) == autotune.strategies(case())[chosen]


def test_figures_are_kept(cache, figures):
    ms, asked = figures
    ms[:] = [4, 3, 2, 1]
    want = autotune.measured(case())
    ms[:] = [1, 2, 3, 4]
    autotune.measured.cache_clear()
    assert autotune.measured(case()) == want and len(asked) == 1
    for changed in (case(rows=65), case(cpu="another"), case()._replace(threads=3)):
        assert [x.ms for x in autotune.measured(changed)] == ms
    assert len(asked) == 4
    for path in cache.glob("programs/*/strategies.json"):
        path.write_text('[[{"threads": "import os"}, 1]]')
    autotune.measured.cache_clear()
    assert [x.ms for x in autotune.measured(case())] == ms and len(asked) == 5


def test_the_table(cache, figures):
    figures[0][:] = [4, 2, 3, 8]
    lines = program().strategies().splitlines()
    assert lines[0] == "loop0, 64 rows of 100"
    assert [line.split() for line in lines[1:4]] == [
        ["2.0000", "ms", "0.50", "bits=0", "(chosen)"], ["3.0000", "ms", "0.75", "keeps=False"],
        ["4.0000", "ms", "1.00", "as", "usual"],
    ]  # fmt: skip
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


def test_it_measures(cache, monkeypatch):
    monkeypatch.setattr(numba_source, "loaded", lambda loop, strategy: loop.in_numpy)
    found = autotune.measured(case())
    assert [x.strategy for x in found] == autotune.strategies(case()) and every(0 < x.ms < 1e3 for x in found)


def test_an_unknown_mode():
    for use in (program, lambda mode: mytorch.compile(lambda x: x, mode=mode)):
        with pytest.raises(RuntimeError, match="Unrecognized mode=fast, should be one of"):  # as PyTorch's
            use("fast")
