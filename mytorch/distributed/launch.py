"""
`mytorchrun launch`, also `python -m mytorch.distributed.launch`: runs a script as several processes.

mpiexec, or srun under Slurm, starts the ranks; a single process needs neither. Whatever happens to one rank,
all end, no process is left, and the end of stderr shows the root cause.
"""

from __future__ import annotations

import argparse
import math
import os
import sys

from ..backends.device import device_count
from ..utils.start import open_streams
from . import launcher_command
from .environment import TIMEOUT, TIMEOUT_VARIABLE, seconds
from .exit_watch import EXIT_VARIABLE
from .job import START_VARIABLE, run_job
from .launcher_command import LaunchError, check_hostfile
from .node_agent import join_job
from .rendezvous import JOIN_VARIABLE

_MOST_NODES, _MOST_RANKS = 10_000, 4096  # machines; processes on one of them
_SECONDS = (TIMEOUT_VARIABLE, START_VARIABLE, EXIT_VARIABLE, JOIN_VARIABLE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the launcher to a parser."""
    count = parser.add_mutually_exclusive_group()
    count.add_argument("--num_processes", "-n", type=positive, help="ranks, on all machines together")
    count.add_argument(
        "--num_gpus",
        "--nproc_per_node",
        type=positive,
        help="ranks on each machine (default: its GPUs, or 1)",
    )
    parser.add_argument("--nnodes", type=positive, default=1, help="machines (default 1)")
    parser.add_argument("--node_rank", type=int, default=0, help="which of them this is (default 0)")
    parser.add_argument("--master_addr", default="127.0.0.1", help="address of machine 0")
    parser.add_argument("--master_port", type=int, default=29500, help="a port of machine 0 (default 29500)")
    parser.add_argument("--hostfile", help="the machines, in mpiexec's format: `host slots=8` per line")
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument("--max_restarts", type=int, default=0, help="restarts after a failure (default 0)")
    parser.add_argument(
        "--timeout", type=float, help=f"seconds that a collective may take (default {TIMEOUT:g})"
    )
    parser.add_argument("--prefix", action="store_true", help="start each line of output with its rank")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="the Python program that all ranks run")
    parser.add_argument("script_args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")


def positive(text: str) -> int:
    """Returns the positive int in a text; argparse reports the error."""
    number = int(text) if text.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return number


def run(options: argparse.Namespace) -> int:
    """Launches a job; returns its exit code.

    Raises:
        LaunchError: it can't be started: the script, MPI, or GPUs are missing, or options don't fit.
    """
    _check(options)
    if launcher_command.is_launched_per_node(options):
        launcher_command.check_launched_per_node(options)
    elif options.node_rank:
        raise LaunchError(
            f"this is machine {options.node_rank}: launch only on machine 0, which starts the ranks of all"
        )
    check_hostfile(options)
    ranks, local_ranks = count_ranks(options)
    if local_ranks > _MOST_RANKS:
        raise LaunchError(f"{local_ranks} processes on each machine are too many: at most {_MOST_RANKS}")
    return (join_job if options.node_rank else run_job)(options, ranks, local_ranks)


def _check(options: argparse.Namespace) -> None:
    """Raises LaunchError for options, or variables of the environment, that are out of range."""
    if not options.module and not os.path.isfile(options.script) or not options.script:
        raise LaunchError(f"no such script: {options.script}")
    if options.timeout is not None and not 0 < options.timeout < math.inf:
        raise LaunchError(f"--timeout is a positive number of seconds, got {options.timeout:g}")
    for name in _SECONDS:
        try:
            seconds(os.environ.get(name) or None)
        except ValueError as error:
            raise LaunchError(f"environment variable {name}: {error}") from None
    if options.max_restarts < 0:
        raise LaunchError(f"--max_restarts can't be negative, got {options.max_restarts}")
    if options.nnodes > _MOST_NODES:
        raise LaunchError(f"--nnodes {options.nnodes} is too much: at most {_MOST_NODES} machines")
    if not 0 <= options.node_rank < options.nnodes:
        raise LaunchError(f"--node_rank {options.node_rank} is not in 0 … {options.nnodes - 1}")
    if not 0 < options.master_port < 65536:
        raise LaunchError(f"--master_port is a port, 1 to 65535, got {options.master_port}")


def count_ranks(options: argparse.Namespace) -> tuple[int, int]:
    """Returns the number of ranks, and of those on this machine.

    Raises:
        LaunchError: more ranks than GPUs, or not the same number on each machine.
    """
    if launcher_command.under_slurm() and options.num_processes is None and options.num_gpus is None:
        return launcher_command.slurm_tasks()
    nodes = options.nnodes
    if options.num_processes is not None:
        if options.num_processes % nodes:
            raise LaunchError(
                f"{options.num_processes} processes can't be divided evenly among {nodes} machines"
            )
        return options.num_processes, options.num_processes // nodes
    gpus = 0 if options.cpu else device_count()
    if options.num_gpus is not None and not options.cpu and options.num_gpus > gpus:
        raise LaunchError(f"--num_gpus {options.num_gpus}, but only {gpus} were found; --cpu runs without")
    per_node = options.num_gpus or max(gpus, 1)
    return per_node * nodes, per_node


def main(argv: list[str] | None = None) -> int:
    """`python -m mytorch.distributed.launch`."""
    open_streams()
    parser = argparse.ArgumentParser(prog="mytorch.distributed.launch", description=__doc__.split("\n\n")[0])
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except LaunchError as error:
        print(f"mytorchrun launch: {error}", file=sys.stderr)
        return launcher_command.NOT_LAUNCHED


if __name__ == "__main__":
    sys.exit(main())
