"""`mytorchrun COMMAND`: each command is a module with HELP, `add_arguments(parser)` and `run(options)`."""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
import sys

from ..utils.start import open_streams
from ..version import __version__
from . import compile, config, env, estimate_memory, launch, test, timeline, top, trace

COMMANDS = {
    "config": config, "launch": launch, "test": test, "env": env, "estimate-memory": estimate_memory,
    "compile": compile, "timeline": timeline, "top": top, "trace": trace,
}


def main(argv: list[str] | None = None) -> int:
    """Runs a command.

    Returns the exit code: 1 without a command (it prints the help) or if the disk is full, 130 after Ctrl-C,
    141 if the reader of what it prints has gone, as in `mytorchrun env | head -1`.
    """
    open_streams()
    parser = argparse.ArgumentParser(prog="mytorchrun", description="Run and inspect mytorch.")
    parser.add_argument("--version", action="version", version=f"mytorch {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 1
    try:
        code = COMMANDS[options.command].run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as a shell says it, without a traceback
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        _discard_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _discard_output()
        print(f"mytorchrun {options.command}: the output can't be written: {error.strerror}", file=sys.stderr)
        return 1


def _reader_has_gone() -> bool:
    """Returns whether the reader of the standard output has gone."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard_output() -> None:
    """Lets what is left of the output go nowhere: else Python's own flush at the exit fails, too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
