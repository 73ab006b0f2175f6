"""The table of the CPU's kernels: made from measurements, and the README's is the committed one."""

import json

import numpy as np
import pytest

import mytorch
from benchmarks import kernels
from benchmarks.kernel_problem import JOBS
from benchmarks.report import Chunk, Measurement
from mytorch.nn import functional as F
from mytorch.nn.functional.composite import REGISTRY

ABOUT = [
    {"version": "PyTorch 9.9", "blas": "none", "threads": 3},
    {"version": "mytorch 0.1, NumPy 9.8", "blas": "none", "threads": 3},
    {"version": "mytorch 0.1, NumPy 9.8", "blas": "none", "threads": 3},
]


def measured():
    table = [[Measurement(v.label, {}) for v in kernels.VARIANTS] for _ in JOBS]
    for measurements in table:
        for measurement, times in zip(
            measurements, ([4.0, 2.0, 3.0], [1.5, 9.0, 1.5], [6.0] * 3), strict=True
        ):
            measurement.chunks += [Chunk(ms, 0.0) for ms in times]
    return table


def test_the_table_has_medians_and_ratios():
    text = kernels.markdown(kernels.summarize(measured(), ABOUT, 0.05))
    assert "3 threads, float32" in text and "PyTorch 9.9, NumPy 9.8" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(JOBS)
    assert all(row.endswith("| 3.00 | 1.50 | 0.50 | 6.00 |") for row in rows)


def test_it_goes_between_the_readme_s_marks():
    text = f"before\n{kernels.BEGIN}old\n{kernels.END}\nafter\n"
    assert kernels.in_readme(text, "new\n") == f"before\n{kernels.BEGIN}new\n{kernels.END}\nafter\n"
    with pytest.raises(ValueError, match="has no lines"):
        kernels.in_readme("no marks", "new\n")


def test_the_readme_s_table_is_that_of_the_committed_figures():
    table = kernels.markdown(json.loads(kernels.RESULTS.read_text("utf-8")))
    readme = kernels.README.read_text("utf-8")
    assert kernels.in_readme(readme, table) == readme
    assert table.count("\n| `") == len(JOBS)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_runs_the_kernel_that_it_is_named_after(job, monkeypatch):
    name = {"attention": "scaled_dot_product_attention", "attention, causal": "scaled_dot_product_attention"}
    composite = REGISTRY[name.get(job.name, job.name)]
    calls = []
    composite.kernel("cpu")
    kernel = composite.kernels["cpu"]
    monkeypatch.setitem(composite.kernels, "cpu", lambda *args: calls.append(1) or kernel(*args))
    arrays = [mytorch.from_numpy(a).requires_grad_() for a in job.arrays()]
    job.call(F, mytorch.from_numpy, *arrays)
    assert calls and all(np.isfinite(a.numpy(force=True)).all() for a in arrays)
