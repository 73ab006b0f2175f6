"""The command line: `mytorchrun COMMAND`."""

from .main import main

__all__ = ["main"]
