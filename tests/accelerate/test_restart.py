"""Runs that are killed, and go on; and several ranks around one checkpoint."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mytorch.accelerate import checkpoint
from tests.accelerate import train_and_save as program
from tests.distributed.launched import launch, needs_mpi, surroundings

STEPS = 60
KILLS = {"synchronous": 12, "asynchronous": 8}


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


@pytest.mark.parametrize("mode", KILLS)
def test_kill_at_any_moment(tmp_path, mode):
    undisturbed, _ = start(tmp_path / "undisturbed", mode).communicate(timeout=300)  # alike: the same bits
    expected = dict(lines_of(undisturbed))
    assert list(expected) == list(range(1, STEPS + 1)) and np.isfinite(list(expected.values())).all()
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
        assert not [problem for path in saved.values() if (problem := checkpoint.what_is_wrong(path))]
        if process.returncode == 0:
            assert len(os.listdir(folder)) == 2  # what killed ones left behind is gone
            assert reached == STEPS
            reached, runs = 0, runs + 1


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=needs_mpi)])
def test_a_restart_goes_on_from_the_last_good_one(tmp_path, ranks):
    """Killed in the middle of a save, started again: the losses are those of a run that wasn't."""

    def losses(name, **variables):
        arguments = (tmp_path / name, 8, "no", "False")
        code, out, err = launch(
            "-n", ranks, "--max_restarts", 1, program.__file__, *arguments, limit=400, **variables
        )
        assert code == 0, out + err
        return out.splitlines(), err

    expected, _ = losses("whole")
    found, err = losses("killed", KILLED_IN_SAVE="5")
    assert "mytorchrun: restart 1 of 1" in err
    assert [line.split()[0] for line in found] == ["1", "2", "3", "4", "5", "5", "6", "7", "8"]
    assert found[:5] + found[6:] == expected and found[4] == found[5]


TOGETHER = """
import sys, threading
from mytorch.accelerate import CheckpointError, checkpoint
from tests.accelerate import train_and_save as program

accelerator, *_ = program.parts()
folder = sys.argv[1]
for call, error in ((lambda: accelerator.save_state(__file__), FileExistsError),
                    (lambda: accelerator.load_state("nowhere"), CheckpointError)):
    try:
        call()
    except error:
        print("refused")
real, may_write = checkpoint.save, threading.Event()
checkpoint.save = lambda obj, path: may_write.wait() and real(obj, path)
accelerator.save_state(folder, asynchronous=True)
threading.Timer(1, may_write.set).start()  # time enough for a rank that doesn't wait to find nothing
print(accelerator.load_state(folder) == folder)
accelerator.end_training()
"""


@needs_mpi
def test_all_ranks_wait_for_the_one_that_writes_and_learn_of_its_errors(tmp_path):
    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    code, out, err = launch("-n", 2, script, tmp_path / "c", limit=400)
    assert code == 0, out + err
    assert sorted(out.split()) == ["True"] * 2 + ["refused"] * 4


@needs_mpi
def test_the_others_wait_for_the_main_process_longer_than_for_a_collective(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(
        "import time\n"
        "from mytorch.accelerate import Accelerator, process\n"
        "accelerator = Accelerator()\n"
        "process.on_main(time.sleep, 5)\n"
        "print('done', process.rank())\n"
    )
    code, out, err = launch("-n", 2, "--timeout", 3, script)
    assert code == 0 and sorted(out.splitlines()) == ["done 0", "done 1"], err
