"""PyTorch's part of test_parity.py, on several numbers of ranks: FOLDER NUMBER…

The ranks are forked, so that PyTorch, and the compiler that its optimizers and DDP import, is imported once.
"""

import os
import sys

import torch._dynamo  # noqa: F401 - else each rank imports it, when it makes an optimizer
import torch.multiprocessing

from tests.distributed import parity_program
from tests.distributed.libraries import Library


def rank_of(rank, world, folder, library):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    sys.argv[1:] = [folder]
    parity_program.run(library)


if __name__ == "__main__":
    folder, *worlds = sys.argv[1:]
    for world in worlds:
        made = os.path.join(folder, world)
        os.makedirs(made)
        torch.multiprocessing.start_processes(
            rank_of, (int(world), made, Library("torch")), int(world), start_method="fork"
        )
