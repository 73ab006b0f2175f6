"""Starting jobs from a test, and seeing that nothing of them is left."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from mytorch.distributed import environment, launcher_command

ROOT = Path(__file__).parents[2]
STEP = 0.25  # seconds
PROGRAMS = Path(__file__).parent / "programs"
HOME = tempfile.TemporaryDirectory(prefix="mytorch-tests-home-")


def why_no_mpi():
    """Why several ranks can't be started here; "" if they can."""
    if not environment.is_available():
        return "mpi4py is not installed: pip install 'mytorch[mpi]'"
    try:
        launcher_command.find_mpiexec()
    except launcher_command.LaunchError as error:
        return str(error)
    return ""


needs_mpi = pytest.mark.skipif(bool(why_no_mpi()), reason=why_no_mpi())


PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "PYTHON_COLORS": "0"}  # no colour codes in the output
NOT_INHERITED = ("RANK", "WORLD_SIZE", "FORCE_COLOR", "CLICOLOR_FORCE")


def surroundings(**variables):
    """The environment of a process that a test starts: of no launcher around it, with another home folder.

    The user's home folder may contain a configuration file, which processes would read.
    """
    names = {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_INHERITED and (name == "MYTORCH_COMPILE" or not name.startswith("MYTORCH_"))
    }
    names |= {"HOME": HOME.name, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **PLAIN}
    return {**names, **variables}


def start(*arguments, ignored=(), **variables):
    """The launcher, running; it was started to ignore some signals."""
    return subprocess.Popen(
        [sys.executable, "-m", "mytorch.cli", "launch", "--cpu", *map(str, arguments)],
        cwd=ROOT,
        env=surroundings(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(heed_signals, ignored),
    )


def heed_signals(ignored=()):
    """Ignores these signals and no others, whatever the tests were started with."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)


def launch(*arguments, limit=120, **variables):
    """(exit code, stdout, stderr) of a job; it fails the test if it takes longer than `limit` seconds."""
    return finish(start(*arguments, **variables), limit)


def finish(process, limit):
    """(exit code, stdout, stderr) of a running job; as for `launch`.

    Time in which the whole machine stood still doesn't count, as in `wait_for`.
    """
    for _ in range(int(limit / STEP)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=STEP)
            return process.returncode, out, err
    process.kill()
    out, err = process.communicate()
    pytest.fail(f"the job was not over after {limit} s\n{out}\n{err}")


def wait_for(condition, limit=30):
    """Waits until the condition holds."""
    for _ in range(int(limit / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail(f"not so after {limit} s")


def segments():
    """Open MPI's shared memory, of the jobs that the launcher didn't start."""
    return set(Path("/dev/shm").glob("sm_segment*"))


def check_no_segments_left(before):
    """None more than before: those of other tests' jobs, which run at the same time, go with them."""
    found = segments() - before
    wait_for(lambda: not any(path.exists() for path in found))


def pids(folder):
    """The process ids that the ranks wrote."""
    return [int(path.read_text()) for path in sorted(Path(folder).glob("**/pid-?"))]


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def left_behind(marker):
    """Command lines of living processes that name `marker`, such as the folder of one test."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(marker) in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found
