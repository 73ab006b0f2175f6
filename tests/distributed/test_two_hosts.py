"""One job on two hosts, launched by ssh or on each host, and what happens when the link between them is cut.

A job fails in several ways, one after another, since `--max_restarts` starts it again; see test_failures.py.
"""

import contextlib
import functools
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .hosts import Ssh, pair, why_no_hosts
from .launched import PROGRAMS, finish, is_alive, needs_mpi, pids, wait_for
from .test_failures import START, TIMEOUT, causes_in

pytestmark = [needs_mpi, pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts())]
BYTES = 8 << 20
IPV4, IPV6 = "10.77.0.", "fd77::"
LONG = 300  # the timeout of collectives, where no test waits for it


@contextlib.contextmanager
def two_hosts(network=IPV4):
    made = pair(network)
    try:
        yield made
    finally:
        for host in made:
            host.close()


def with_hosts(check):
    @functools.wraps(check)
    def run(*args, **options):
        with two_hosts() as hosts:
            check(hosts, *args, **options)

    return run


def by_ssh(hosts, folder, *arguments, timeout=LONG):
    """A job that node 0 starts on both; its launcher."""
    hostfile = folder / "hosts.txt"
    hostfile.write_text("".join(f"{host.address} slots=1\n" for host in hosts))
    agent = {"PRTE_MCA_plm_ssh_agent": str(Ssh(hosts, folder).program)}
    options = ("-n", 2, "--nnodes", 2, "--hostfile", hostfile, "--timeout", timeout)
    return [hosts[0].launch(*options, *arguments, **agent)]


def on_each(hosts, folder, *arguments, timeout=LONG):
    """A job that is launched on each host; the launchers, that of node 1 starts first."""
    return [node(hosts, rank, *arguments, timeout=timeout) for rank in (1, 0)][::-1]


def node(hosts, rank, *arguments, timeout=LONG, **variables):
    """The launcher of one node."""
    variables |= {"MYTORCH_JOIN_TIMEOUT": str(2 * START), "MINE": str(rank)}
    options = ["--nnodes", 2, "--node_rank", rank, "--master_addr", hosts[0].address, "--timeout", timeout]
    return hosts[rank].launch("-n", 2, *options, *arguments, **variables)


WAYS = {"ssh": by_ssh, "each": on_each}


def check_nothing_left(hosts):
    with contextlib.suppress(pytest.fail.Exception):
        wait_for(lambda: not any(host.processes() for host in hosts), START)
    assert [(list(host.processes().values()), host.files()) for host in hosts] == [([], [])] * 2


def wait_for_ranks(folder, attempt=0):
    wait_for(lambda: len(pids(folder / str(attempt))) == 2, 2 * START)


def kill_daemon_of(pid):
    """Kills Open MPI's daemon, the parent of a rank."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


def steps(folder, *ways):
    """A script that runs failing.py in these ways, one at each start, and at last across.py."""
    script = folder / "steps.py"
    script.write_text(
        "import os, runpy, sys\n"
        f"last = os.environ['MYTORCH_RESTART_COUNT'] == '{len(ways)}'\n"
        f"sys.argv[1:] = ['{BYTES}'] if last else [{str(folder)!r}, *{list(ways)!r}]\n"
        f"runpy.run_path(f'{PROGRAMS}/' + ('across.py' if last else 'failing.py'), run_name='__main__')\n"
    )
    return "--max_restarts", len(ways), script


def check_across(out, variables):
    """across.py ran on both hosts, each with its own environment."""
    assert sorted(out.splitlines()) == [f"host{k} {k} 0 {variables[k]} right" for k in (0, 1)]


RAISED = "rank 1 on host1 .*, exception:\nValueError: boom on rank 1"
# How rank 1, on node 1, fails: the exit code, and a pattern in node 0's root cause.
FAILURES = {
    "leave_a_child": (1, RAISED),
    "kill": (137, r"rank 1 on host1 .*, signal:\nkilled by SIGKILL \(signal 9\)"),
    "stop": (
        1,
        f"rank 0 on host0 .*, timeout:\n.*all_reduce #3 of group WORLD not complete after {TIMEOUT} s",
    ),
}


def a_job_that_is_launched_on_each(tmp_path):
    """Nodes that don't belong to it are refused; then rank 1 fails in each way; at last all is well."""
    secret = {"MYTORCH_JOB_SECRET": "ours"}
    with contextlib.ExitStack() as stack:
        try:  # all other tests use IPv4
            hosts = stack.enter_context(two_hosts(IPV6))
        except subprocess.CalledProcessError:
            hosts = stack.enter_context(two_hosts())
        before = [host.received() for host in hosts]
        arguments = steps(tmp_path, *FAILURES)
        first = node(hosts, 0, *arguments, **secret)
        code, _, err = finish(node(hosts, 1, *arguments), 2 * START)
        assert code == 2 and "machine 0 refused this one: it has no MYTORCH_JOB_SECRET" in err
        code, _, err = finish(node(hosts, 1, PROGRAMS / "failing.py", **secret), 2 * START)
        assert code == 2 and re.search("machine 0 refused this one: script is '.*failing.py', and", err)
        second = node(hosts, 1, *arguments, **secret)
        ends = [finish(job, START * (2 + len(FAILURES))) for job in (first, second)]
        assert [code for code, _, _ in ends] == [0, 0], ends
        check_across(ends[0][1], ["0", "1"])
        for cause, way in zip(causes_in(ends[0][2]), FAILURES, strict=True):
            assert re.search(FAILURES[way][1], cause), cause
        codes = re.findall(r"restart \d of \d after exit code (\d+)", ends[0][2])
        assert [int(code) for code in codes] == [code for code, _ in FAILURES.values()]
        assert "root cause" not in ends[1][2]
        for host, count in zip(hosts, before, strict=True):
            assert host.received() - count > BYTES
        check_nothing_left(hosts)


@with_hosts
def a_job_by_ssh(hosts, tmp_path):
    """An exception on node 1; then Open MPI's daemon there is killed; then all is well."""
    before = [host.received() for host in hosts]
    (job,) = by_ssh(hosts, tmp_path, *steps(tmp_path, "exception", "forever"))
    wait_for_ranks(tmp_path, 1)
    kill_daemon_of(pids(tmp_path / "1")[1])
    code, out, err = finish(job, 3 * START)
    assert code == 0, err
    check_across(out, [None, None])
    raised, lost = causes_in(err)
    assert re.search(RAISED, raised)
    assert "machine host1, connection:\nOpen MPI lost its daemon" in lost
    for host, count in zip(hosts, before, strict=True):
        assert host.received() - count > BYTES
    check_nothing_left(hosts)


def the_link_is_cut(tmp_path):
    """Of two jobs at once, one by ssh, one launched on each; each has two hosts of its own."""
    with contextlib.ExitStack() as stack:
        jobs = {}
        for way, launch in WAYS.items():
            hosts, folder = stack.enter_context(two_hosts()), tmp_path / way
            folder.mkdir()
            jobs[way] = hosts, launch(hosts, folder, PROGRAMS / "failing.py", folder, "cut", timeout=TIMEOUT)
        for end, (way, (hosts, _)) in enumerate(jobs.items()):
            wait_for_ranks(tmp_path / way)
            hosts[end].cut()
        for way, (hosts, launchers) in jobs.items():
            for job in launchers:
                code, _, err = finish(job, START)
                (cause,) = causes_in(err)
                assert code != 0
                assert re.search(r"(rank|machine) \d .*, (timeout|connection):", cause)
                assert "all_reduce((8,), float32) #" in cause
            wait_for(lambda way=way: not any(map(is_alive, pids(tmp_path / way))), START)
            check_nothing_left(hosts)


@with_hosts
def node_1_is_lost_and_comes_again(hosts, tmp_path):
    """Its daemon is killed; then its launcher; a new one takes its place; that gets Ctrl-C."""
    arguments = ("--max_restarts", 2, PROGRAMS / "failing.py", tmp_path, *["forever"] * 3)
    first, second = on_each(hosts, tmp_path, *arguments)
    wait_for_ranks(tmp_path, 0)
    kill_daemon_of(pids(tmp_path / "0")[1])
    wait_for_ranks(tmp_path, 1)
    second.kill()
    assert finish(second, START)[0] == -9
    second = node(hosts, 1, *arguments)
    wait_for_ranks(tmp_path, 2)
    second.send_signal(signal.SIGINT)
    (code, _, err), (other_code, _, _) = [finish(job, START) for job in (first, second)]
    assert (code, other_code) == (130, 130), err
    daemon, killed, interrupted = causes_in(err)
    assert "machine host1, connection:\nOpen MPI lost its daemon" in daemon
    assert re.search("machine 1 .*, connection:\n.*lost: (it closed|the connection broke)", killed)
    assert re.search("machine 1 .*, signal:\n.*got SIGINT", interrupted)
    check_nothing_left(hosts)


@with_hosts
def node_0_gets_a_signal(hosts, tmp_path, number):
    codes, messages = SIGNALS[number]
    jobs = on_each(hosts, tmp_path, PROGRAMS / "failing.py", tmp_path, "forever")
    wait_for_ranks(tmp_path)
    jobs[0].send_signal(number)
    ends = [finish(job, START) for job in jobs]
    assert [code for code, _, _ in ends] == codes, ends
    for (_, _, err), message in zip(ends, messages, strict=True):
        assert re.search(message, err), err
    wait_for(lambda: not any(host.processes() for host in hosts), START)


SIGNALS = {  # that node 0 gets: the exit codes, and what each node says
    signal.SIGKILL: ([-9, 1], ["", "machine 0 .*, connection:\n.*lost: (it closed|the connection broke)"]),
    signal.SIGINT: ([130, 130], ["got SIGINT: all ranks were ended", "machine 0"]),
}


def test_jobs(tmp_path):
    """They mostly wait, so they run side by side, each on two hosts of its own."""
    checks = [a_job_that_is_launched_on_each, a_job_by_ssh, the_link_is_cut, node_1_is_lost_and_comes_again]
    checks += [functools.partial(node_0_gets_a_signal, number=number) for number in SIGNALS]
    with ThreadPoolExecutor(3) as pool:
        done = []
        for number, check in enumerate(checks):
            folder = tmp_path / str(number)
            folder.mkdir()
            done.append(pool.submit(check, folder))
    for future in done:
        future.result()
