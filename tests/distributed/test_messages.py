"""A rank that waits for a message notices at once that none can arrive; and who disagreed."""

import json
import re

import pytest

from .launched import PROGRAMS, launch, needs_mpi
from .test_failures import causes_in

pytestmark = needs_mpi
PROGRAM = PROGRAMS / "messaging.py"
DEADLINE = 600  # of each operation, in seconds: much longer than the job may take
LIMIT = 240

WAITS = {
    "recv": ("1", r"recv\(from 1\)"),
    "recv_in_a_group": ("1", r"recv\(from 1\)"),
    "irecv": ("1", r"recv\(from 1\)"),
    "batch": ("1", r"recv\(from 1\)"),
    "send": ("1", r"send\(to 1\)"),
    "objects": ("1", r"recv\(from 1\)"),
    "recv_from_any": ("1, 2", r"recv\(from any\)"),
}


@pytest.fixture(scope="module")
def job():
    """(stdout, root causes) of a job in which ranks 1 and 2 finish, then disagree, then all is well."""
    code, out, err = launch("-n", 3, "--timeout", DEADLINE, "--max_restarts", 2, PROGRAM, limit=LIMIT)
    assert code == 0, err
    return out.splitlines(), causes_in(err)


@pytest.mark.parametrize("how", WAITS)
def test_the_other_rank_has_finished(how, job):
    lines, (cause, _) = job
    assert cause.startswith("rank 0 on ") and ", early exit:\n" in cause
    assert "rank 1, 2 exited, as with sys.exit(0)" in cause
    errors = {name: (text, ranks) for name, text, ranks in map(json.loads, lines[: len(WAITS) - 1])}
    errors["recv_from_any"] = cause, [1, 2]
    finished, operation = WAITS[how]
    text, ranks = errors[how]
    assert ", ".join(map(str, ranks)) == finished
    assert re.search(rf"ranks? {finished} reached the end of the program; rank 0: {operation}", text), text


def test_what_was_sent_before_the_end_arrives(job):
    lines, causes = job
    assert len(causes) == 2
    assert sorted(lines[len(WAITS) - 1 :]) == [f"rank {rank} is done" for rank in range(3)]


def test_ranks_disagree_while_more_is_in_flight(job):
    cause = job[1][1]
    assert "don't agree at operation #2:\n" in cause
    for ranks, shape in (("ranks 0, 2", 8), ("rank 1", 5)):
        line = rf"\n  {ranks}: all_reduce\(\({shape},\), float64, cpu, sum\) at .*:\d+\n"
        assert re.search(line, cause), cause
