"""Whatever happens to one rank, all end in time, with one root cause on stderr, and no process is left.

One job fails in one way after another, since `--max_restarts` starts it again after each.
"""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from .launched import PROGRAMS, ROOT, finish, is_alive, launch, left_behind, needs_mpi, pids, start, wait_for

pytestmark = needs_mpi
PROGRAM = PROGRAMS / "failing.py"
TIMEOUT = 3  # failing.py's
START = 60  # seconds for a job to start, on a machine with much else to do

SOURCE = PROGRAM.read_text().splitlines()
AT = re.escape(str(PROGRAM))
LINE = {name: i for i, line in enumerate(SOURCE, 1) for name in re.findall(r'^    "(\w+)":', line)}
LAST = SOURCE.index("    dist.all_reduce(x)") + 1


# How rank 1 fails: the exit code, and patterns in the root cause.
FAILURES = {
    "leave_a_child": (
        1,
        [
            "rank 1 on .*, exception:",
            "ValueError: boom on rank 1",
            r"last operation: barrier\(\(0,\), uint8\) #2 of group WORLD at .*failing.py:\d+: done",
            "in exception\n",
        ],
    ),
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
        [r"rank 1 on .*, signal:\nkilled by SIGKILL \(signal 9\); .*memory", "last operation: barrier"],
    ),
    "segfault": (139, [r"rank 1 on .*, signal:\nkilled by SIGSEGV \(signal 11\)"]),
    "early_exit": (
        1,
        [
            r"rank 1 exited, as with sys.exit\(0\)",
            "the ranks of group WORLD don't agree at operation #3:",
            rf"rank 0: all_reduce.* at {AT}:{LAST}\n",
            "rank 1: the end of the program",
        ],
    ),
    "before_the_group": (
        1,
        [
            r"rank 1 exited, as with sys.exit\(0\)",
            "the ranks of group WORLD don't agree at operation #1:",
            rf"rank 0: init_process_group\('mpi'\) at {AT}:\d+\n",
        ],
    ),
    "exit_3": (3, ["rank 1 on .*, exception:", "SystemExit: 3"]),
    "os_exit_3": (3, [r"rank 1 ended with exit code 3, without an error report \(os._exit\?\)"]),
    "os_exit_0": (1, [r"rank 1 ended with exit code 0, without an error report \(os._exit\?\)"]),
    "stop": (
        1,
        [
            "rank 0 on .*, timeout:",
            f"all_reduce #3 of group WORLD not complete after {TIMEOUT} s",
            r"rank 1: barrier.* #2 .*: done \(process \d+ is stopped\)",
        ],
    ),
    "hang": (
        1,
        [
            "rank 0 on .*, timeout:",
            rf"rank 1: barrier.* #2 .*: done\n\s+Stack .*\n.*failing.py\", line {LINE['hang']}",
        ],
    ),
    "no_receiver": (
        1,
        [
            "timeout:",
            r"rank 1: send\(to 0\)\(\(1048576,\), float64\) #1 .*: waiting",
            r"rank 0: all_reduce.* #3 .*: waiting",
        ],
    ),
    "other_shape": (
        1,
        [
            "rank [01] on .*, mismatch:",
            "don't agree at operation #3",
            rf"rank 0: all_reduce\(\(8,\), float32, cpu, sum\) at {AT}:{LAST}\n",
            rf"rank 1: all_reduce\(\(5,\), float32, cpu, sum\) at {AT}:{LINE['other_shape']}\n",
        ],
    ),
}


def causes_in(stderr):
    """The blocks that name a root cause, each after an empty line."""
    assert "\0" not in stderr
    return re.findall(r"(?ms)^\n=== mytorchrun: root cause ===\n(.*?)\n=== end of root cause ===$", stderr)


def cause_in(stderr):
    """The only one of them."""
    (cause,) = causes_in(stderr)
    return cause


def check_nothing_left(folder):
    wait_for(lambda: not any(map(is_alive, pids(folder))), START)
    wait_for(lambda: not left_behind(folder), START)


def fail_in(ways, folder):
    """{way: (exit code, root cause)} of a job that fails in each of them, and then succeeds."""
    arguments = ("--max_restarts", len(ways), PROGRAM, folder, *ways, "well")
    code, out, err = launch("-n", 2, *arguments, limit=START * len(ways))
    assert code == 0, err
    assert sorted(out.splitlines()) == ["rank 0 is done", "rank 1 is done"]
    causes = causes_in(err)
    codes = [int(code) for code in re.findall(r"restart \d+ of \d+ after exit code (\d+)", err)]
    assert len(causes) == len(codes) == len(ways), err
    started = [way for way in ways if way != "before_the_group"]
    assert len(pids(folder)) == 2 * len(started) + 2
    check_nothing_left(folder)
    return dict(zip(ways, zip(codes, causes, strict=True), strict=True))


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """Of two jobs side by side: one fails in the ways that wait for the timeout."""
    waiting = ["stop", "hang", "no_receiver"]
    jobs = [waiting, [way for way in FAILURES if way not in waiting]]
    folders = [tmp_path_factory.mktemp("failures") for _ in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        found = pool.map(fail_in, jobs, folders)
        return {way: how for job in found for way, how in job.items()}


@pytest.mark.parametrize("way", FAILURES)
def test_one_rank_fails(way, failures):
    expected, patterns = FAILURES[way]
    code, cause = failures[way]
    for pattern in patterns:
        assert re.search(pattern, cause), f"{pattern!r} is not in\n{cause}"
    assert code == expected


def started(size, way, folder, *options, **how):
    """A job whose ranks have started; several may run at the same time."""
    process = start("-n", size, *options, PROGRAM, folder, way, **how)
    file = "ready-?" if way in ("until_signal", "ignore_signals") else "pid-?"
    wait_for(lambda: len(list(folder.glob(f"0/{file}"))) == size, START)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_to_the_launcher(number, tmp_path):
    process = started(2, "forever", tmp_path)
    process.send_signal(number)
    code, _, err = finish(process, START)
    assert code == 128 + number
    assert f"the launcher got {number.name}" in cause_in(err)
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("size", [1, 2])
def test_signals_that_were_ignored_stay_so(size, tmp_path):
    """As SIGHUP by nohup, and SIGINT by a shell script that starts the launcher in the background."""
    process = started(size, "until_signal", tmp_path, ignored=(signal.SIGHUP, signal.SIGINT))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # the lowest number would be handled first
        process.send_signal(number)
    code, _, err = finish(process, START)
    assert code == 128 + signal.SIGTERM and "the launcher got SIGTERM" in cause_in(err)
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("size, number", [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_ranks_get_the_signal_and_may_still_save(size, number, tmp_path):
    process = started(size, "until_signal", tmp_path)
    process.send_signal(number)
    code, _, err = finish(process, START)
    assert code == 128 + number and f"the launcher got {number.name}" in cause_in(err)
    assert len(list(tmp_path.glob("0/saved-?"))) == size
    check_nothing_left(tmp_path)


@pytest.mark.parametrize("size, way", [(1, "sleep"), (2, "forever")])
def test_the_launcher_is_killed(size, way, tmp_path):
    process = started(size, way, tmp_path)
    process.kill()
    finish(process, START)
    check_nothing_left(tmp_path)


def test_a_single_process_fails(tmp_path):
    """Its root cause is reported as that of one of several ranks."""
    script = tmp_path / "one.py"
    script.write_text(
        "import os\n"
        "print(os.environ['WORLD_SIZE'])\n"
        "n = os.environ['MYTORCH_RESTART_COUNT']\n"
        "class Mute(Exception):\n"
        "    def __str__(self): raise RuntimeError('this is not the cause')\n"
        "if n == '0': os.kill(os.getpid(), 9)\n"
        "if n == '1': os._exit(3)\n"
        "if n == '2': raise KeyError('single')\n"
        "raise Mute\n"
    )
    code, out, err = launch("-n", 1, "--max_restarts", 3, script, limit=START)
    assert (code, out) == (1, "1\n" * 4)
    killed, ended, raised, mute = causes_in(err)
    assert re.search(r"rank 0 on .*process \d+\), signal:\nkilled by SIGKILL \(signal 9\); .*memory", killed)
    assert ended == "rank 0 ended with exit code 3, without an error report (os._exit?)"
    assert "rank 0 on" in raised and "KeyError: 'single'" in raised
    assert "\nMute: <exception str() failed>\n" in mute and f'File "{script}", line 9' in mute
    assert "this is not the cause" not in mute


def test_a_syntax_error(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("x = = 1")
    code, _, err = launch("-n", 1, script, limit=START)
    assert code == 1 and "SyntaxError" in cause_in(err) and "broken.py" in cause_in(err)


def test_a_slow_last_rank_is_no_failure(tmp_path):
    """Rank 0 works at the end of the program for longer than a collective may take."""
    script = tmp_path / "slow.py"
    script.write_text("import os, time\ntime.sleep(2.5 * (os.environ['RANK'] == '0'))\nprint('saved')")
    code, out, err = launch("-n", 2, "--timeout", 1, script, limit=START)
    assert (code, out) == (0, "saved\nsaved\n"), err


EXITS = {
    "a thread": (
        "if rank == 1: threading.Thread(target=time.sleep, args=(1000,), name='uploader').start()",
        "rank 1 finished the script, but did not exit within 5 s: it waits for thread 'uploader'\n",
    ),
    "an exit function": (
        "if rank == 1: atexit.register(time.sleep, 1000)",
        "rank 1 finished the script, but did not exit within 5 s: it waits for a function",
    ),
    "no descriptors": (
        "if rank == 1: os.closerange(3, 1024)",
        "rank 1 finished the script, but did not exit within 15 s: MPI's shutdown",
    ),
}


def check_ranks_that_ignore_signals(tmp_path):
    """They are killed after the timeout of collectives, within 5 and 30 s; at once after a second signal."""
    folders = {times: tmp_path / str(times) for times in (1, 2)}
    for folder in folders.values():
        folder.mkdir()
    jobs = {
        times: started(1, "ignore_signals", folder, "--timeout", 1 if times == 1 else 1000)
        for times, folder in folders.items()
    }
    for times, process in jobs.items():
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            wait_for(lambda folder=folders[times]: list(folder.glob("0/caught-?")))
    for process in jobs.values():
        code, _, err = finish(process, START)
        assert code == 130 and "the launcher got SIGINT" in cause_in(err)


def test_ranks_that_do_not_end(tmp_path):
    """One that can't exit: the other ends with code 0. Half of an hour is the default; see exit_watch.py for
    the 15 s. And those that ignore signals.

    The jobs, most of which is waiting, run side by side.
    """

    def run(name):
        script = tmp_path / f"{name}.py"
        script.write_text(
            "import atexit, os, threading, time\nimport mytorch.distributed as dist\n"
            "dist.init_process_group()\nrank = dist.get_rank()\ndist.barrier()\n"
            f"{EXITS[name][0]}\nprint('done')"
        )
        return launch("-n", 2, script, limit=5 * START, MYTORCH_EXIT_TIMEOUT="5")

    with ThreadPoolExecutor(len(EXITS)) as pool:
        ends = pool.map(run, EXITS)
        check_ranks_that_ignore_signals(tmp_path)
        jobs = dict(zip(EXITS, ends, strict=True))
    for name, (code, out, err) in jobs.items():
        assert (code, out) == (1, "done\ndone\n") and EXITS[name][1] in cause_in(err), name
    check_nothing_left(tmp_path)


def test_ranks_that_close_their_output(tmp_path):
    ways = "pass", "os.close(1)", "os.closerange(0, 3)", "sys.stdout.close()"
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys\nprint('done')\nexec({ways}[int(os.environ['RANK'])])")
    code, out, err = launch("-n", len(ways), script, limit=START)
    assert (code, out) == (0, "done\n" * len(ways)), err


def test_a_rank_that_stops_before_mpi_starts(tmp_path):
    """MPI waits for it forever, so only the launcher can report it."""
    stop = "import os, signal\nwhile 'PMIX_RANK' in os.environ: os.kill(os.getpid(), signal.SIGSTOP)"
    (tmp_path / "mpi4py.py").write_text(stop)
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    code, out, err = launch("-n", 2, script, limit=START, PYTHONPATH=path, MYTORCH_START_TIMEOUT="1")
    assert code != 0 and out == "" and "rank 0, 1 did not start within 1 s" in cause_in(err)
    check_nothing_left(tmp_path)


def test_mpi_is_not_installed(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('it is not installed')")
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    code, out, err = launch("-n", 2, script, PYTHONPATH=path)
    assert (code, out) == (2, "") and "pip install 'mytorch[mpi]'" in err
    code, out, err = launch("-n", 1, script, PYTHONPATH=path)
    assert (code, out) == (0, "ran\n")
