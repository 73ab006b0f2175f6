"""
The folder of one run, for the files of its ranks and of MPI.

Its launcher holds a lock on it, which ends with the process: a folder without one is of a launcher that was
killed. Process numbers wouldn't say so, as containers may share a folder, each with its own numbers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "mytorchrun-"
_SHARED_BYTES = 32 << 20  # that MPI may need for one rank


class RunFolder:
    """A new folder: in shared memory if that is large enough for what MPI keeps in it.

    Attributes:
        path: of the folder.
    """

    def __init__(self, ranks: int):
        memory = Path("/dev/shm")
        usable = memory.is_dir() and os.access(memory, os.W_OK)
        if usable:
            remove_stale_folders(memory)
            free = shutil.disk_usage(memory).free  # a container may have 64 MB in all
            usable = free > ranks * _SHARED_BYTES
        self._locked = contextlib.ExitStack()
        self.path = _new_folder(memory if usable else None, self._locked)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._locked.close()


def _new_folder(base: Path | None, locked: contextlib.ExitStack) -> Path:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        try:
            locked.callback(os.close, _lock(path))
        except (BlockingIOError, FileNotFoundError):
            continue  # another launcher was faster, and removes it
        except (ImportError, OSError):  # a system without locks, where no launcher removes what has none
            pass
        return path


def _lock(path: Path) -> int:
    """Returns a descriptor that holds the lock of a folder.

    Raises:
        BlockingIOError: another process holds it.
        OSError: the folder is gone, or another user's, or can't be locked.
    """
    import fcntl

    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove_stale_folders(base: Path) -> None:
    """Removes the folders of launchers of this user that were killed."""
    for path in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(ImportError, OSError):
            if path.lstat().st_uid == os.geteuid():
                descriptor = _lock(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
