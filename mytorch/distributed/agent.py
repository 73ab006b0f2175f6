"""
What Open MPI calls in the place of ssh, `agent.py HOST COMMAND…`, where each machine has a launcher.

The command starts Open MPI's daemon on that machine. We leave it in the run's folder, for the launcher to
pass on, and are done. Only the standard library is used: this is one more Python to start for each machine.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path

FOLDER = "MYTORCH_RUN_FOLDER"
_DAEMON = re.compile(r"(?:^|[;/ ])prted$")
_JOB_WIDE = ("MYTORCH_", "MASTER_")
_OF_ONE_MACHINE = (FOLDER, "MYTORCH_NODE_RANK")
_INSTALLED = ("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX")  # Open MPI's own words on where it lies


def command(words: list[str]) -> list[str]:
    """The daemon and its arguments, out of what a shell was to be given.

    It stays in the foreground, so that the launcher sees its end, and ends it.
    """
    place = next(i for i, word in enumerate(words) if _DAEMON.search(word))
    daemon = words[place].rpartition(";")[2].strip()
    arguments = shlex.split(" ".join(words[place + 1 :]).removesuffix(")"))
    return [daemon, *(argument for argument in arguments if argument != "--daemonize")]


def environment(names: dict[str, str]) -> dict[str, str]:
    """What the daemon, and the ranks below it, need of this machine's environment."""
    return {
        name: value
        for name, value in names.items()
        if name in _INSTALLED or (name.startswith(_JOB_WIDE) and name not in _OF_ONE_MACHINE)
    }


def main() -> None:
    """Leave the command of sys.argv in the folder, as `daemon-HOST.json`."""
    host, *words = sys.argv[1:]
    folder = Path(os.environ[FOLDER])
    partial = folder / f".daemon-{host}"
    partial.write_text(json.dumps({"run": command(words), "environment": environment(dict(os.environ))}))
    partial.rename(folder / f"daemon-{host}.json")


if __name__ == "__main__":
    main()
