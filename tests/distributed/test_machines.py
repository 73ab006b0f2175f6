"""A job that is launched on each node: which nodes belong to it, and how the launchers communicate."""

import argparse
import contextlib
import itertools
import json
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mytorch.distributed import handshake, launcher_command, node_agent, node_connection, rendezvous
from mytorch.distributed.processes import SignalCatcher

from .launched import PROGRAMS, finish, launch, needs_mpi, start, wait_for
from .test_failures import cause_in
from .test_launch import options

SCRIPT = PROGRAMS / "print_environment.py"


def test_what_machine_0_starts(tmp_path, monkeypatch):
    """Each has its own environment; remote_shell.py writes the daemon's command to the run's folder."""
    monkeypatch.setattr(launcher_command, "is_available", lambda: True)
    monkeypatch.setattr(launcher_command, "find_mpiexec", lambda: "mpiexec")
    monkeypatch.setattr(launcher_command, "is_open_mpi", lambda path: True)
    monkeypatch.setenv("MYTORCH_NODE_RANK", "0")
    opts = options("-n", 4, "--nnodes", 2, "--master_addr", "a")
    environment = launcher_command.rank_environment(opts, 4, 2, tmp_path)
    text = " ".join(launcher_command.command(opts, 4, environment, Path("/the/hosts")))
    assert text.startswith("mpiexec --bind-to none --map-by ppr:2:node:OVERSUBSCRIBE")
    assert "--hostfile /the/hosts -n 4 " in text and " -x " not in text
    words = ["PRTE_PREFIX=/o;export PRTE_PREFIX;/o/bin/prted", "--daemonize", "--prtemca", "a", '"b c;d"']
    for shell in (words, ["(", "test ! -r ./.profile || . ./.profile;", *words, ")"]):  # bash, sh
        calls = environment["PRTE_MCA_plm_ssh_agent"].split()
        subprocess.run([*calls, "1.2.3.5", *shell], env={**environment, "PRTE_PREFIX": "/o"}, check=True)
        (left,) = tmp_path.iterdir()
        content = json.loads(left.read_text())
        assert left.name == "daemon-1.2.3.5.json" and content["run"] == [
            "/o/bin/prted",
            "--prtemca",
            "a",
            "b c;d",
        ]
        assert content["environment"]["MASTER_ADDR"] == "a" and content["environment"]["PRTE_PREFIX"] == "/o"
        assert not {"PATH", "MYTORCH_NODE_RANK", "MYTORCH_RUN_FOLDER"} & set(content["environment"])
        left.unlink()


@pytest.fixture
def port():
    """A free port, reserved while the test lasts."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the launcher may listen on it
        holder.bind(("", 0))
        yield holder.getsockname()[1]


def ends(limit=10.0):
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return tuple(node_connection.NodeConnection(s, limit) for s in (near, server.accept()[0]))


def come(end, count=1):
    """The next messages that come."""
    found = []
    wait_for(lambda: found.extend(end.receive()) or len(found) >= count)
    return found


def test_messages_cross_a_connection():
    near, far = ends()
    text = "ü\n" * 1000
    near.send(a=text, b=[1, 2])
    near.send(c=None)
    assert come(far, 2) == [{"a": text, "b": [1, 2]}, {"c": None}]
    assert near.receive() == [] and near.remote_address == far.local_address == "127.0.0.1"


def test_invalid_messages_count_as_heartbeats():
    near, far = ends()
    deep = b'{"a": ' + b"[" * 9 + b"]" * 9 + b"}\n" + b"[" * 100_000 + b"\n"
    near._socket.sendall(b"[1]\nGET / HTTP/1.0\r\n\r\n\xff\n{}\n" + deep)
    near.send(at="last")
    assert come(far) == [{"at": "last"}]


def lost(end):
    """Why the connection is lost, once it is."""
    found = []

    def look():
        try:
            end.receive()
        except node_connection.ConnectionLost as error:
            found.append(str(error))
        return bool(found)

    wait_for(look)
    return found[0]


def test_the_last_message_comes_before_the_end():
    near, far = ends()
    near.send(last="words")
    near.close()
    assert come(far) == [{"last": "words"}]
    assert "closed the connection" in lost(far) or "broke" in lost(far)


def test_a_message_that_is_too_long_ends_the_connection():
    near, far = ends()
    near._socket.setblocking(True)
    sender = threading.Thread(target=lambda: near._socket.sendall(b"x" * (2 << 20)), daemon=True)
    sender.start()
    assert lost(far) == "it sent a message of more than 1048576 bytes"
    far.close()


def test_silence_is_noticed():
    near, _far = ends(limit=0.5)
    assert lost(near) == "no heartbeat for 0.5 s"


def test_heartbeats_keep_a_connection(monkeypatch):
    assert node_connection.HEARTBEAT_SECONDS <= rendezvous.SHORTEST_LIMIT / 3  # one or two may come late
    monkeypatch.setattr(node_connection, "HEARTBEAT_SECONDS", 0.3)
    near, far = ends(limit=1.0)
    rounds = [0, 0]

    def both():
        for i, end in enumerate((near, far)):
            rounds[i] += not end.receive()
        return far._silent > 0 and rounds[1] > 80

    wait_for(both)  # for longer than the limit, over many naps of wait_for


def can_reach(address):
    """Does this machine have such an address?"""
    try:
        with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET):
            return True
    except OSError:
        return False


class Waiting:
    """Machine 0 of a job, in a thread of this process."""

    def __init__(self, port, nnodes=2):
        self.options = options("-n", nnodes, "--nnodes", nnodes, "--master_port", port)
        self.rendezvous, self.over = rendezvous.Rendezvous(self.options, 1), False
        self.thread = threading.Thread(target=self.rendezvous.wait_for_nodes, args=(lambda: self.over,))
        self.thread.start()

    def hello(self, at="127.0.0.1", **changes):
        """Connects as a node; returns the connection and the answer."""
        end = node_connection.NodeConnection(socket.create_connection((at, self.options.master_port)), 10.0)
        settings = {**rendezvous.job_settings(self.options, 1), **changes.pop("settings", {})}
        end.send(**{"node_rank": 1, "host": "b", "settings": settings, **changes})
        return end, come(end)[0]

    def end(self):
        self.over = True
        self.thread.join()
        for guest in self.rendezvous._nodes.values():
            guest.close()
        self.rendezvous._nodes.clear()
        self.rendezvous.close(0)


@pytest.fixture
def waiting(monkeypatch, port):
    monkeypatch.setenv("MYTORCH_JOIN_TIMEOUT", "60")
    made = Waiting(port, nnodes=3)
    yield made
    made.end()


# How a node differs from what machine 0 expects: why it is refused.
REFUSED = {
    "nnodes": ({"settings": {"--nnodes": 2}}, "--nnodes is 2, and 3 on machine 0"),
    "processes": ({"settings": {"processes on each machine": 4}}, "machine is 4, and 1 on machine 0"),
    "script": (
        {"settings": {"script": "a.py --b"}},
        "script is 'a.py --b', and 'script.py' on machine 0",
    ),
    "Python": ({"settings": {"Python": "/x"}}, f"Python is '/x', and '{sys.executable}' on machine 0"),
    "node_rank 0": ({"node_rank": 0}, "its --node_rank 0 is not in 1 … 2"),
    "node_rank 3": ({"node_rank": 3}, "its --node_rank 3 is not in 1 … 2"),
    "node_rank x": ({"node_rank": "x"}, "its --node_rank 'x' is not in 1 … 2"),
    "name": ({"host": socket.gethostname()}, f"has the name {socket.gethostname()}, too"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_machines_are_refused(name, waiting, capfd):
    changes, why = REFUSED[name]
    _, answer = waiting.hello(**changes)
    assert why in answer["refused"]
    assert why in capfd.readouterr().err


def test_each_machine_comes_once(waiting):
    first, answer = waiting.hello()
    assert answer == {"welcome": True, "limit": 60.0}
    _, answer = waiting.hello(host="c")
    assert answer["refused"] == "machine 1 is connected already (b, 127.0.0.1): --node_rank must be unique"
    first.close()
    again = []
    wait_for(lambda: again.append(waiting.hello()[1]) or "welcome" in again[-1])


@pytest.mark.parametrize(
    "others", [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::1", "127.0.0.1")], ids=str
)
def test_machines_come_by_ipv4_and_ipv6(others, waiting, tmp_path):
    if not all(map(can_reach, others)):
        pytest.skip("no IPv6 here")
    for rank, address in enumerate(others, 1):
        end, answer = waiting.hello(at=address, node_rank=rank, host=f"h{rank}")
        assert "welcome" in answer and end.local_address == end.remote_address == address
    waiting.thread.join()  # all are there
    lines = waiting.rendezvous.write_hostfile(tmp_path).read_text().splitlines()
    assert lines == [f"{address} slots=1" for address in (others[0], *others)]


def test_a_stranger_at_the_port(waiting):
    stranger = socket.create_connection(("127.0.0.1", waiting.options.master_port))
    stranger.sendall(b'GET / HTTP/1.0\r\n\r\n{"a": 1}\n')
    with stranger.makefile() as answer:
        assert not answer.read().replace("{}\n", "")  # heartbeats, no answer, and the end
    connection = socket.create_connection(("127.0.0.1", waiting.options.master_port))
    liar = node_connection.NodeConnection(connection, 10.0)
    liar.send(node_rank=[1], settings=3)
    assert "--nnodes is None, and" in come(liar)[0]["refused"]
    _, answer = waiting.hello()
    assert "welcome" in answer


def raw(waiting):
    """A connection to machine 0 that sends what it likes."""
    connection = socket.create_connection(("127.0.0.1", waiting.options.master_port))
    return node_connection.NodeConnection(connection, 60.0)


@pytest.fixture
def names(monkeypatch):
    """Every launcher of this process seems to be on a host of its own."""
    monkeypatch.setattr(socket, "gethostname", map("host{}".format, itertools.count()).__next__)


NASTY = {
    "deeply nested": b"[" * 200_000 + b"\n",
    "nested settings": b'{"node_rank": 1, "settings": {"script": ' + b"[" * 900 + b"]" * 900 + b"}}\n",
    "half a character": b'{"node_rank": "\\ud800", "settings": {"script": "\\ud800"}, "proof": "\\ud800"}\n',
    "half a challenge": b'{"challenge": "\\ud800"}\n{"node_rank": 1}\n',
    "long": b'{"node_rank": "' + b"x" * 900_000 + b'"}\n',
    "without an end": b"x" * 1_000_000,
    "nothing": b"",
}


@pytest.mark.parametrize("secret", ["", "ours"])
@pytest.mark.parametrize("name", NASTY)
def test_strangers_do_not_keep_machines_out(name, secret, monkeypatch, port, names):
    """Many of them, which stay connected; a machine that comes after them is admitted."""
    monkeypatch.setenv(handshake.SECRET_VARIABLE, secret)
    monkeypatch.setenv("MYTORCH_JOIN_TIMEOUT", "600")
    monkeypatch.setattr(handshake, "_MOST_GUESTS", 4)
    waiting = Waiting(port)
    try:
        strangers = [raw(waiting) for _ in range(6)]
        for stranger in strangers:
            stranger._socket.settimeout(10)
            with contextlib.suppress(OSError):  # it may be dropped before it has sent all
                stranger._socket.sendall(NASTY[name])
        guest = raw(waiting)
        agent = Agent(guest, waiting.options)
        agent.thread.join()
        assert not agent.error and waiting.rendezvous._nodes
        assert len(waiting.rendezvous._reception._guests) <= 4
    finally:
        waiting.end()


class Agent:
    """Machine 1, in a thread of this process, up to the end of the handshake; `error` says how it failed."""

    def __init__(self, connection, opts, secret=None):
        self.error, options = "", argparse.Namespace(**{**vars(opts), "node_rank": 1})
        self.agent = node_agent._NodeAgent(connection, options, 2, 1, SignalCatcher())
        if secret is not None:
            self.agent._prover = handshake.Prover("node", secret)
        self.thread = threading.Thread(target=self._introduce)
        self.thread.start()

    def _introduce(self):
        try:
            self.agent._introduce()
        except (launcher_command.LaunchError, node_connection.ConnectionLost) as error:
            self.error = str(error)


# The secrets of machines 0 and 1, and why machine 1 is refused.
SECRETS = {
    "the same": ("ours", b"ours", ""),
    "none": ("", b"", ""),
    "another": ("ours", b"mine", "it has another MYTORCH_JOB_SECRET: it must be the same on all machines"),
    "missing": ("ours", b"", "it has no MYTORCH_JOB_SECRET: it must be the same on all machines"),
    "missing on machine 0": ("", b"mine", "it has a MYTORCH_JOB_SECRET, and machine 0 has none"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_must_be_the_same(name, monkeypatch, port, capfd, names):
    first, second, why = SECRETS[name]
    monkeypatch.setenv(handshake.SECRET_VARIABLE, first)
    monkeypatch.setenv("MYTORCH_JOIN_TIMEOUT", "600")
    waiting = Waiting(port)
    try:
        agent = Agent(raw(waiting), waiting.options, second)
        agent.thread.join()
        assert bool(waiting.rendezvous._nodes) == (not why)
        assert agent.error == (f"machine 0 refused this one: {why}" if why else "")
        assert (f"machine 0 refused one at 127.0.0.1: {why}\n" in capfd.readouterr().err) == bool(why)
    finally:
        waiting.end()


PRETENDED = {
    "no challenge": [{"welcome": True, "limit": 60.0}],
    "no proof": [{"challenge": "x"}, {"welcome": True, "limit": 60.0}],
    "another proof": [{"challenge": "x"}, {"welcome": True, "limit": 60.0, "proof": "0" * 64}],
}


@pytest.mark.parametrize("name", PRETENDED)
def test_a_machine_0_without_the_secret_gives_no_commands(name, tmp_path):
    near, far = ends(limit=60.0)
    near.send(run=["touch", str(tmp_path / "file")], environment={})
    for message in PRETENDED[name]:
        near.send(**message)
    agent = Agent(far, options("-n", 2, "--nnodes", 2), b"ours")
    agent.thread.join()
    assert agent.error == "machine 0 doesn't have this machine's MYTORCH_JOB_SECRET"
    assert agent.agent._daemon is None and not list(tmp_path.iterdir())


def test_a_machine_0_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(node_agent, "_ADMIT_SECONDS", 0.5)
    _near, far = ends(limit=60.0)
    agent = Agent(far, options("-n", 2, "--nnodes", 2))
    agent.thread.join()
    assert agent.error == "machine 0 did not admit this one within 0.5 s"


def test_refused_and_silent_connections_are_closed(waiting, monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.5)
    silent, (refused, _) = raw(waiting), waiting.hello(node_rank=0)
    for end in (silent, refused):
        assert "closed the connection" in lost(end)


def test_ranks_do_not_get_the_secret(tmp_path, monkeypatch):
    monkeypatch.setenv(handshake.SECRET_VARIABLE, "ours")
    environment = launcher_command.rank_environment(options("-n", 2), 2, 2, tmp_path)
    assert "ours" not in environment.values()


ALONE = {
    "machine 0": (0, "machine 1 did not come within 1 s"),
    "machine 1": (1, "machine 0 at 127.0.0.9 port {port} could not be reached within 1 s: "),
}


@needs_mpi
@pytest.mark.parametrize("name", ALONE)
def test_the_other_machine_does_not_come(name, port):
    rank, message = ALONE[name]
    at = ["--nnodes", 2, "--node_rank", rank, "--master_addr", "127.0.0.9", "--master_port", port]
    code, out, err = launch("-n", 2, *at, SCRIPT, MYTORCH_JOIN_TIMEOUT="1")
    assert (code, out) == (2, "") and message.format(port=port) in err


@needs_mpi
def test_the_port_is_taken():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        at = ["--nnodes", 2, "--master_addr", "127.0.0.9", "--master_port", port]
        code, out, err = launch("-n", 2, *at, SCRIPT)
    assert (code, out) == (2, "") and f"can't wait for the other machines at --master_port {port}" in err


@needs_mpi
def test_a_machine_is_lost_between_two_starts(port):
    """The test is machines 1 and 2. Machine 0 waits for the lost one and prints that; all end alike."""
    opts = ("-n", 3, "--nnodes", 3, "--master_addr", "127.0.0.9", "--master_port", port, "--max_restarts", 3)
    job = start(*opts, SCRIPT, MYTORCH_JOIN_TIMEOUT="5")
    common = {
        name: value for name, value in rendezvous.job_settings(options(), 1).items() if name != "script"
    }
    settings = {**common, "--nnodes": 3, "script": str(SCRIPT)}
    others = []
    for rank in (1, 2):
        others.append(node_connection.NodeConnection(connected(port), 60.0))
        others[-1].send(node_rank=rank, host=f"machine{rank}", settings=settings)
    lost, stays = others
    until(lost, "stop")  # the first start is over, for mpiexec sees that these are no other machines
    lost.send(daemon_exit=-9, output="no room")
    lost.close()
    until(stays, "stop")
    stays.send(stopped=True)
    assert until(stays, "end") == {"end": 2}
    stays.close()
    code, out, err = finish(job, 40)
    assert (code, out) == (2, "")
    assert cause_in(err).endswith(
        "Open MPI's daemon was killed by SIGKILL (signal 9); the system does that "
        "when memory runs out\nno room"
    )
    assert "restart 1 of 3" in err and "restart 2" not in err
    gone = r"machine 1 \(lost: .+\)"
    assert re.search(rf"machine 0 waits at port {port} for {gone}\n", err)
    assert re.search(rf"mytorchrun launch: {gone} did not come within 5 s\n$", err)


def until(end, word):
    """The next message with this word; what comes before is passed over."""
    found = []
    wait_for(lambda: found.extend(end.receive()) or any(word in message for message in found))
    return next(message for message in found if word in message)


def connected(port):
    """A connection to machine 0, once it is there."""
    found = []

    def come_in():
        with contextlib.suppress(OSError):
            found.append(socket.create_connection(("127.0.0.1", port)))
        return bool(found)

    wait_for(come_in)
    return found[0]
