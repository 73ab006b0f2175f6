"""Whatever happens to one rank, all end in time, with one root cause on stderr, and nothing is left.

The bound is on the time from when the job goes wrong: `max(timeout, 5 s)`, plus what starting it takes.
"""

import os
import re
import signal
from pathlib import Path

import pytest

from .launched import PROGRAMS, finish, is_alive, launch, left_behind, needs_mpi, pids, start, wait_for

pytestmark = needs_mpi
PROGRAM = PROGRAMS / "failing.py"
TIMEOUT = 3  # of collectives, where one that never ends is what goes wrong
LATER = 60  # and elsewhere: longer than the bound, so that nothing else may wait for it
START = 40  # seconds, on a machine with much else to do

SOURCE = PROGRAM.read_text().splitlines()
AT = re.escape(str(PROGRAM))
LINE = {name: i for i, line in enumerate(SOURCE, 1) for name in re.findall(r'^    "(\w+)":', line)}
LAST = SOURCE.index("    dist.all_reduce(x)") + 1


def two_sites(how, mine):
    """Both calls, each with its place in the program."""
    return [
        "don't agree",
        rf"rank 0: all_reduce\(\(8,\), float32, cpu, sum\) at {AT}:{LAST}\n",
        rf"rank 1: {mine} at {AT}:{LINE[how]}\n",
    ]


# How it goes wrong: the exit code, and what the root cause says.
FAILURES = {
    "exception": (
        1,
        [
            "rank 1 on .*, exception:",
            "ValueError: boom on rank 1",
            r"last operation: all_reduce\(\(8,\), float32\) #1 of group WORLD at .*failing.py:\d+: done",
            "in exception\n",
        ],
    ),
    "leave_a_child": (1, ["ValueError: boom, with a child"]),
    "memory_error": (1, ["rank 1 on .*, exception:", "MemoryError: no room for 123 bytes"]),
    "nan_loss": (
        1,
        [
            "rank 1 on .*, exception:",
            r"FloatingPointError: backward\(\): the loss on rank 1 is nan; averaged over the 2 ranks",
            "in nan_loss\n",
        ],
    ),
    "kill": (
        137,
        [r"rank 1 on .*, signal:\nkilled by SIGKILL \(signal 9\); .*memory", "last operation: all_reduce"],
    ),
    "segfault": (139, [r"rank 1 on .*, signal:\nkilled by SIGSEGV \(signal 11\)"]),
    "early_exit": (
        1,
        [
            r"rank 1 ended, as with sys.exit\(0\)",
            rf"rank 0: all_reduce.* at {AT}:{LAST}\n",
            "rank 1: the end of the program",
        ],
    ),
    "exit_3": (3, ["rank 1 on .*, exception:", "SystemExit: 3"]),
    "os_exit_3": (3, ["rank 1 ended with exit code 3"]),
    "stop": (
        1,
        [
            "rank 0 on .*, timeout:",
            f"all_reduce #2 of group WORLD not over after {TIMEOUT} s",
            r"rank 1: all_reduce.* #1 .*: done \(process \d+ is stopped\)",
        ],
    ),
    "hang": (
        1,
        [
            "rank 0 on .*, timeout:",
            rf"rank 1: all_reduce.* #1 .*: done\n\s+Stack .*\n.*failing.py\", line {LINE['hang']}",
        ],
    ),
    "no_receiver": (
        1,
        [
            "timeout:",
            r"rank 1: send\(to 0\)\(\(1048576,\), float64\) #1 .*: waiting",
            r"rank 0: all_reduce.* #2 .*: waiting",
        ],
    ),
    "other_collective": (1, two_sites("other_collective", r"broadcast\(\(8,\), float32, cpu, src=0\)")),
    "other_shape": (1, two_sites("other_shape", r"all_reduce\(\(5,\), float32, cpu, sum\)")),
    "other_dtype": (1, two_sites("other_dtype", r"all_reduce\(\(8,\), float64, cpu, sum\)")),
    "other_op": (1, two_sites("other_op", r"all_reduce\(\(8,\), float32, cpu, max\)")),
}
NEVER_OVER = ("stop", "hang", "no_receiver")  # where the others wait in a collective


def causes_in(stderr):
    """The blocks that name a root cause, each after an empty line."""
    assert "\0" not in stderr
    return re.findall(r"(?ms)^\n=== mytorchrun: root cause ===\n(.*?)\n=== end of root cause ===$", stderr)


def cause_in(stderr):
    """The only one of them."""
    (cause,) = causes_in(stderr)
    return cause


def check_nothing_left(folder):
    wait_for(lambda: not any(map(is_alive, pids(folder))), 5)
    wait_for(lambda: not left_behind(folder), 5)


@pytest.mark.parametrize("how", FAILURES)
def test_one_rank_goes_wrong(how, tmp_path):
    code, says = FAILURES[how]
    timeout = TIMEOUT if how in NEVER_OVER else LATER
    found, out, err = launch(
        "-n", 2, "--timeout", timeout, PROGRAM, how, tmp_path, limit=START + max(TIMEOUT, 5)
    )
    cause = cause_in(err)
    for pattern in says:
        assert re.search(pattern, cause), f"{pattern!r} is not in\n{cause}"
    assert found == code, err
    assert "is done" not in out
    assert len(pids(tmp_path)) == 2
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_the_launcher_is_asked_to_end(number, tmp_path):
    process = start("-n", 2, PROGRAM, "for_ever", tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == 2, START)
    process.send_signal(number)
    code, _, err = finish(process, 10)
    assert code == 128 + number
    assert f"the launcher got {number.name}" in cause_in(err)
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
@pytest.mark.parametrize("size", [1, 2])
def test_ranks_that_are_told_may_still_save(size, number, tmp_path):
    process = start("-n", size, PROGRAM, "until_told", tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == size, START)
    process.send_signal(number)
    code, _, err = finish(process, START)
    assert code == 128 + number and f"the launcher got {number.name}" in cause_in(err)
    assert len(list(tmp_path.glob("saved-?"))) == size
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("times", [1, 2])
def test_ranks_that_do_not_listen_are_killed(times, tmp_path):
    """After the timeout of collectives, within 5 and 30 s; at once, when asked for a second time."""
    process = start("-n", 2, "--timeout", 1 if times == 1 else 1000, PROGRAM, "deaf", tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == 2, START)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        wait_for(lambda: len(list(tmp_path.glob("told-?"))) == 2)
    code, _, err = finish(process, 20)
    assert code == 130 and "the launcher got SIGINT" in cause_in(err)
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("doing", ["for_ever", "sleep"])
@pytest.mark.parametrize("size", [1, 2])
def test_the_launcher_is_killed(size, doing, tmp_path):
    process = start("-n", size, PROGRAM, doing, tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == size, START)
    process.kill()
    finish(process, 10)
    check_nothing_left(tmp_path)


def test_two_jobs_at_once(tmp_path):
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    for job in [start("-n", 2, PROGRAM, "well", folder) for folder in folders]:
        code, out, err = finish(job, 2 * START)
        assert code == 0, err
        assert sorted(out.splitlines()) == ["rank 0 is done", "rank 1 is done"]
        assert "root cause" not in err


@pytest.mark.parametrize(
    "text, says",
    {
        "import": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        "syntax": ("x = = 1", "SyntaxError"),
    }.values(),
    ids=["import", "syntax"],
)
def test_the_script_does_not_even_start(text, says, tmp_path):
    script = tmp_path / "broken.py"
    script.write_text(text)
    code, out, err = launch("-n", 2, script, limit=START)
    assert code == 1 and says in cause_in(err) and "broken.py" in cause_in(err)
    check_nothing_left(tmp_path)


def test_a_single_process_goes_wrong(tmp_path):
    """In another way at each start; what is said of it is what is said of one of several."""
    script = tmp_path / "one.py"
    script.write_text(
        "import os\nprint(os.environ['WORLD_SIZE'])\nn = os.environ['MYTORCH_RESTART_COUNT']\n"
        "if n == '0': os.kill(os.getpid(), 9)\nif n == '1': os._exit(3)\nraise KeyError('alone')"
    )
    code, out, err = launch("-n", 1, "--max_restarts", 2, script, limit=START)
    assert (code, out) == (1, "1\n" * 3)
    killed, ended, raised = causes_in(err)
    assert re.search(r"rank 0 on .*process \d+\), signal:\nkilled by SIGKILL \(signal 9\); .*memory", killed)
    assert ended == "rank 0 ended with exit code 3, and said nothing (os._exit?)"
    assert "rank 0 on" in raised and "KeyError: 'alone'" in raised


def test_a_slow_last_rank_is_no_failure(tmp_path):
    """Rank 0 saves something at the end, for longer than a collective may take."""
    script = tmp_path / "slow.py"
    script.write_text("import os, time\ntime.sleep(2.5 * (os.environ['RANK'] == '0'))\nprint('saved')")
    code, out, err = launch("-n", 2, "--timeout", 1, script, limit=START)
    assert (code, out) == (0, "saved\nsaved\n"), err


def test_it_starts_again_after_a_failure(tmp_path):
    script = tmp_path / "second.py"
    script.write_text(
        "import os\nn = os.environ['MYTORCH_RESTART_COUNT']\nassert n == '1', 'try ' + n\nprint('at last')"
    )
    code, out, err = launch("-n", 2, "--max_restarts", 2, script, limit=2 * START)
    assert (code, out) == (0, "at last\nat last\n")
    assert "AssertionError: try 0" in cause_in(err) and "restart 1 of 2" in err


def test_a_rank_that_stops_before_mpi_is_there(tmp_path):
    """MPI waits for it without end, so nobody but the launcher can say so."""
    stop = "import os, signal\nwhile 'PMIX_RANK' in os.environ: os.kill(os.getpid(), signal.SIGSTOP)"
    (tmp_path / "mpi4py.py").write_text(stop)
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    code, out, err = launch("-n", 2, script, limit=START, PYTHONPATH=path, MYTORCH_START_TIMEOUT="1")
    assert code != 0 and out == "" and "rank 0, 1 did not begin within 1 s" in cause_in(err)
    check_nothing_left(tmp_path)


def test_a_rank_that_leaves_before_the_group_is_there(tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text(
        "import os, sys\nimport mytorch.distributed as dist\n"
        "if os.environ['RANK'] == '1': sys.exit(0)\ndist.init_process_group()"
    )
    code, _, err = launch("-n", 2, script, limit=START)
    assert code == 1 and "rank 1 ended" in cause_in(err)
    assert re.search(r"rank 0: init_process_group\('mpi'\) at .*leaves.py:4", cause_in(err))


def test_mpi_is_not_installed(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('it is not there')")
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    code, out, err = launch("-n", 2, script, PYTHONPATH=path)
    assert (code, out) == (2, "") and "pip install 'mytorch[mpi]'" in err
    code, out, err = launch("-n", 1, script, PYTHONPATH=path)
    assert (code, out) == (0, "ran\n")
