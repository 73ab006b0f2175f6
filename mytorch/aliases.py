"""Modules under PyTorch's names whose contents lie elsewhere: `nn.modules.conv` is `nn.layers.conv`."""

from __future__ import annotations

import sys
from types import ModuleType


def alias(name: str, *sources: ModuleType) -> None:
    """Makes a module of this name, with the names of the sources, and an attribute of its package.

    Args:
        name: with its package, which has been imported or is being imported.
        sources: of a name in several of them, the first counts.
    """
    module = ModuleType(name, f"PyTorch's name for {', '.join(source.__name__ for source in sources)}.")
    for source in reversed(sources):
        module.__dict__.update({key: x for key, x in vars(source).items() if not key.startswith("__")})
    sys.modules[name] = module
    package, _, child = name.rpartition(".")
    setattr(sys.modules[package], child, module)
