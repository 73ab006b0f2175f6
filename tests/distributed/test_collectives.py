"""Collectives against NumPy, on one and three ranks: programs/checks_of_*.py have the checks."""

import ast
import importlib
import json

import pytest

import mytorch.distributed as dist
from tests.every import every

from .launched import PROGRAMS, launch, why_no_mpi

PROGRAM = PROGRAMS / "collectives.py"
TOPICS = ("reductions", "movement", "messages", "groups")
CHECKS = [
    node.name
    for topic in TOPICS
    for node in ast.parse((PROGRAMS / f"checks_of_{topic}.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.decorator_list
]
RUNS = {
    "one": (1, None, "single"), "one-mpi": (1, "mpi", "mpi"), "three": (3, None, "mpi"),
    "three threads": (3, None, "threads"), "one thread": (1, None, "threads"),
}


@pytest.fixture(scope="module", params=RUNS)
def results(request, tmp_path_factory):
    """What each rank found, by check: one job runs them all."""
    size, backend, expected = RUNS[request.param]
    if expected == "threads":
        return _found_by_threads(size)
    if expected == "mpi" and why_no_mpi():
        pytest.skip(why_no_mpi())
    folder = tmp_path_factory.mktemp("found")
    code, _, err = launch("-n", size, PROGRAM, folder, *filter(None, [backend]), limit=300)
    assert code == 0, err
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    assert [one.pop("backend") for one in found] == [expected] * size
    return found


def _found_by_threads(size):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROGRAM.parent))
        checks = importlib.import_module("collectives")

    def ranks():
        dist.init_process_group()
        return checks.found_by_all()

    found = dist.worlds.run(size, ranks)
    assert [one.pop("backend") for one in found] == ["threads"] * size
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_against_numpy(results, name):
    for rank, found in enumerate(results):
        assert found[name] == "", f"rank {rank}: {found[name]}"


def test_all_checks_ran(results):
    assert every(list(found) == CHECKS for found in results) and len(CHECKS) > 25
