"""The messages between launchers, as readers: each file is what one side sends, a line for each message."""

import argparse
import contextlib
import io
import json
import socket

from mytorch.distributed import root_cause
from mytorch.distributed.launcher_command import LaunchError
from mytorch.distributed.node_agent import _NodeAgent
from mytorch.distributed.node_connection import ConnectionLost, NodeConnection
from mytorch.distributed.output import ERROR_LINE, OutputFilter
from mytorch.distributed.rendezvous import Rendezvous, job_settings

OPTIONS = argparse.Namespace(
    nnodes=2, node_rank=1, master_addr="127.0.0.1", master_port=0, timeout=60, script="s.py", script_args=[]
)
REPORT = {
    "rank": 1, "host": "b", "pid": 5, "time": 1.5, "kind": "exception", "code": 3, "type": "ValueError",
    "message": "boom", "finished": [], "traceback": ["a", "b"], "operation": "all_reduce",
}
LOST = 5  # polls without an answer


def write(folder, messages):
    (folder / "messages").write_text("".join(json.dumps(message) + "\n" for message in messages))


def make_for_machine_0(folder):
    hello = {"node_rank": 1, "host": "b", "settings": job_settings(OPTIONS, 2)}
    daemon = {"daemon_exit": 1, "output": "x"}
    write(folder, [hello, {"error": REPORT}, {"signal": 15}, daemon, {"stopped": True}])


def read_as_machine_0(folder):
    """A job's machine 0 stays alive, and can explain why the job failed."""
    with contextlib.redirect_stderr(io.StringIO()):
        rendezvous = Rendezvous(OPTIONS, 2)
        port = rendezvous._reception._server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as other:
            for line in (folder / "messages").read_bytes().splitlines(keepends=True):
                with contextlib.suppress(OSError):  # it was refused
                    other.sendall(line)
                rendezvous.poll(folder)
        for _ in range(LOST):
            rendezvous.poll(folder)
        rendezvous.close(1)
    explain(folder)


def make_for_machine_k(folder):
    write(folder, [{"challenge": "c"}, {"welcome": True, "limit": 60.0}, {}, {"stop": True}, {"end": 3}])


def read_as_machine_k(folder):
    data = (folder / "messages").read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.redirect_stderr(io.StringIO()):
        connection = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        agent = _NodeAgent(NodeConnection(connection, 60), OPTIONS, 4, 2, None)
        with other, contextlib.closing(agent._connection), agent._output:
            for line in data.splitlines(keepends=True):
                other.sendall(line)
                for message in agent._connection.receive():
                    assert "run" not in message
                    agent._handle(message)
    assert agent._code is None or type(agent._code) is int


def make_error_line(folder):
    (folder / "messages").write_text(f"hello\n{ERROR_LINE}{json.dumps(REPORT)}\nbye\n")


def read_output(folder):
    """What the ranks print is copied to its end, whatever it looks like."""
    target = io.StringIO()
    with open(folder / "messages", "rb") as source:
        OutputFilter(source, target, False, folder).run()
    explain(folder)


def explain(folder):
    cause = root_cause.find_root_cause(folder, "", 1)
    assert isinstance(cause.text, str) and type(cause.code) is int and 0 < cause.code < 256, cause


def after_error_line(random, data, change):
    """The edit of the JSON after ERROR_LINE."""
    head, mark, rest = data.partition(ERROR_LINE.encode())
    report, end, rest = rest.partition(b"\n")
    return head + mark + change(report.decode(errors="replace")).encode(errors="replace") + end + rest


def readers(Reader, a_line):
    lost = (LaunchError, ConnectionLost)
    sent = {"is_named": False}
    return {
        "to machine 0": Reader(make_for_machine_0, read_as_machine_0, (), (a_line,), **sent),
        "to machine k": Reader(make_for_machine_k, read_as_machine_k, lost, (a_line,), nameless=lost, **sent),
        "error line": Reader(make_error_line, read_output, (), (after_error_line,), **sent),
    }
