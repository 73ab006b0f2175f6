"""One job on two machines, by ssh and by hand, and what happens when the link between them is cut.

The bound on the time of a failure is as in test_failures: `max(timeout, 5 s)`, plus what starting takes.
"""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from .hosts import Ssh, pair, why_no_hosts
from .launched import PROGRAMS, finish, is_alive, needs_mpi, pids, wait_for
from .test_failures import LATER, START, TIMEOUT, cause_in

pytestmark = [needs_mpi, pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts())]
BYTES = 8 << 20
LIMIT = START + max(TIMEOUT, 5)
WHOLE = 2 * START + LIMIT  # for a job to begin and to end
IPV6 = "fd77::"


@pytest.fixture
def hosts(request):
    network = getattr(request, "param", "10.77.0.")
    try:
        made = pair(network)
    except subprocess.CalledProcessError as error:
        if network == IPV6:
            pytest.skip(f"no IPv6: {error.stderr}")
        raise
    yield made
    for host in made:
        host.close()


def by_ssh(hosts, folder, *arguments, timeout=LATER, **variables):
    """A job that machine 0 starts on both; its launcher."""
    listed = folder / "hosts.txt"
    listed.write_text("".join(f"{host.address} slots=1\n" for host in hosts))
    variables["PRTE_MCA_plm_ssh_agent"] = str(Ssh(hosts, folder).program)
    options = ("-n", 2, "--nnodes", 2, "--hostfile", listed, "--timeout", timeout)
    return [hosts[0].launch(*options, *arguments, **variables)]


def by_hand(hosts, folder, *arguments, **variables):
    """A job that is launched on each; the launchers, machine 1's first to run."""
    return [member(hosts, rank, *arguments, **variables) for rank in (1, 0)][::-1]


def member(hosts, rank, *arguments, timeout=LATER, **variables):
    """The launcher of one machine."""
    variables = {"MYTORCH_JOIN_TIMEOUT": str(2 * START), "MINE": str(rank), **variables}
    options = ["--nnodes", 2, "--node_rank", rank, "--master_addr", hosts[0].address, "--timeout", timeout]
    return hosts[rank].launch("-n", 2, *options, *arguments, **variables)


WAYS = {"ssh": by_ssh, "by hand": by_hand}


def check_nothing_left(hosts):
    with contextlib.suppress(pytest.fail.Exception):
        wait_for(lambda: not any(host.processes() for host in hosts), START)
    assert [(list(host.processes().values()), host.files()) for host in hosts] == [([], [])] * 2


@pytest.mark.parametrize(
    "way, hosts",
    [("ssh", "10.77.0."), ("by hand", "10.77.0."), ("by hand", IPV6)],
    ids=["ssh", "by hand", "by hand, IPv6"],
    indirect=["hosts"],
)
def test_the_bytes_cross_the_cable(way, hosts, tmp_path):
    before = [host.received() for host in hosts]
    jobs = WAYS[way](hosts, tmp_path, PROGRAMS / "across.py", BYTES)
    done = [finish(job, WHOLE) for job in jobs]
    assert [code for code, _, _ in done] == [0] * len(jobs), done
    mine = ["0", "1"] if way == "by hand" else ["None"] * 2  # each machine's own environment
    assert sorted(done[0][1].splitlines()) == [f"host{k} {k} 0 {mine[k]} right" for k in (0, 1)]
    for host, count in zip(hosts, before, strict=True):
        assert host.received() - count > BYTES
    check_nothing_left(hosts)


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_the_link_is_cut(way, end, hosts, tmp_path):
    jobs = WAYS[way](hosts, tmp_path, PROGRAMS / "failing.py", "for_ever", tmp_path, timeout=TIMEOUT)
    wait_for(lambda: len(pids(tmp_path)) == 2, 2 * START)
    hosts[end].cut()
    for job in jobs:
        code, _, err = finish(job, LIMIT)
        assert code != 0
        assert re.search(r"(rank|machine) \d .*, (timeout|connection):", cause_in(err))
        assert "all_reduce((8,), float32) #" in cause_in(err)
    wait_for(lambda: not any(map(is_alive, pids(tmp_path))), LIMIT)
    check_nothing_left(hosts)


# How rank 1, on machine 1, goes wrong: the exit code of both launchers, and what machine 0's root cause says.
FAILURES = {
    "exception": (1, "rank 1 on host1 .*, exception:\nValueError: boom on rank 1"),
    "kill": (137, r"rank 1 on host1 .*, signal:\nkilled by SIGKILL \(signal 9\)"),
    "os_exit_3": (3, "rank 1 ended with exit code 3"),
    "early_exit": (1, r"rank 1 ended, as with sys.exit\(0\)"),
    "other_shape": (1, r"don't agree at operation #2.*\n.*all_reduce\(\(8,\)(.*\n)+.*all_reduce\(\(5,\)"),
    "stop": (1, f"rank 0 on host0 .*, timeout:\n.*all_reduce #2 of group WORLD not over after {TIMEOUT} s"),
}


@pytest.mark.parametrize(
    "how, way", [*((how, "by hand") for how in FAILURES), ("exception", "ssh"), ("kill", "ssh")]
)
def test_a_rank_goes_wrong_on_machine_1(how, way, hosts, tmp_path):
    expected, says = FAILURES[how]
    timeout = TIMEOUT if how == "stop" else LATER
    jobs = WAYS[way](hosts, tmp_path, PROGRAMS / "failing.py", how, tmp_path, timeout=timeout)
    ends = [finish(job, WHOLE) for job in jobs]
    assert re.search(says, cause_in(ends[0][2])), ends[0][2]
    assert [code for code, _, _ in ends] == [expected] * len(ends)
    for _, _, err in ends[1:]:
        assert f"failed with exit code {expected}: machine 0 (10.77.0.1) says why" in err
        assert "root cause" not in err
    check_nothing_left(hosts)


# Which launcher gets which signal: the exit code of each, and what each says.
GOT = {
    "machine 1 is killed": (1, signal.SIGKILL, [1, -9], ["machine 1 .*, connection:\n.*lost: it closed", ""]),
    "machine 0 is killed": (0, signal.SIGKILL, [-9, 1], ["", "machine 0 .*, connection:\n.*lost: it closed"]),
    "Ctrl-C on machine 1": (1, signal.SIGINT, [130, 130], ["machine 1 .*, signal:\n.*got SIGINT", ""]),
    "Ctrl-C on machine 0": (0, signal.SIGINT, [130, 130], ["got SIGINT: all ranks were ended", "machine 0"]),
}


@pytest.mark.parametrize("name", GOT)
def test_a_launcher_gets_a_signal(name, hosts, tmp_path):
    which, number, codes, says = GOT[name]
    jobs = by_hand(hosts, tmp_path, PROGRAMS / "failing.py", "for_ever", tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == 2, 2 * START)
    jobs[which].send_signal(number)
    ends = [finish(job, LIMIT) for job in jobs]
    assert [code for code, _, _ in ends] == codes, ends
    for (_, _, err), text in zip(ends, says, strict=True):
        assert re.search(text, err), err
    wait_for(lambda: not any(host.processes() for host in hosts), START)


@pytest.mark.parametrize("way", WAYS)
def test_open_mpis_daemon_is_killed(way, hosts, tmp_path):
    jobs = WAYS[way](hosts, tmp_path, PROGRAMS / "failing.py", "for_ever", tmp_path)
    wait_for(lambda: len(pids(tmp_path)) == 2, 2 * START)
    rank = Path(f"/proc/{pids(tmp_path)[1]}/stat").read_text()
    os.kill(int(rank.rpartition(")")[2].split()[1]), signal.SIGKILL)
    ends = [finish(job, LIMIT) for job in jobs]
    assert all(code > 0 for code, _, _ in ends)
    assert re.search("machine host1, connection:\nOpen MPI lost its daemon there", cause_in(ends[0][2]))
    check_nothing_left(hosts)


def test_it_starts_again_on_both(hosts, tmp_path):
    script = tmp_path / "second.py"
    script.write_text(
        "import os\nn = os.environ['MYTORCH_RESTART_COUNT']\n"
        "assert n == '1' or os.environ['RANK'] == '0', 'try ' + n\nprint('at last')"
    )
    jobs = by_hand(hosts, tmp_path, "--max_restarts", 1, script)
    ends = [finish(job, WHOLE) for job in jobs]
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert ends[0][1].count("at last") >= 2 and "AssertionError: try 0" in cause_in(ends[0][2])
    check_nothing_left(hosts)


def test_a_machine_that_does_not_belong(hosts, tmp_path):
    """It is told why, and exits; the job runs all the same, once the right one has come."""
    script = PROGRAMS / "across.py"
    first = member(hosts, 0, script, 4)
    code, _, err = finish(member(hosts, 1, PROGRAMS / "failing.py"), WHOLE)
    assert code == 2 and re.search("machine 0 refused this one: script is '.*failing.py' there and", err)
    second = member(hosts, 1, script, 4)
    for job in (first, second):
        code, _, err = finish(job, WHOLE)
        assert code == 0, err
    check_nothing_left(hosts)
