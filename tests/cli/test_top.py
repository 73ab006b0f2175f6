"""What mytorchrun top makes of two readings of a page; tests/stream/test_page.py has running jobs."""

import dataclasses
from pathlib import Path

from mytorch import stream
from mytorch.cli import top
from mytorch.stream.page import Reading

NOTHING = dict.fromkeys(stream.KINDS, 0.0)
START = Reading(
    Path(), 7, 0, 2, 0.0, "j", 0, "", "product", False, 0.0, NOTHING, 0, 0.0, 0, 3 << 29, 0, time=10.0
)


def later(**changes):
    return dataclasses.replace(START, **changes)


def test_an_operation_that_runs_counts_since_it_began_or_since_the_last_reading():
    for elapsed, share in ((0.5, 0.25), (9.0, 1.0)):
        activity = top.Activity(START)
        activity.update(later(time=12.0, is_running=True, elapsed=elapsed))
        assert activity.shares == {**NOTHING, "product": share} and activity.idle == 1 - share
    activity = top.Activity(START)
    activity.update(later(time=12.0, elapsed=0.5))  # it is over
    assert activity.shares == NOTHING and activity.idle == 1


def test_a_reading_of_the_same_moment_changes_nothing():
    activity = top.Activity(START)
    activity.update(later(seconds={**NOTHING, "product": 1.0}))
    assert activity.shares == {} and activity.last is START


def test_communication_and_annotations_are_idle_time():
    activity = top.Activity(START)
    spent = {**NOTHING, "communication": 0.5, "annotation": 0.25, "data": 0.125}
    activity.update(later(time=11.0, seconds=spent))
    assert activity.shares == spent and activity.idle == 0.875


def test_the_lines():
    ranks = {
        3: top.Activity(later(pid=3, rank=1, step=12, tokens_per_second=34567.8, on_gpu=5 << 28)),
        7: top.Activity(START),
        9: top.Activity(later(pid=9, job="a", world_size=1, count=4)),
    }
    ranks[7].update(later(time=11.0, seconds={**NOTHING, "reduction": 0.25, "product": 0.5, "data": 0.001}))
    assert top.lines_of(ranks) == [
        "job a: 1 rank",
        "  rank 0 pid 9 | - | idle 100% | - | 1.50 GiB | nothing yet | 4 operations",
        "job j: 2 ranks",
        "  rank 0 pid 7 | product 50% reduction 25% | idle 25% | - | 1.50 GiB | nothing yet | 0 operations",
        "  rank 1 pid 3 | - | idle 100% | step 12, 34,568 tokens/s | 1.50 GiB, GPU 1.25 GiB | nothing yet | "
        "0 operations",
    ]


def test_a_bar_is_as_long_as_its_share():
    assert top._bar({"reduction": 0.25, "product": 0.5}, 8).plain == "██████··"
    assert top._bar({"product": 0.5, "data": 0.6}, 8).plain == "█" * 8  # rounded shares may be more than all


def test_of_many_files_that_are_no_pages_five_are_named(capsys):
    for count, rest in ((5, []), (7, ["left out: 2 more"])):
        top.print_refused([f"file {i}" for i in range(count)])
        assert capsys.readouterr().err.splitlines() == [f"left out: file {i}" for i in range(5)] + rest
