"""A rank that waits for a message learns at once that none can come; and who disagreed."""

import json
import re

import pytest

from .launched import PROGRAMS, launch, needs_mpi
from .test_failures import cause_in

pytestmark = needs_mpi
PROGRAM = PROGRAMS / "messaging.py"
DEADLINE = 600  # of each operation, in seconds: much longer than a job may take here
LIMIT = 120

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
def waits():
    """{how rank 0 waits: (what it says, the ranks it names)}, of a job in which ranks 1 and 2 end at once."""
    code, out, err = launch("-n", 3, "--timeout", DEADLINE, PROGRAM, "all_waits", limit=LIMIT)
    cause = cause_in(err)
    assert code == 1 and cause.startswith("rank 0 on ") and ", early exit:\n" in cause
    assert "rank 1, 2 ended, as with sys.exit(0)" in cause
    assert "rank 0 is done" not in out
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("[")]
    return {name: (says, gone) for name, says, gone in lines} | {"recv_from_any": (cause, [1, 2])}


@pytest.mark.parametrize("how", WAITS)
def test_the_other_rank_has_ended(how, waits):
    ended, operation = WAITS[how]
    says, gone = waits[how]
    assert ", ".join(map(str, gone)) == ended
    assert re.search(rf"ranks? {ended} came to the end of the program; rank 0: {operation}", says), says


def test_what_was_sent_before_the_end_comes():
    code, out, err = launch("-n", 2, "--timeout", DEADLINE, PROGRAM, "sent_before_the_end", limit=LIMIT)
    assert code == 0, err
    assert sorted(out.splitlines()) == ["rank 0 is done", "rank 1 is done"]


def test_ranks_disagree_while_more_is_under_way():
    code, _, err = launch("-n", 2, "--timeout", DEADLINE, PROGRAM, "disagree", limit=LIMIT)
    cause = cause_in(err)
    assert code == 1 and "don't agree at operation #2:\n" in cause
    for rank, shape in enumerate((8, 5)):
        line = rf"\n  rank {rank}: all_reduce\(\({shape},\), float64, cpu, sum\) at .*:\d+\n"
        assert re.search(line, cause), cause
