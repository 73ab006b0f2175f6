"""Runs that are killed, and go on; and several ranks around one checkpoint."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mytorch.accelerate import checkpoint, world
from tests.accelerate import train_and_save as program
from tests.distributed.launched import launch, needs_mpi, surroundings

STEPS = 20
KILLS = {"synchronous": 2, "asynchronous": 2}


def start(folder, mode):
    command = [
        sys.executable, program.__file__, str(folder), str(STEPS), "no", str(mode == "asynchronous")
    ]  # fmt: skip
    return subprocess.Popen(
        command, env=surroundings(MYTORCH_TUNE="0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines_of(text):
    """(step, loss) of each line; the last one may be cut off in the middle."""
    whole = [line.split() for line in text.split("\n")[:-1]]
    return [(int(step), float.fromhex(loss)) for step, loss in whole]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The losses of a run that isn't killed, of another process: the same bits."""
    whole, _ = start(tmp_path_factory.mktemp("whole"), "synchronous").communicate(timeout=300)
    losses = dict(lines_of(whole))
    assert list(losses) == list(range(1, STEPS + 1)) and np.isfinite(list(losses.values())).all()
    return losses


@pytest.mark.parametrize("mode", KILLS)
def test_kill_at_any_moment(tmp_path, mode, expected):
    rng, kills, runs, reached = random.Random(mode), 0, 0, 0
    while runs == 0 or kills < KILLS[mode] or reached > 0:
        folder = tmp_path / f"run_{runs}"
        process = start(folder, mode)
        text = ""
        if kills < KILLS[mode]:
            for _ in range(rng.randint(1, 12)):  # steps, on a machine of any speed
                text += process.stdout.readline()
            time.sleep(rng.random() * 0.02)
            process.kill()
        # Not communicate(): it loses what came along with the last line that was read.
        rest, error = process.stdout.read(), process.stderr.read()
        process.wait()
        assert "Traceback" not in error, error
        kills += process.returncode == -signal.SIGKILL
        for step, loss in lines_of(text + rest):
            assert loss == expected[step]  # bit for bit
            assert step <= reached + 1  # none is left out
            reached = step
        saved = checkpoint.numbered(folder)
        assert not [problem for path in saved.values() if (problem := checkpoint.find_problem(path))]
        if process.returncode == 0:
            assert len(os.listdir(folder)) == 2  # what killed ones left behind is gone
            assert reached == STEPS
            reached, runs = 0, runs + 1


@needs_mpi
def test_a_restart_goes_on_from_the_last_good_one(tmp_path):
    """Two ranks are killed in the middle of a save and restarted: the losses are those of a whole run."""
    arguments = (tmp_path / "killed", 8, "no", "False", tmp_path / "whole")
    code, out, err = launch(
        "-n", 2, "--max_restarts", 1, program.__file__, *arguments, limit=400, KILLED_IN_SAVE="5"
    )
    assert code == 0 and "mytorchrun: restart 1 of 1" in err, out + err
    lines = out.splitlines()
    found, expected = lines[:9], lines[9:]
    assert [line.split()[0] for line in found] == ["1", "2", "3", "4", "5", "5", "6", "7", "8"]
    assert [line.split()[0] for line in expected] == list("12345678")
    assert found[:5] + found[6:] == expected and found[4] == found[5]


def test_the_others_wait_for_the_main_process_longer_than_for_a_collective(monkeypatch):
    waited = []
    monkeypatch.setattr(world, "rank", lambda group=None: 1)
    monkeypatch.setattr(world, "world_size", lambda group=None: 2)
    monkeypatch.setattr(world, "broadcast_object", lambda obj, src=0: ("result of rank 0", None))
    monkeypatch.setattr(world.dist, "barrier", lambda timeout=None: waited.append(timeout))
    for limit, expected in ((3.0, 600.0), (1000.0, 1000.0)):
        monkeypatch.setattr(world, "seconds", lambda limit=limit: limit)
        assert world.on_main(lambda: pytest.fail("it runs on rank 0 only")) == "result of rank 0"
        assert waited.pop() == expected
