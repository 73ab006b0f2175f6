"""`mytorchrun COMMAND`: each command is a module with HELP, `add_arguments(parser)` and `run(options)`."""

from __future__ import annotations

import argparse
import signal
import sys

from . import compile, config, env, estimate_memory, launch, test, timeline, top, trace

COMMANDS = {
    "config": config, "launch": launch, "test": test, "env": env, "estimate-memory": estimate_memory,
    "compile": compile, "timeline": timeline, "top": top, "trace": trace,
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns the exit code: 1 without a command (it prints the help), 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="mytorchrun", description="Run and inspect mytorch.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        module.add_arguments(commands.add_parser(name, help=module.HELP, description=module.HELP))
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 1
    try:
        return COMMANDS[options.command].run(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # as a shell says it, without a traceback


if __name__ == "__main__":
    sys.exit(main())
