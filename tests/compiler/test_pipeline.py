"""The stages that the pipeline lists are those that run, in this order, and only where a call recompiles."""

import inspect
import sys

import mytorch
from mytorch.compiler.pipeline import STAGES, optimized


def code_of(function):
    function = inspect.unwrap(function)
    return (function.__init__ if inspect.isclass(function) else function).__code__


def stages_in(run):
    """The stages whose functions a call runs, in the order of the first of each."""
    codes = {code_of(f): stage for stage, functions in STAGES.items() for f in functions}
    found = {}

    def note(frame, event, argument):
        if event == "call" and frame.f_code in codes:
            found.setdefault(codes[frame.f_code])

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return [*found]


def test_stages_run_in_the_order_of_the_list():
    compiled, x = mytorch.compile(lambda x: ((x * 2).exp() + 1).sum(-1)), mytorch.ones(4, 5)
    found = stages_in(lambda: compiled(x))
    assert found == ["guard", *[*STAGES][:-1]]  # what is compared is noted before the trace begins
    assert stages_in(lambda: compiled(x)) == []
    assert set(stages_in(lambda: compiled(mytorch.ones(4, 5, dtype=mytorch.float64)))) == {*STAGES}


def test_all_passes_are_in_the_list():
    from mytorch.compiler import passes

    listed = {f.__name__ for functions in STAGES.values() for f in functions}
    assert {name for name in passes.__all__} - listed == {"restore_strides"}  # between two stages
    assert "restore_strides(" in inspect.getsource(optimized)
