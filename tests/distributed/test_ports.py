"""At what ports the processes of a job on one machine listen: docs/distributed.md says so."""

import signal

import psutil
import pytest

from .launched import finish, needs_mpi, start, wait_for

PROGRAM = """
import sys, time
from pathlib import Path
import mytorch
from mytorch import distributed as dist
dist.init_process_group()
dist.all_reduce(mytorch.ones(2))
(Path(sys.argv[1]) / f"ready-{dist.get_rank()}").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=needs_mpi)])
def test_only_open_mpis_own_process_listens(ranks, tmp_path):
    """On one machine MPI's messages go through memory; its mpiexec has no option not to listen (5.0.11)."""
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    job = start("-n", ranks, script, tmp_path)
    try:
        wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == ranks, 60)
        launcher = psutil.Process(job.pid)
        processes = [launcher, *launcher.children(recursive=True)]
        ports = {
            (process.name(), connection.laddr.ip)
            for process in processes
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
    finally:
        job.send_signal(signal.SIGTERM)
        finish(job, 60)
    others = {(name, address) for name, address in ports if address not in ("127.0.0.1", "::1")}
    assert {name for name, _ in others} <= {"prterun", "mpiexec", "mpirun"}
    assert len(processes) > ranks and (ranks > 1 or not ports)
