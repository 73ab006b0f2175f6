"""Files that are whole or not there: written under another name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[Path]:
    """Give a name to write to; when the block ends, what was written there becomes `path`, at once.

        with atomic_write("model.json") as file:
            file.write_text("{}")

    The bytes are on the disk before the name changes, so a reader finds the old file or the new one, even
    after a crash. An error inside the block leaves `path` as it was and nothing else behind.

    Raises:
        FileNotFoundError: the folder of `path` isn't there.
        IsADirectoryError: `path` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"can't write {path}: it is a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"can't write {path}: there is no folder {path.parent}")
    # In the same folder, since a rename can't cross file systems; random, since several may write at once.
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
    try:
        partial.touch()
        mode = partial.stat().st_mode
        yield partial
        partial.chmod(mode)  # whoever wrote it may have made another file, for the owner's eyes only
        _wait_for_disk(partial, os.O_RDWR)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    with suppress(OSError):  # not every system can flush a folder; the file is whole in any case
        _wait_for_disk(path.parent, os.O_RDONLY)


def _wait_for_disk(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
