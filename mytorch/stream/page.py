"""
The page: what a process does now, in a file of one memory page that `mytorchrun top` reads.

    header | current operation | seconds by kind | what the program reports | a request for a trace

A rank that was launched has one, in /dev/shm or the folder for temporary files, readable by its user alone.
On Linux the file has no name: others open it through /proc, and however its process ends, it is gone.
All users may write files into these folders, and open them: only files of this user are read.
An operation writes a few numbers when it begins and when it ends: no system call, no instruction is made.
`mytorchrun trace` writes a request into it, which the rank notices within some operations.
"""

from __future__ import annotations

import contextlib
import glob
import math
import mmap
import os
import re
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..backends import device as devices
from ..backends.functions import KINDS
from ..utils.reading import printable

SIZE = 4096
VARIABLE = "MYTORCH_TOP"  # 0: no page
_MAGIC = b"mtp1"
_HEADER, _HEADER_AT = struct.Struct("<4sIIId64s"), 0  # magic, pid, rank, world size, start, job
_NOW, _NOW_AT = struct.Struct("<Qdd64s"), 128  # instructions so far, beginning, end or 0, name
_ENDED, _ENDED_AT = struct.Struct("<d"), _NOW_AT + 16
_KINDS, _KINDS_AT = struct.Struct(f"<{len(KINDS)}d"), 256
_REPORT, _REPORT_AT = struct.Struct("<QdQ"), 512  # step, tokens per second, bytes on the GPU
_REQUEST, _REQUEST_AT = struct.Struct("<QdQ400s"), 640  # number, seconds, instructions, path
_NUMBER, _DONE_AT = struct.Struct("<Q"), 1536  # the last request that was carried out or withdrawn
_PREFIX = "mytorch-page-"
_PROCESSES = Path("/proc")


class Page:
    """The page of this process, to be written.

    Attributes:
        path: by which others open the file.
    """

    def __init__(self, rank: int, world_size: int, job: str):
        self._descriptor: int | None
        self._descriptor, self.path = _new_file()
        os.ftruncate(self._descriptor, SIZE)
        self.memory = mmap.mmap(self._descriptor, SIZE)
        self.count, self.seconds = 0, [0.0] * len(KINDS)
        self._kinds = {kind: (i, _KINDS_AT + 8 * i) for i, kind in enumerate(KINDS)}
        self._names: dict[tuple[str, str], bytes] = {}
        facts = (_MAGIC, os.getpid(), rank, world_size, time.time(), job.encode()[:64])
        _HEADER.pack_into(self.memory, _HEADER_AT, *facts)

    def begin(self, name: str, kind: str, now: float) -> None:
        """Writes the operation that begins; times are `time.monotonic()`'s."""
        encoded = self._names.get((name, kind))
        if encoded is None:
            encoded = self._names[name, kind] = f"{kind} {name}".encode()[:64]
        self.count += 1
        _NOW.pack_into(self.memory, _NOW_AT, self.count, now, 0.0, encoded)

    def end(self, kind: str, seconds: float, now: float, is_last: bool) -> None:
        """Adds the time of an operation to that of its kind; `is_last`: none around it runs."""
        i, at = self._kinds[kind]
        self.seconds[i] += seconds
        _ENDED.pack_into(self.memory, at, self.seconds[i])
        if is_last:
            _ENDED.pack_into(self.memory, _ENDED_AT, now)

    def report(self, step: int, tokens_per_second: float) -> None:
        """Writes the program's step and speed, and the memory on its GPU."""
        on_gpu = 0
        if devices.is_available():
            from .. import cuda

            on_gpu = cuda.memory_allocated()
        _REPORT.pack_into(self.memory, _REPORT_AT, step, tokens_per_second, on_gpu)

    def request(self) -> Request | None:
        """Returns a request for a trace that wasn't carried out yet."""
        number = _NUMBER.unpack_from(self.memory, _REQUEST_AT)[0]
        if number <= _NUMBER.unpack_from(self.memory, _DONE_AT)[0]:
            return None
        return _request_in(self.memory)

    def is_done(self, request: Request) -> bool:
        """Returns whether a request was carried out or withdrawn."""
        return request.number <= _NUMBER.unpack_from(self.memory, _DONE_AT)[0]

    def finish(self, request: Request) -> None:
        """Marks a request as carried out, and those before it."""
        _finish(self.memory, request.number)

    def close(self) -> None:
        """Removes the file; the memory stays for the operations that other threads are in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            if self.path.name == _name():  # not in a forked process
                self.path.unlink(missing_ok=True)


def _name() -> str:
    return f"{_PREFIX}{os.getuid()}-{os.getpid()}"


def _new_file() -> tuple[int, Path]:
    """Returns the descriptor of a new file, and the path by which others open it."""
    if _PROCESSES.is_dir():
        # Random letters: another user may have made a file of any name that is known.
        descriptor, name = tempfile.mkstemp(prefix=f"{_name()}-", dir=folder())
        os.unlink(name)
        return descriptor, _PROCESSES / str(os.getpid()) / "fd" / str(descriptor)
    path = folder() / _name()
    path.unlink(missing_ok=True)  # of a process that had the same number
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), path


@dataclass(frozen=True)
class Request:
    """A request for a log at `path`, of at most `seconds` and `instructions` (0: any number)."""

    number: int
    seconds: float
    instructions: int
    path: str


@dataclass(frozen=True)
class Reading:
    """What a page says.

    seconds: spent so far in each kind of operation.
    elapsed: since the last operation began, if it still runs, else since it ended.
    time: when it was read, by `time.monotonic()`.
    resident: bytes of the process in memory.
    """

    path: Path
    pid: int
    rank: int
    world_size: int
    started: float
    job: str
    count: int
    operation: str
    kind: str
    is_running: bool
    elapsed: float
    seconds: dict[str, float]
    step: int
    tokens_per_second: float
    on_gpu: int
    resident: int
    done: int
    time: float


def folder() -> Path:
    """Returns where pages are: /dev/shm, or the folder for temporary files."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def read_pages(pid: int | None = None, refused: list[str] | None = None) -> list[Reading]:
    """Returns what the running processes of this user say, by job and rank; of one with `pid`.

    Pages of processes that were killed are removed, where they have names.

    Args:
        refused: a line is appended for each file that is called as a page and is none.
    """
    found: dict[int, Reading] = {}  # a process may have its page open twice
    for number, path in _pages():
        reading = None
        try:
            with _opened(path, os.O_RDONLY) as file:
                if not _is_link(path) and not _is_alive(number):
                    path.unlink()
                elif pid in (None, number):
                    reading = _read(path, file)
        except ValueError as error:
            if refused is not None:
                refused.append(printable(f"{path}: {error}"))
        except OSError:  # it ended meanwhile
            pass
        if reading is not None and reading.pid == number:  # not a fork, which has its parent's
            found[number] = reading
    return sorted(found.values(), key=lambda r: (r.job, r.rank))


def _pages() -> Iterator[tuple[int, Path]]:
    """Yields the numbers of processes, and the paths of what are called as their pages."""
    start = f"{folder()}/{_PREFIX}{os.getuid()}-"
    if not _PROCESSES.is_dir():
        for name in glob.iglob(f"{glob.escape(start)}*"):
            if re.fullmatch("[0-9]{1,10}", number := name.removeprefix(start)):
                yield int(number), Path(name)
        return
    for link in glob.iglob(f"{_PROCESSES}/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            if os.readlink(link).startswith(start):
                yield int(Path(link).parts[-3]), Path(link)


def _is_link(path: Path) -> bool:
    return path.is_relative_to(_PROCESSES)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Context whose value is a descriptor of a page.

    Raises:
        ValueError: it is no page of this user.
        OSError: it is gone.
    """
    is_link = _is_link(path)
    _check(os.stat(path, follow_symlinks=is_link))  # before a device of another user is opened
    # O_NONBLOCK: a FIFO that took its place is not waited for.
    flags |= os.O_NONBLOCK | os.O_NOCTTY | (0 if is_link else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        _check(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _check(facts: os.stat_result) -> None:
    if facts.st_uid != os.geteuid():
        raise ValueError("it is another user's")
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("it is no regular file")
    if facts.st_size not in (0, SIZE):  # 0: it is being created
        raise ValueError(f"it has {facts.st_size} bytes, a page {SIZE}")


def _read(path: Path, file: int) -> Reading | None:
    data = os.pread(file, SIZE, 0)
    if len(data) < SIZE or data[:4] != _MAGIC:
        return None  # it is being created
    _, pid, rank, world_size, started, job = _HEADER.unpack_from(data, _HEADER_AT)
    count, begin, end, name = _NOW.unpack_from(data, _NOW_AT)
    now = time.monotonic()
    step, tokens_per_second, on_gpu = _REPORT.unpack_from(data, _REPORT_AT)
    seconds = _KINDS.unpack_from(data, _KINDS_AT)
    asked, done = (_NUMBER.unpack_from(data, at)[0] for at in (_REQUEST_AT, _DONE_AT))
    times = started, begin, end, tokens_per_second, *seconds
    if max(asked, done) >> 63 or not all(map(math.isfinite, times)):
        raise ValueError("it is damaged: a number in it is too large or NaN")
    kind, _, operation = _text(name).partition(" ")
    return Reading(
        path, pid, rank, world_size, started, _text(job), count, operation, kind, bool(count) and not end,
        max(0.0, now - (end or begin)) if count else 0.0, dict(zip(KINDS, seconds, strict=True)), step,
        tokens_per_second, on_gpu, resident_memory(pid), done, now,
    )


def ask_for_trace(reading: Reading, seconds: float, instructions: int, path: str) -> int:
    """Writes a request for a trace into the page of a process; returns its number, 0 if that has ended.

    Raises:
        ValueError: the path is longer than 400 bytes.
    """
    encoded = os.fsencode(path)
    if len(encoded) > 400:
        raise ValueError(f"the path of a trace has at most 400 bytes, got {len(encoded)}: {path}")
    number = 0
    with contextlib.suppress(OSError, ValueError), _page_of(reading) as (file, data):
        number = 1 + max(reading.done, _NUMBER.unpack_from(data, _REQUEST_AT)[0])
        os.pwrite(file, _REQUEST.pack(reading.done, seconds, instructions, encoded), _REQUEST_AT)
        os.pwrite(file, _NUMBER.pack(number), _REQUEST_AT)  # last: now it is complete
    return number


def withdraw_request(reading: Reading, number: int) -> None:
    """Marks a request as carried out, and those before it: their traces would come too late."""
    with contextlib.suppress(OSError, ValueError), _page_of(reading) as (file, data):
        done = _NUMBER.unpack_from(data, _DONE_AT)[0]
        os.pwrite(file, _NUMBER.pack(max(done, number)), _DONE_AT)


@contextlib.contextmanager
def _page_of(reading: Reading) -> Iterator[tuple[int, bytes]]:
    """Context whose value is the page that was read, to be written, and its content.

    Raises:
        ValueError, OSError: its process has ended; another one may have its number.
    """
    with _opened(reading.path, os.O_RDWR) as file:
        data = os.pread(file, SIZE, 0).ljust(SIZE)
        _, pid, _, _, started, _ = _HEADER.unpack_from(data, _HEADER_AT)
        if (pid, started) != (reading.pid, reading.started):
            raise ValueError(f"process {reading.pid} has ended")
        yield file, data


def _finish(memory: mmap.mmap, number: int) -> None:
    done = _NUMBER.unpack_from(memory, _DONE_AT)[0]
    _NUMBER.pack_into(memory, _DONE_AT, max(done, number))


def open_page(rank: int, world_size: int, job: str) -> Page | None:
    """Returns a page for this process; None with MYTORCH_TOP=0, or, with a warning, if none can be made."""
    if os.environ.get(VARIABLE) == "0":
        return None
    try:
        return Page(rank, world_size, job)
    except OSError as error:
        warnings.warn(f"`mytorchrun top` won't see this process: no page can be made: {error}", stacklevel=3)
        return None


def _request_in(data: mmap.mmap) -> Request:
    number, seconds, instructions, path = _REQUEST.unpack_from(data, _REQUEST_AT)
    return Request(number, seconds, instructions, os.fsdecode(path.rstrip(b"\0")))


def _text(data: bytes) -> str:
    return printable(data.rstrip(b"\0").decode(errors="replace"))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def resident_memory(pid: int) -> int:
    """Returns the bytes of a process in memory; 0 where the system doesn't say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0  # not Linux, or it ended
    return pages * os.sysconf("SC_PAGE_SIZE")
