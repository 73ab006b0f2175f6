"""Memory that was freed and kept is given back when training starts."""

import subprocess
import sys

import pytest

import mytorch
from mytorch.backends import tune
from mytorch.optim import flat_state

PROGRAM = """
import mytorch, numpy as np
from mytorch.backends import tune

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20

parts = [np.ones(1 << 20) for _ in range(40)]  # 8 MiB each
last = np.ones(1 << 10)  # above them: freeing the others doesn't shrink the heap
del parts
kept = resident()
tune.release_freed_memory()
print(kept - resident())
"""


@pytest.mark.skipif(
    not tune.report()["malloc"].startswith("freed arrays"), reason="malloc is not tuned in this process"
)
def test_freed_memory_is_given_back():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 250


@pytest.mark.parametrize(("large", "times"), [(1, 1), (1 << 40, 0)])
def test_the_first_step_of_a_large_model_does_it_once(monkeypatch, large, times):
    calls = []
    monkeypatch.setattr(flat_state, "LARGE", large)
    monkeypatch.setattr(tune, "release_freed_memory", lambda: calls.append(1))
    p = mytorch.nn.Parameter(mytorch.ones(4))
    optimizer = mytorch.optim.AdamW([p])
    for _ in range(3):
        p.sum().backward()
        optimizer.step()
    assert len(calls) == times
