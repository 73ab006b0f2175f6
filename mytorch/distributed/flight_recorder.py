"""
The flight recorder: the last operations of a rank, in a file that outlives the process.

    header | record 0 | record 1 | … | record 63 | the next one replaces record 0

Each operation writes a record when it starts and updates it when it ends. The file is mapped into memory, so
a write costs some microseconds and no system call, and the launcher, or another rank on the same machine, can
read it whatever state the process is in.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from .environment import RUN_FOLDER_VARIABLE

RECORDS, RECORD_BYTES, HEADER_BYTES = 64, 512, 64
_HEADER = struct.Struct("<4sIiIQ")  # magic, pid, rank, stage, records so far
_RECORD = struct.Struct("<QddII")  # sequence number in its group, begin, end, state, bytes of text
_STATE = struct.Struct("<dII")  # the last three fields of a record: end, state, bytes of text
_MAGIC = b"mtfr"
WAITING, DONE, FAILED = 1, 2, 3
STATES = {WAITING: "waiting", DONE: "done", FAILED: "failed"}
# Stages: in the script; at its end; after the end of all ranks' scripts; after Python's exit functions.
RUNNING, FINISHED, LEAVING, EXITING = 1, 2, 3, 4


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


class FlightRecorder:
    """The flight recorder of this process.

    Args:
        rank: names the file.
        folder: of the file; by default the launcher's, else the records are kept in anonymous memory.
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
        """Records the start of an operation; returns the number of the record, for `end`."""
        offset = _offset_of(self._count)
        text = "\0".join((group, op, shape, dtype, site)).encode()[: RECORD_BYTES - _RECORD.size]
        _RECORD.pack_into(self._map, offset, seq, time.time(), 0.0, WAITING, len(text))
        self._map[offset + _RECORD.size : offset + _RECORD.size + len(text)] = text
        self._count += 1
        self._write_header()
        return self._count - 1

    def end(self, number: int, state: int = DONE) -> None:
        """Records the end of an operation, unless its record was replaced."""
        if self._count - number > RECORDS:
            return
        offset = _offset_of(number) + 16
        text_bytes = _STATE.unpack_from(self._map, offset)[2]
        _STATE.pack_into(self._map, offset, time.time(), state, text_bytes)

    def enter(self, stage: int) -> None:
        """Records that the program has come to a stage."""
        self._stage = stage
        self._write_header()

    def read(self, number: int) -> Record:
        """Returns a record; a stand-in if it was replaced."""
        if self._count - number > RECORDS:
            return Record(0, 0.0, 0.0, WAITING, "?", "an operation long ago", "", "", "?")
        return _record_at(self._map, _offset_of(number))

    def _write_header(self) -> None:
        _HEADER.pack_into(self._map, 0, _MAGIC, os.getpid(), self._rank, self._stage, self._count)


@dataclass
class Flight:
    """The content of a flight recorder: the process, its stage, and its records in order."""

    rank: int
    pid: int
    stage: int
    records: list[Record]

    @property
    def finished(self) -> bool:
        """Whether the process came to the end of the script."""
        return self.stage >= FINISHED

    @property
    def last(self) -> Record | None:
        """The oldest operation that is not complete, else the latest one."""
        waiting = [record for record in self.records if record.state == WAITING]
        return (waiting or self.records[-1:] or [None])[0]


def path_of(folder: str | os.PathLike, rank: int) -> Path:
    return Path(folder) / f"recorder-{rank}"


def read_all(folder: str | os.PathLike | None) -> dict[int, Flight]:
    """Returns the flight recorders in a folder, by rank."""
    found = {}
    for path in sorted(Path(folder).glob("recorder-*")) if folder and os.path.isdir(folder) else ():
        data = path.read_bytes()
        if len(data) < HEADER_BYTES + RECORDS * RECORD_BYTES or data[:4] != _MAGIC:
            continue  # it is being created
        _, pid, rank, stage, count = _HEADER.unpack_from(data)
        records = [_record_at(data, _offset_of(i)) for i in range(max(0, count - RECORDS), count)]
        found[rank] = Flight(rank, pid, stage, records)
    return found


def _offset_of(number: int) -> int:
    return HEADER_BYTES + number % RECORDS * RECORD_BYTES


def _record_at(data: bytes | mmap.mmap, offset: int) -> Record:
    seq, begin, end, state, size = _RECORD.unpack_from(data, offset)
    start = offset + _RECORD.size
    text = bytes(data[start : start + size]).decode(errors="replace").split("\0")
    return Record(seq, begin, end, state, *(text + [""] * 5)[:5])
