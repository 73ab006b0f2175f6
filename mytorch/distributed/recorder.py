"""
The flight recorder: what a rank did last, in a file that outlives it.

    header | record 0 | record 1 | … | record 63 | over again from record 0

Every operation writes one record when it begins and marks it when it ends. The file is mapped into memory, so
a write costs some microseconds and no system call, and the launcher, or another rank on the same machine, can
read it whatever state the process is in.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .environment import RUN_FOLDER_VARIABLE

RECORDS, RECORD_BYTES, HEADER_BYTES = 64, 512, 64
_HEADER = struct.Struct("<4sIiIQ")  # magic, pid, rank, stage, records so far
_RECORD = struct.Struct("<QddII")  # sequence number in its group, begin, end, state, bytes of text
_STATE = struct.Struct("<dII")  # the end of it: end, state, bytes of text
_MAGIC = b"mtfr"
WAITING, DONE, FAILED = 1, 2, 3
STATES = {WAITING: "waiting", DONE: "done", FAILED: "failed"}
RUNNING, FINISHED = 1, 2  # stages
_PREFIX = "mytorchrun-"
_SHARED_BYTES = 32 << 20  # of one rank
_PACKAGE = str(Path(__file__).parent.parent) + os.sep


@dataclass
class Record:
    """One operation of one rank."""

    seq: int
    begin: float
    end: float
    state: int
    group: str
    op: str
    shape: str
    dtype: str
    site: str

    def __str__(self) -> str:
        what = f"{self.op}({', '.join(filter(None, (self.shape, self.dtype)))})"
        return f"{what} #{self.seq} of group {self.group} at {self.site}: {STATES.get(self.state, '?')}"


class Recorder:
    """The recorder of this process.

    Args:
        rank: names the file.
        folder: where it goes; by default the launcher's folder, else memory without a name.
    """

    def __init__(self, rank: int, folder: str | os.PathLike | None = None):
        folder = folder or os.environ.get(RUN_FOLDER_VARIABLE)
        size = HEADER_BYTES + RECORDS * RECORD_BYTES
        if folder and os.path.isdir(folder):
            with open(path_of(folder, rank), "w+b") as file:
                file.truncate(size)
                self._map = mmap.mmap(file.fileno(), size)
        else:
            self._map = mmap.mmap(-1, size)
        self._rank, self._count, self._stage = rank, 0, RUNNING
        self._write_header()

    def begin(self, seq: int, group: str, op: str, shape: str, dtype: str, site: str) -> int:
        """Write that an operation begins; returns its number, for `end`."""
        place = _place_of(self._count)
        room = RECORD_BYTES - _RECORD.size
        text = "\0".join((group, op, shape, dtype, site)).encode()[:room]
        _RECORD.pack_into(self._map, place, seq, time.time(), 0.0, WAITING, len(text))
        self._map[place + _RECORD.size : place + _RECORD.size + len(text)] = text
        self._count += 1
        self._write_header()
        return self._count - 1

    def end(self, number: int, state: int = DONE) -> None:
        """Mark an operation as over, if its record is still there."""
        if self._count - number > RECORDS:
            return
        place = _place_of(number)
        text_bytes = _STATE.unpack_from(self._map, place + 16)[2]
        _STATE.pack_into(self._map, place + 16, time.time(), state, text_bytes)

    def finish(self) -> None:
        """Write that the program has come to its end."""
        self._stage = FINISHED
        self._write_header()

    def read(self, number: int) -> Record:
        """The record of an operation; hardly anything if it was written over."""
        if self._count - number > RECORDS:
            return Record(0, 0.0, 0.0, WAITING, "?", "an operation long ago", "", "", "?")
        return _record_at(self._map, _place_of(number))

    def _write_header(self) -> None:
        _HEADER.pack_into(self._map, 0, _MAGIC, os.getpid(), self._rank, self._stage, self._count)


@dataclass
class Flight:
    """What a recorder's file says: the process, how far it came, and its last records, oldest first."""

    rank: int
    pid: int
    finished: bool
    records: list[Record]

    @property
    def last(self) -> Record | None:
        """The oldest operation that it still waits in, else the latest one."""
        waiting = [record for record in self.records if record.state == WAITING]
        return (waiting or self.records[-1:] or [None])[0]


def path_of(folder: str | os.PathLike, rank: int) -> Path:
    return Path(folder) / f"recorder-{rank}"


def read_all(folder: str | os.PathLike | None) -> dict[int, Flight]:
    """The recorders in a folder, by rank."""
    found = {}
    for path in sorted(Path(folder).glob("recorder-*")) if folder and os.path.isdir(folder) else ():
        data = path.read_bytes()
        if len(data) < HEADER_BYTES or data[:4] != _MAGIC:
            continue  # it is being made
        _, pid, rank, stage, count = _HEADER.unpack_from(data)
        records = [_record_at(data, _place_of(i)) for i in range(max(0, count - RECORDS), count)]
        found[rank] = Flight(rank, pid, stage == FINISHED, records)
    return found


def _place_of(number: int) -> int:
    return HEADER_BYTES + number % RECORDS * RECORD_BYTES


def _record_at(data, place: int) -> Record:
    seq, begin, end, state, size = _RECORD.unpack_from(data, place)
    start = place + _RECORD.size
    text = bytes(data[start : start + size]).decode(errors="replace").split("\0")
    return Record(seq, begin, end, state, *(text + [""] * 5)[:5])


def call_site() -> str:
    """`file:line` of the innermost frame outside of mytorch: the user's call that led here."""
    frame = outermost = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<frozen")):
        frame = frame.f_back
    frame = frame or outermost
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def new_folder(ranks: int) -> Path:
    """An empty folder for one run, in memory where the system has room for what MPI's ranks share there."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    if usable:
        _sweep(memory)
        usable = shutil.disk_usage(memory).free > ranks * _SHARED_BYTES  # a container may have 64 MB in all
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory if usable else None))


def _sweep(base: Path) -> None:
    """Remove the folders of launchers that were killed."""
    for path in base.glob(f"{_PREFIX}*"):
        pid = path.name[len(_PREFIX) :].partition("-")[0]
        if pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(path, ignore_errors=True)
