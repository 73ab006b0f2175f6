"""Trainings of train_gpt2.py, one after the other: `train_gpt2_program.py RUNS.json` on each rank.

The file holds {name: options}; what each run ended with is written into RUNS.json.<rank>. In a run called
"stopped N" the last rank receives Ctrl-C after iteration N.
"""

import json
import os
import signal
import sys
from pathlib import Path
from unittest import mock

import train_gpt2
from mytorch import distributed as dist


def run_main(options):
    """Runs train_gpt2.main(), which draws no picture; returns the exit code or message of SystemExit, 0
    without one."""
    without_picture = mock.patch.object(train_gpt2, "save_loss_curve")
    with without_picture, mock.patch.object(sys, "argv", ["train_gpt2.py", *options]):
        try:
            train_gpt2.main()
        except SystemExit as error:
            return error.code
    return 0


def interrupted_after(iteration, times=1):
    """Returns a `run_main` that receives Ctrl-C at the end of the step of an iteration."""
    step, count = train_gpt2.train_step, []

    def interrupted(*args):
        loss = step(*args)
        count.append(loss)
        if len(count) == iteration:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return loss

    def run(options):
        with mock.patch.object(train_gpt2, "train_step", interrupted):
            return run_main(options)

    return run


def main():
    dist.init_process_group()  # of all runs: each leaves it as it is
    rank, file = dist.get_rank(), sys.argv[1]
    exits = {}
    for name, options in json.loads(Path(file).read_text()).items():
        is_stopped = name.startswith("stopped") and rank == dist.get_world_size() - 1
        start = interrupted_after(int(name.split()[1])) if is_stopped else run_main
        exits[name] = start(options)
    Path(f"{file}.{rank}").write_text(json.dumps(exits))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
