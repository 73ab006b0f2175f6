"""Modules of generated source: each is kept in a folder named by its content, with what is compiled of it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from ...utils import atomic_write


@functools.cache
def module_of(source: str) -> ModuleType:
    """Returns the module with this source."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:24]
    root = Path(os.environ.get("MYTORCH_CACHE") or Path.home() / ".cache" / "mytorch")
    path = root / "programs" / digest / "loop.py"
    if not path.exists() or path.read_text() != source:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(source)
    spec = importlib.util.spec_from_file_location(f"mytorch_loop_{digest}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # compilers look for it there
    spec.loader.exec_module(module)
    return module
