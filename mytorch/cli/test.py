"""`mytorchrun test`: checks training on several processes on this machine."""

from __future__ import annotations

import argparse

from . import launch, settings

HELP = "check collectives, DDP, accumulation, mixed precision and checkpoints on this machine"
_TIMEOUT = 30.0  # seconds for a collective; those of the checks take milliseconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("--config", "--config_file", dest="config", help="settings from this YAML file")
    names = ["num_processes", "num_gpus", "nnodes", "node_rank", "master_addr", "master_port", "hostfile"]
    settings.add_arguments(parser, [*names, "cpu", "timeout"])


def run(options: argparse.Namespace) -> int:
    """Runs the checks through the launcher; returns the exit code, 0 if all passed."""
    parser = argparse.ArgumentParser()
    launch.add_arguments(parser)
    chosen = parser.parse_args(["-m", "mytorch.cli.checks"])
    vars(chosen).update(vars(options))
    chosen.max_restarts = 0
    chosen.timeout = _TIMEOUT if options.timeout is None else options.timeout
    return launch.run(chosen)
