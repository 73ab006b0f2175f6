"""Each campaign finds nothing in its first cases; a find of a campaign is shown, and can be run again."""

import faulthandler
import os
import random
import signal
import subprocess
import sys
import time
import types

import pytest

from tests.campaigns import NAMES
from tests.campaigns.runner import Run
from tests.distributed.launched import ROOT, surroundings

LIMIT = 600  # seconds, on a machine with much else to do


@pytest.mark.parametrize("name", NAMES)
def test_a_campaign(name):
    command = [sys.executable, "-m", "tests.campaigns", name]
    done = subprocess.run(
        command, cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def crash():
    faulthandler.disable()  # pytest's would print the stack
    os.kill(os.getpid(), signal.SIGSEGV)


# What goes wrong in case N of a campaign, and what is said of it.
WRONG = {
    1: (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    2: (lambda: crash(), "the process ended with code -11"),
    3: (lambda: time.sleep(1000), "not over after 1 s"),
}


def test_the_runner_finds_what_goes_wrong(capsys):
    known = {"(?s)kind 4: .*known": "for this test"}
    campaign = types.SimpleNamespace(__name__="x.y", DEADLINE=1, KNOWN=known)
    numbers = {random.Random(f"y 5 {n}").random(): n for n in range(6)}
    campaign.draw = lambda random: (f"kind {numbers[random.random()]}",)
    campaign.check = lambda folder, kind: check(int(kind.split()[1]))

    def check(number):
        if number == 4:
            raise ValueError("this is known")
        WRONG.get(number, (lambda: None,))[0]()

    run = Run(campaign, 5)
    run.cases(0, tries=6)
    assert [number for number, *_ in run.found] == list(WRONG)
    for number, case, wrong in run.found:
        assert case == (f"kind {number}",) and WRONG[number][1] in wrong
    assert run.table().splitlines()[-1].split() == ["all", "6", "3", "1"]
    assert "again: python -m tests.campaigns y --seed 5 --only 3" in capsys.readouterr().out


def test_a_case_is_the_same_again():
    campaign = types.SimpleNamespace(__name__="x.y", draw=random.Random.random)
    assert Run(campaign, 1).case(7) == Run(campaign, 1).case(7) != Run(campaign, 2).case(7)
