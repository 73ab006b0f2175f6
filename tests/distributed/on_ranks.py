"""Runs the functions of a program on several ranks, and returns their results."""

import json
import sys
import traceback
from functools import cache
from pathlib import Path

import numpy as np

import mytorch
import mytorch.distributed as dist


@cache
def results_of(program, world_size, folder, *names):
    """{name of a case: [what it returned on rank 0, on rank 1, …]}; each is a dict of arrays."""
    from tests.distributed.launched import launch  # the ranks, who import this module too, need no pytest

    folder = Path(folder) / f"{Path(program).stem}-{world_size}-{len(names)}"
    folder.mkdir(parents=True)
    arguments = ("-n", world_size, "--timeout", 300, program, folder, *names)
    code, out, err = launch(*arguments, limit=600, NUMBA_NUM_THREADS="1")
    assert code == 0, out + err
    return results_in(folder)


@cache
def results_in_threads(module, world_size):
    """The same, of all cases of an imported program, on ranks that are threads of this process."""

    def ranks():
        mytorch.use_fused(False)
        dist.init_process_group()
        return returned_by(module.CASES)

    found = dist.worlds.run(world_size, ranks)
    return {name: [results[name] for results in found] for name in module.CASES}


def returned_by(cases):
    """What each case returns on this rank."""
    return {name: {k: np.array(v) for k, v in case().items()} for name, case in cases.items()}


def results_in(folder):
    """What `run_cases` left there."""
    results = {}
    for path in sorted(folder.glob("*.npz"), key=lambda path: int(path.stem.rsplit(".", 1)[1])):
        with np.load(path) as file:
            results.setdefault(path.stem.rsplit(".", 1)[0], []).append(dict(file))
    return results


def run_cases(cases, rank):
    """What the program does on each rank: sys.argv has a folder and the names of cases, or none for all."""
    folder, *names = sys.argv[1:]
    for name in names or cases:
        try:
            returned = returned_by({name: cases[name]})[name]
        except Exception:
            print(f"case {name} on rank {rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            raise
        np.savez(Path(folder) / f"{name}.{rank}.npz", **returned)


def text_of(error):
    return json.dumps(str(error))
