"""Atomic writes: a file is written under a temporary name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .reading import check_regular


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[Path]:
    """Context manager that yields a temporary path and renames the file written there to `path`.

        with atomic_write("model.json") as file:
            file.write_text("{}")

    The file is flushed to disk before it is renamed, so `path` is the complete old or the complete new file,
    even after a crash. If the block raises, `path` is unchanged and the temporary file is deleted.

    Raises:
        FileNotFoundError: the folder of `path` does not exist.
        IsADirectoryError: `path` is a folder.
        OSError: `path` is a FIFO, a socket or a device, such as /dev/null, which a rename would delete.
    """
    path = Path(path)
    with suppress(FileNotFoundError):
        check_regular(path, "write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"can't write {path}: folder {path.parent} does not exist")
    # In the same folder: a rename can't cross file systems. A random name: several processes may write.
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
    try:
        partial.touch()
        mode = partial.stat().st_mode
        yield partial
        partial.chmod(mode)  # the writer may have replaced the file, with permissions for its owner only
        flush(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    with suppress(OSError):  # some systems can't flush a folder; the file is complete in any case
        flush(path.parent)


def flush(path: Path) -> None:
    """Waits until a file or the names in a folder are on the disk."""
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
