"""
Two hosts to test with on one machine: network namespaces, joined by a cable of their own.

Each has its own name, network, and shared memory. Processes and files are this machine's, so a test can see
what a host does, and nothing of a host is left when the process that holds its namespaces ends.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from mytorch.utils.parent_death import die_with_parent

from .launched import ROOT, heed_signals, surroundings

CABLE = "v0"
HOLD = """
hostname {name} && mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo ready && exec sleep infinity
"""


def why_no_hosts():
    """Why there can't be such hosts here; "" if there can."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} on the PATH"
    try:
        for host in pair():
            host.close()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        return f"no network namespaces: {error}"
    return ""


class Host:
    """One of the hosts; `close` removes it."""

    def __init__(self, number, network):
        self.name, self.address = f"host{number}", f"{network}{number + 1}"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", HOLD.format(name=self.name)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent,
        )
        if self._holder.stdout.readline() != "ready\n":
            self.close()
            raise RuntimeError(self._holder.stderr.read().strip())

    @property
    def pid(self):
        return self._holder.pid

    def inside(self, *command):
        """The command line that runs a command on this host, in the current folder."""
        return ["nsenter", "-t", str(self.pid), "--net", "--uts", "--mount", f"--wd={os.getcwd()}", *command]

    def run(self, *command):
        subprocess.run(self.inside(*command), check=True, capture_output=True, text=True)

    def start(self, *command, **variables):
        """A process on this host."""
        return subprocess.Popen(
            self.inside(*map(str, command)),
            env=surroundings(**variables), preexec_fn=heed_signals,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )

    def launch(self, *arguments, **variables):
        """The launcher, running on this host."""
        return self.start(sys.executable, "-m", "mytorch.cli", "launch", "--cpu", *arguments, **variables)

    def received(self):
        """Bytes that came over the cable so far."""
        lines = Path(f"/proc/{self.pid}/net/dev").read_text().splitlines()
        (line,) = (line for line in lines if line.strip().startswith(f"{CABLE}:"))
        return int(line.partition(":")[2].split()[0])

    def cut(self):
        self.run("ip", "link", "set", CABLE, "down")

    def processes(self):
        """The processes on this host, with their command lines."""
        found, mine = {}, os.readlink(f"/proc/{self.pid}/ns/net")
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(path / "ns/net") == mine and int(path.name) != self.pid:
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def files(self):
        """What lies in the host's shared memory, where launchers keep their folders."""
        return sorted(os.listdir(f"/proc/{self.pid}/root/dev/shm"))

    def close(self):
        if self._holder.poll() is None and self.pid:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._holder.kill()
        self._holder.wait()


def pair(network="10.77.0."):
    """Two hosts that see each other, over a cable of their own.

    Args:
        network: what their addresses begin with.

    Raises:
        RuntimeError, subprocess.SubprocessError: this machine doesn't allow it.
    """
    hosts = []
    try:
        hosts += [Host(0, network)]
        hosts += [Host(1, network)]
        far = str(hosts[1].pid)
        hosts[0].run("ip", "link", "add", CABLE, "type", "veth", "peer", "name", CABLE, "netns", far)
        for host in hosts:
            size = "64 nodad" if ":" in network else "24"
            host.run("ip", "addr", "add", *f"{host.address}/{size}".split(), "dev", CABLE)
            host.run("ip", "link", "set", CABLE, "up")
    except BaseException:
        for host in hosts:
            host.close()
        raise
    return hosts


SSH = """#!{python} -IS
import json, socket, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
server.sendall(json.dumps([words[0], " ".join(words[1:])]).encode() + b"\\n")
sys.exit(int(server.recv(16) or 255))
"""


class Ssh:
    """Stands for ssh and its server: what runs on a host has no other parent than this process.

    Attributes:
        program: the client, `PROGRAM HOST COMMAND…`; it lives as long as the command.
    """

    def __init__(self, hosts, folder):
        self._hosts, self.program = {host.address: host for host in hosts}, folder / "ssh"
        path = str(folder / "sshd")
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self.program.write_text(SSH.format(python=sys.executable, path=path))
        self.program.chmod(0o755)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client = self._server.accept()[0]
            threading.Thread(target=self._run, args=(client,), daemon=True).start()

    def _run(self, client):
        address, command = json.loads(client.makefile().readline())
        clean = ["env", "-i", "HOME=/", f"PATH={os.defpath}", "sh", "-c", command]
        done = subprocess.run(
            self._hosts[address].inside(*clean), stdin=subprocess.DEVNULL, capture_output=True
        )
        with contextlib.suppress(OSError):  # the client was killed
            client.sendall(str(done.returncode % 256).encode())
        client.close()
