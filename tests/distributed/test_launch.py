"""The launcher: what ranks see, which command starts them, how their output is shown."""

import argparse
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from mytorch.cli import main
from mytorch.distributed import job, launch, launcher_command, processes, remote_shell
from mytorch.utils import start

from .launched import (
    PROGRAMS,
    ROOT,
    check_no_segments_left,
    needs_mpi,
    segments,
    surroundings,
    why_no_mpi,
)
from .launched import launch as run

PROGRAM = PROGRAMS / "print_environment.py"


def options(*arguments):
    parser = argparse.ArgumentParser()
    launch.add_arguments(parser)
    return parser.parse_args([*map(str, arguments), "script.py"])


def seen_by(out):
    """What each rank saw, in the order of ranks."""
    return sorted((json.loads(line) for line in out.splitlines()), key=lambda seen: seen["RANK"])


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=needs_mpi)])
def test_what_a_rank_sees(size):
    before = segments()
    code, out, err = run(
        "-n", size, "--master_port", 1234, PROGRAM, "--flag", "a b", "-n", OMP_NUM_THREADS=""
    )
    assert code == 0, err
    for rank, seen in enumerate(seen_by(out)):
        assert (seen["RANK"], seen["LOCAL_RANK"]) == (str(rank), str(rank))
        assert seen["WORLD_SIZE"] == seen["LOCAL_WORLD_SIZE"] == str(size)
        assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("127.0.0.1", "1234")
        assert seen["CUDA_VISIBLE_DEVICES"] == ""
        assert seen["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // size))
        assert seen["argv"] == [str(PROGRAM), "--flag", "a b", "-n"]
        assert seen["name"] == "__main__" and seen["is_main"] and seen["path"] == str(PROGRAMS)
    assert len(seen_by(out)) == size
    check_no_segments_left(before)


def test_a_module_instead_of_a_script(tmp_path, monkeypatch):
    """Settings of whoever runs the tests are nowhere seen: such a file would end the launcher."""
    (tmp_path / ".cache" / "mytorch").mkdir(parents=True)
    (tmp_path / ".cache" / "mytorch" / "default_config.yaml").write_text("no_such_setting: 1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MYTORCH_NUM_PROCESSES", "many")
    monkeypatch.setenv("WORLD_SIZE", "7")
    code, out, err = run(
        "-n", 1, "-m", "tests.distributed.programs.print_environment", "x", OMP_NUM_THREADS="5"
    )
    assert code == 0, err
    (seen,) = seen_by(out)
    assert seen["name"] == "__main__" and seen["argv"][1:] == ["x"] and seen["OMP_NUM_THREADS"] == "5"
    assert seen["WORLD_SIZE"] == "1"


@pytest.mark.parametrize(
    "arguments", [["--num_gpus", "1", "--master_addr", "127.0.0.1", "--master_port", "13333"]]
)
def test_as_a_module_of_the_package(arguments):
    command = [sys.executable, "-m", "mytorch.distributed.launch", *arguments]
    done = subprocess.run(
        [*command, "--cpu", PROGRAM],
        cwd=ROOT,
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [seen["MASTER_PORT"] for seen in seen_by(done.stdout)] == ["13333"]


@needs_mpi
def test_lines_begin_with_the_rank(tmp_path):
    script = tmp_path / "lines.py"
    script.write_text(
        "import os, sys\nprint('one\\ntwo')\nprint('-' * 76, file=sys.stderr)\nprint('mine', file=sys.stderr)"
    )
    code, out, err = run("-n", 2, "--prefix", script)
    assert code == 0
    assert sorted(out.splitlines()) == ["[0] one", "[0] two", "[1] one", "[1] two"]
    lines = sorted(line for line in err.splitlines() if line)
    assert lines == [f"[{rank}] {text}" for rank in (0, 1) for text in ("-" * 76, "mine")]


@needs_mpi
def test_no_line_is_lost(tmp_path):
    """Of two ranks that write more than pipes hold, and end without the end of a line."""
    script = tmp_path / "flood.py"
    script.write_text(
        "import os, sys\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    stream.write(('x' * 99 + '\\n') * 20_000)\n"
        "    stream.write('the last of ' + os.environ['RANK'])\n"
    )
    code, *streams = run("-n", 2, "--prefix", script)
    assert code == 0
    for stream in streams:
        lines = stream.splitlines()
        for rank in (0, 1):
            mine = [line[4:] for line in lines if line.startswith(f"[{rank}] ")]
            assert mine == ["x" * 99] * 20_000 + [f"the last of {rank}"]
        assert len(lines) == 2 * 20_001


@needs_mpi
def test_arrays_on_gpus_over_mpi():
    """The program for GPUs, which tests/gpu/test_nccl.py runs on real ones, on stand-ins; and staged.py."""
    code, out, err = run("-n", 2, "-m", "tests.distributed.programs.on_gpus", "standin")
    assert (code, out) == (0, "well\nwell\n"), err


@needs_mpi
def test_without_the_launcher(tmp_path):
    """Plain mpiexec: an exception still ends all ranks, with its traceback on stderr."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import mytorch.distributed as dist\ndist.init_process_group()\n"
        "if dist.get_rank() == 1: raise ValueError('plainly')\ndist.barrier()"
    )
    flags = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = [
        launcher_command.find_mpiexec(),
        *flags,
        "--map-by",
        ":OVERSUBSCRIBE",
        "-n",
        "2",
        sys.executable,
        script,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=surroundings(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and "ValueError: plainly" in done.stderr


@needs_mpi
def test_processes_that_no_mpi_started():
    before = segments()
    code = "import mytorch.distributed as dist; dist.init_process_group()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=surroundings(WORLD_SIZE="2", RANK="0"),
    )
    assert "2 processes were started, but MPI sees 1: no MPI started them" in done.stderr
    check_no_segments_left(before)


SRUN = """#!{python}
import json, os, sys
own = [a for a in sys.argv[1:] if a.startswith("--")]
rest = sys.argv[1 + len(own):]
json.dump(own, open({log!r}, "w"))
flags = ["--allow-run-as-root"] if os.geteuid() == 0 else []
mpiexec = {mpiexec!r}
os.execv(mpiexec, [mpiexec, *flags, "--map-by", ":OVERSUBSCRIBE", "-n", os.environ["SLURM_NTASKS"], *rest])
"""


@needs_mpi
def test_under_slurm(tmp_path):
    """It takes the number of tasks from Slurm, and srun as the launcher command, here a fake."""
    srun, log = tmp_path / "srun", tmp_path / "log"
    srun.write_text(SRUN.format(python=sys.executable, log=str(log), mpiexec=launcher_command.find_mpiexec()))
    srun.chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "1"}
    code, out, err = run(PROGRAM, PATH=f"{tmp_path}:{os.environ['PATH']}", **slurm)
    assert code == 0, err
    assert [seen["RANK"] for seen in seen_by(out)] == ["0", "1"]
    assert {"--ntasks=2", "--mpi=pmix", "--kill-on-bad-exit=1"} <= set(json.loads(log.read_text()))
    code, out, err = run(PROGRAM, PATH=os.path.dirname(sys.executable), **slurm)
    assert code == 2 and "srun is not on the PATH" in err


SLURM = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}


def test_a_task_of_slurm_is_not_a_launcher_of_tasks(monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert not launcher_command.under_slurm()
    monkeypatch.delenv("SLURM_STEP_ID")
    assert launcher_command.under_slurm() and launcher_command.slurm_tasks() == (4, 4)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    assert launcher_command.slurm_tasks() == (4, 2)


COUNTS = {
    "default": ([], 0, (1, 1)),
    "all GPUs": ([], 4, (4, 4)),
    "no GPUs": (["--cpu"], 4, (1, 1)),
    "some GPUs": (["--num_gpus", 2], 4, (2, 2)),
    "each machine": (["--nproc_per_node", 2, "--nnodes", 3], 2, (6, 2)),
    "processes": (["-n", 6, "--nnodes", 2], 0, (6, 3)),
    "more than GPUs": (["--num_gpus", 3], 2, "--num_gpus 3, but only 2 were found"),
    "not even": (["-n", 5, "--nnodes", 2], 0, "5 processes can't be divided evenly among 2 machines"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_how_many_ranks(name, monkeypatch):
    arguments, gpus, expected = COUNTS[name]
    monkeypatch.setattr(launch, "device_count", lambda: gpus)
    if isinstance(expected, str):
        with pytest.raises(launcher_command.LaunchError, match=expected):
            launch.count_ranks(options(*arguments))
    else:
        assert launch.count_ranks(options(*arguments)) == expected


WRONG = {
    "no script": (["-n", "2", "no_such.py"], "no such script: no_such.py"),
    "brackets": (["--nnodes", "2", "--master_addr", "[fd00::1]", PROGRAM], "without brackets, got [fd00::1]"),
    "link-local": (["--nnodes", "2", "--master_addr", "FE80::1%eth0", PROGRAM], "is a link-local address"),
    "loopback": (["--nnodes", "2", "--master_addr", "::1", PROGRAM], "--master_addr of machine 0, not ::1"),
    "timeout": (["--timeout", "0", PROGRAM], "positive number of seconds, got 0"),
    "restarts": (["--max_restarts", "-1", PROGRAM], "got -1"),
    "ranks": (["-n", "0", PROGRAM], "expected a positive number, got 0"),
    "both": (["-n", "2", "--num_gpus", "2", PROGRAM], "not allowed with"),
    "nothing": ([], "SCRIPT"),
    "no list of machines": (["-n", "4", "--nnodes", "2", PROGRAM], "2 machines: list them in a --hostfile"),
    "no address": (["--nnodes", "2", "--node_rank", "1", PROGRAM], "of machine 0, not 127.0.0.1"),
    "not machine 0": (
        ["--nnodes", "2", "--node_rank", "1", "--hostfile", "x", PROGRAM], "machine 0, which starts"),
    "hostfile": (["-n", "2", "--hostfile", "no_such_file", PROGRAM], "hostfile no_such_file doesn't exist"),
    "hostfile of one": (["--hostfile", "no_such_file", PROGRAM], "hostfile no_such_file doesn't exist"),
    "hostfile, a folder": (["--hostfile", "/", PROGRAM], "the hostfile / can't be read: "),
    "too many ranks": (["-n", "999999999999", PROGRAM], "999999999999 processes on each machine are too"),
    "too many on each": (["--num_gpus", "999999999999", PROGRAM], "999999999999 processes on each"),
    "too many machines": (
        ["--nnodes", "999999999999", "--master_addr", "127.0.0.2", PROGRAM], "at most 10000 machines"),
    "port": (["--master_port", "99999999", PROGRAM], "a port, 1 to 65535, got 99999999"),
    "no module": (["-m", ""], "no such script: "),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The launcher's work may be done in this process, if nothing is started: all stays as it is."""
    monkeypatch.setattr(job, "adopt_orphans", lambda: None)
    monkeypatch.setattr(job.subprocess, "Popen", None)
    with mock.patch.dict(os.environ, HOME=str(tmp_path)):
        for name in [name for name in os.environ if name.startswith("MYTORCH_")]:
            del os.environ[name]
        os.environ["MYTORCH_COMPILE"] = "wait"
        yield


@pytest.mark.parametrize("name", ["DIST", "START", "EXIT", "JOIN"])
@pytest.mark.parametrize("value", ["abc", "-1", "nan"])
def test_a_time_in_the_environment_that_is_none(name, value, here, capfd):
    variable = f"MYTORCH_{name}_TIMEOUT"
    with mock.patch.dict(os.environ, {variable: value}):
        assert launch.main(["--cpu", "-n", "2", str(PROGRAM)]) == 2
    assert f"environment variable {variable}: a timeout is a positive number" in capfd.readouterr().err


@pytest.mark.parametrize("port", ["0", "-5", "65536"])
def test_a_port_that_is_none(port, here, capfd):
    assert launch.main(["--cpu", "--master_port", port, str(PROGRAM)]) == 2
    assert f"a port, 1 to 65535, got {port}" in capfd.readouterr().err


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name, here, capfd):
    arguments, message = WRONG[name]
    if name in ("hostfile", "no list of machines") and why_no_mpi():
        pytest.skip(why_no_mpi())
    try:
        code = main(["launch", "--cpu", *map(str, arguments)])
    except SystemExit as end:  # argparse
        code = end.code
    out, err = capfd.readouterr()
    assert (code, out) == (2, "") and message in err


def test_several_machines(tmp_path, monkeypatch):
    """Ranks elsewhere inherit nothing, so what they need is named; shared memory settings are left alone."""
    hosts = tmp_path / "hosts"
    hosts.write_text("a slots=2\nb slots=2\n")
    monkeypatch.setattr(launcher_command, "is_available", lambda: True)
    monkeypatch.setattr(launcher_command, "find_mpiexec", lambda: "mpiexec")
    monkeypatch.setattr(launcher_command, "is_open_mpi", lambda path: True)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    opts = options("-n", 4, "--nnodes", 2, "--hostfile", hosts, "--timeout", 9)
    environment = launcher_command.rank_environment(opts, 4, 2, tmp_path)
    command = launcher_command.command(opts, 4, environment)
    text = " ".join(command)
    assert text.startswith("mpiexec --bind-to none --map-by ppr:2:node:OVERSUBSCRIBE")
    program = f"{sys.executable} -u {start.FILE} mytorch.distributed.run_script script.py"
    assert f"--hostfile {hosts} -n 4 {program}" in text
    for name in (
        "NCCL_DEBUG",
        "MASTER_ADDR",
        "MYTORCH_DIST_TIMEOUT",
        "MYTORCH_RUN_FOLDER",
        "OMP_NUM_THREADS",
    ):
        assert f"-x {name}" in text and name in environment
    assert not {"OMPI_MCA_pml", "OMPI_MCA_btl", "PRTE_MCA_plm_ssh_agent"} & (
        set(environment) - set(os.environ)
    )
    monkeypatch.setattr(launcher_command, "is_open_mpi", lambda path: False)
    text = " ".join(launcher_command.command(opts, 4, environment))
    assert text.startswith(f"mpiexec -f {hosts} -bind-to none -n 4 ")


@pytest.fixture
def runs(monkeypatch):
    """What `run_job` does when each start of the ranks ends with a code, or a signal: `runs(codes)`."""

    def of(codes, max_restarts, per_node=False, signal_at=None):
        seen, codes = [], list(codes)

        class Meeting:
            def __init__(self, options, local_ranks):
                seen.append(("meet", local_ranks))

            def wait_for_nodes(self, caught):
                seen.append(("wait", caught()))

            def close(self, code):
                seen.append(("close", code))

        def run_once(options, ranks, local_ranks, rendezvous, signals):
            seen.append((os.environ["MYTORCH_RESTART_COUNT"], ranks, local_ranks, rendezvous is not None))
            signals.caught = 2 if signal_at == len(codes) else 0
            return codes.pop(0)

        monkeypatch.setenv("MYTORCH_RESTART_COUNT", "")
        monkeypatch.setattr(job, "adopt_orphans", lambda: None)
        monkeypatch.setattr(job, "Rendezvous", Meeting)
        monkeypatch.setattr(launcher_command, "is_launched_per_node", lambda options: per_node)
        monkeypatch.setattr(job, "_run_once", run_once)
        code = job.run_job(options("--max_restarts", max_restarts), 4, 2)
        return code, seen

    return of


def starts(count, together=False):
    return [(str(attempt), 4, 2, together) for attempt in range(count)]


def test_a_job_starts_again_until_it_succeeds_or_a_signal_comes(runs, capfd):
    assert runs([3, 5, 0], 4) == (0, starts(3))
    again = [f"mytorchrun: restart {i} of 4 after exit code {code}" for i, code in ((1, 3), (2, 5))]
    assert capfd.readouterr().err.splitlines() == again
    assert runs([3, 5], 1) == (5, starts(2))  # nothing says that it starts a third time
    assert capfd.readouterr().err == "mytorchrun: restart 1 of 1 after exit code 3\n"
    assert runs([130, 0], 3, signal_at=2) == (130, starts(1)) and capfd.readouterr().err == ""


def test_all_nodes_come_before_each_start(runs):
    first, second = starts(2, together=True)
    expected = [("meet", 2), ("wait", 0), first, ("wait", 0), second, ("close", 0)]
    assert runs([3, 0], 2, per_node=True) == (0, expected)


def test_a_signal_is_forwarded_if_all_ranks_have_started(monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    running = job.Job.__new__(job.Job)
    running._process, running._grace = SimpleNamespace(poll=lambda: 0), 5.0
    signals = SimpleNamespace(caught=15, is_repeated=False)
    for targets, expected in ((None, []), ([], []), ([11, 12], [(11, 15), (12, 15)])):
        running._signal_targets = lambda number, targets=targets: targets
        running._forward_signal(signals, lambda: None)
        assert killed == expected


def test_what_a_daemon_gets_of_the_environment():
    ours = {"MYTORCH_X": "1", "MASTER_ADDR": "a", "OPAL_PREFIX": "/mpi", "PMIX_PREFIX": "/pmix"}
    others = {"MYTORCH_RUN_FOLDER": "/tmp/x", "MYTORCH_NODE_RANK": "0", "PATH": "/bin", "OPAL_X": ""}
    assert remote_shell.daemon_environment({**ours, **others}) == ours
    words = ["(", "PATH=/mpi/bin:$PATH", ";", "/mpi/bin/prted", "--daemonize", "--x", "'a b'", "--y", "z)"]
    command = ["/mpi/bin/prted", "--x", "a b", "--y", "z"]
    assert remote_shell.daemon_command(words) == command


def test_children_that_were_adopted_are_reaped_and_the_command_is_not(monkeypatch):
    command, other = (subprocess.Popen([sys.executable, "-S", "-c", ""]) for _ in range(2))
    for process in (command, other):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(processes, "_children", lambda: {os.getpid(): [command.pid, other.pid]})
    processes._reap(command.pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(other.pid, os.WNOHANG)
    assert command.wait(10) == 0 and command.returncode == 0
    other.wait(10)
