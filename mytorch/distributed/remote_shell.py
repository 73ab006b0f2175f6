"""
The program that mpiexec runs instead of ssh, `remote_shell.py HOST COMMAND…`, if each node has a launcher.

The command starts Open MPI's daemon on that node. This program writes it to the run's folder, from where the
launcher forwards it. It imports only the standard library: one more Python starts for each node.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path

_FOLDER_VARIABLE = "MYTORCH_RUN_FOLDER"
_DAEMON = re.compile(r"(?:^|[;/ ])prted$")
_JOB_PREFIXES = ("MYTORCH_", "MASTER_")
_NODE_VARIABLES = (_FOLDER_VARIABLE, "MYTORCH_NODE_RANK")
_PREFIX_VARIABLES = ("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX")  # where Open MPI is installed


def daemon_command(words: list[str]) -> list[str]:
    """Returns the daemon and its arguments from the shell command that mpiexec passes to ssh.

    The daemon stays in the foreground, so that the launcher notices its end and can end it.
    """
    index = next(i for i, word in enumerate(words) if _DAEMON.search(word))
    daemon = words[index].rpartition(";")[2].strip()
    arguments = shlex.split(" ".join(words[index + 1 :]).removesuffix(")"))
    return [daemon, *(argument for argument in arguments if argument != "--daemonize")]


def daemon_environment(variables: dict[str, str]) -> dict[str, str]:
    """Returns the variables of this node's environment that the daemon and its ranks need."""
    return {
        name: value
        for name, value in variables.items()
        if name in _PREFIX_VARIABLES or (name.startswith(_JOB_PREFIXES) and name not in _NODE_VARIABLES)
    }


def main() -> None:
    """Writes the command in sys.argv to the run's folder, as `daemon-HOST.json`."""
    host, *words = sys.argv[1:]
    folder = Path(os.environ[_FOLDER_VARIABLE])
    partial = folder / f".daemon-{host}"
    content = {"run": daemon_command(words), "environment": daemon_environment(dict(os.environ))}
    partial.write_text(json.dumps(content))
    partial.rename(folder / f"daemon-{host}.json")


if __name__ == "__main__":
    main()
