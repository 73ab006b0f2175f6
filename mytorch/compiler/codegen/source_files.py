"""Modules of generated source: each is kept in a folder named by its content, with what is compiled of it."""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from ...nn.fused_ops.background import cache_folder
from ...utils import atomic_write


@functools.cache
def module_of(source: str) -> ModuleType:
    """Returns the module with this source."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:24]
    path = _written(cache_folder(), digest, source) or _written(_temporary_folder(), digest, source)
    spec = importlib.util.spec_from_file_location(f"mytorch_loop_{digest}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # compilers look for it there
    spec.loader.exec_module(module)
    return module


def _written(root: Path | None, digest: str, source: str) -> Path | None:
    """Returns the file of a loop in a folder; None if it can't be written."""
    if root is None:
        return None
    path = root / "programs" / digest / "loop.py"
    try:
        if not path.exists() or path.read_text() != source:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial:
                partial.write_text(source)
    except OSError:
        return None
    return path


@functools.cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="mytorch-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
