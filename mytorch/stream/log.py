"""
The instruction log: a line for the beginning and one for the end of each operation, in a file.

    MYTORCH_INSTRUCTION_LOG=ops.log python train.py

    [  0.003217] START | rank 0 | forward       | #12 add | left=%3:float32[12,64] right=%4:float32[64] | h.0
    [  0.003540] END   | rank 0 | forward       | #12 add | result=%7:float32[12,64] | 0.323 ms

The first is in the file before the operation runs: after a hang or a `kill -9` the last line is the operation
that hangs. `%3` is an array, by its number. Several ranks write a file each, `ops.rank0.log` and so on, which
`read_log` merges by time; after the first restart of a job they are `ops.restart1.rank0.log` and so on. On a
GPU the lines are of launches, and a hang shows where the program waits for the device. `rank 0 thread 1` is
another thread than the first that computed.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
import socket
import sys
import time
import warnings
from pathlib import Path

from ..backends import dtypes
from ..utils.reading import open_regular, printable
from .instruction import Instruction, Operand, text_of
from .recorder import Sink, rank_of_process
from .recording import start

VARIABLE, _RESTARTS = "MYTORCH_INSTRUCTION_LOG", "MYTORCH_RESTART_COUNT"
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_KEPT = 4096  # texts of operands
_APART = 600.0  # seconds in which all ranks of a run begin
_PAUSE = 10.0  # seconds after the end of a log in which another rank may begin: clocks differ
_HEADER = "# mytorch instruction log"
_TIME, _COUNT = "[0-9]{1,12}[.][0-9]{1,9}", "[0-9]{1,18}"
_FACTS = re.compile(rf"{_HEADER}: rank=(?P<rank>{_COUNT}) .*time=(?P<time>{_TIME})")
_LINE = re.compile(
    rf"\[ *(?P<time>{_TIME})\] (?P<event>START|END|FAILED) *\| rank (?P<rank>{_COUNT})"
    rf"(?: thread (?P<thread>{_COUNT}))? \| (?P<phase>\w+) *"
    rf"\| #(?P<number>{_COUNT}) (?P<name>[^|]*) \| (?P<values>(?:(?! [|] ).)*) \| (?P<last>[^|]*)"
    r"(?: \| at (?P<site>.*))?"
)
_DURATION = re.compile(rf"({_TIME}) ms")
_OPERAND = re.compile(rf"%({_COUNT}):(\w+)\[((?:{_COUNT}(?:,{_COUNT})*)?)\](?:@([\w:]+))?")
_LONGEST = 1 << 20  # bytes of a line


class LogWriter(Sink):
    """A sink that writes the log; the file is made at the first instruction.

    Args:
        path: of the file; with several ranks, the rank is put before its suffix.
        with_site: lines of the user's program, too.
        ranks: the rank, and how many there are, of a process that `spawn` started; by default those that the
            launcher gave.

    Attributes:
        path: of the file of this rank.
    """

    wants_events = False
    _kind = os.O_TRUNC  # of the file to open: one of an earlier run is written over

    def __init__(
        self, path: str | os.PathLike, with_site: bool = False, ranks: tuple[int, int] | None = None
    ):
        self.wants_site = with_site
        self.rank, self.world_size = ranks or (rank_of_process(), world_size())
        path = Path(path).absolute()  # as of now: the program may go to another folder before its first line
        self.path = path_of_rank(path, self.rank) if ranks or self.world_size > 1 else path
        self._file: int | None = None
        self._is_over = False
        self._zero = time.perf_counter()
        self._texts: dict[int, str] = {}
        self._threads: dict[int, str] = {}
        self._count = itertools.count()

    def begin(self, i: Instruction) -> None:
        text, given = self._text, i.named
        values = " ".join([f"{k}={text(v)}" for k, v in given.items() if v is not None and v is not False])
        site = f" | at {i.site}" if i.site else ""
        self._write("START ", i, f"{values} | {_readable(i.module) or '-'}{site}\n")

    def end(self, i: Instruction) -> None:
        text = self._text
        values = " ".join([f"result={text(a)}" for a in i.outputs])
        self._write("FAILED" if i.failed else "END   ", i, f"{values} | {i.duration * 1e3:.3f} ms\n")

    def _write(self, event: str, i: Instruction, rest: str) -> None:
        if self._is_over:
            return
        now = time.perf_counter() - self._zero
        name = f"#{i.number} {_readable(i.name)}"
        thread = self._threads.get(i.thread)
        if thread is None:
            number = next(self._count)
            thread = self._threads[i.thread] = f" thread {number}" if number else ""
        line = f"[{now:10.6f}] {event}| rank {self.rank}{thread} | {i.phase:<13} | {name} | {rest}"
        file = self._open() if self._file is None else self._file
        try:
            _write_all(file, line)
        except OSError as error:  # the disk is full, which must not end a program that has run for days
            self._is_over = True
            warnings.warn(f"{self.path}: the instruction log ends here: {error.strerror}", stacklevel=2)

    def _text(self, value: object) -> str:
        """Returns `text_of`; that of an operand is kept for the instructions that read it."""
        if type(value) is not Operand:
            return text_of(value)
        found = self._texts.get(value.number)
        if found is None:
            if len(self._texts) > _KEPT:
                self._texts.clear()
            found = self._texts[value.number] = str(value)
        return found

    def _open(self) -> int:
        os.environ.pop(VARIABLE, None)  # a process that this one starts would write over its file
        began = time.time() - (time.perf_counter() - self._zero)
        where = f"world={self.world_size} pid={os.getpid()} host={socket.gethostname()}"
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | self._kind, 0o644)
            _write_all(self._file, f"{_HEADER}: rank={self.rank} {where} time={began:.6f}\n")
        except OSError as error:
            raise type(error)(error.errno, f"no instruction log: {error.strerror}", str(self.path)) from None
        return self._file


def _write_all(file: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(file, data) :]  # a full disk takes a part, and refuses the rest


_named = ""  # the log that the variable named when this process began


def start_from_environment() -> None:
    """Starts the log that MYTORCH_INSTRUCTION_LOG names; not in a DataLoader's worker."""
    global _named
    processes = sys.modules.get("multiprocessing")
    if os.environ[VARIABLE] and (processes is None or processes.parent_process() is None):
        _named = str(_of_attempt(os.path.abspath(os.environ[VARIABLE])))
        writer = LogWriter(_named)
        if reason := _why_not(writer.path):
            raise SystemExit(f"{VARIABLE}: there can be no log {writer.path}: {reason}")
        start(writer)


def path_for_ranks() -> str:
    """Returns the log for the ranks that this process starts; "" without one, and in a rank itself."""
    return _named if world_size() == 1 else ""


def start_in_rank(path: str, rank: int, size: int) -> None:
    """Starts the log of one of the processes that `spawn` started; `path` is what its parent's
    `path_for_ranks` returned."""
    if path:
        start(LogWriter(path, ranks=(rank, size)))


def _of_attempt(path: str) -> Path:
    """Returns the path of a job that was restarted: the log of what failed before is kept."""
    count = os.environ.get(_RESTARTS, "0")
    return Path(path) if count == "0" else _with(path, f"restart{count}")


def _why_not(path: Path) -> str:
    """Returns why a file can't be written, which may be a device as /dev/stderr; "" if it can."""
    if not path.parent.is_dir():
        return "there is no such folder"
    if path.is_dir():
        return "it is a folder"
    return "" if os.access(path if path.exists() else path.parent, os.W_OK) else "it may not be written"


def _readable(name: str) -> str:
    """Returns the name of a block or a module without line ends, and without what separates the parts of a
    line."""
    return name if name.isprintable() and "|" not in name else " ".join(name.replace("|", "/").split())


def path_of_rank(path: str | os.PathLike, rank: int) -> Path:
    """Returns the file of a rank: `ops.rank1.log` for `ops.log`."""
    return _with(path, f"rank{rank}")


def _with(path: str | os.PathLike, part: str) -> Path:
    path = Path(path)
    return path.with_name(f"{path.stem}.{part}{path.suffix}")


def read_log(path: str | os.PathLike) -> list[Instruction]:
    """Returns the instructions of a log, of all its ranks, in the order in which they began.

    Args:
        path: as in MYTORCH_INSTRUCTION_LOG, or the file of one rank.

    Instructions have `start` in seconds since 1970, and the duration None if they never ended. Files that an
    earlier run has left are left out; a line on the standard error names them.

    Raises:
        FileNotFoundError: no such log.
        ValueError: a file that is no log.
        OSError: it is a folder, a FIFO or a device, or can't be read.
    """
    path = Path(path)
    paths = sorted(path.parent.glob(f"{glob.escape(path.stem)}.rank*{path.suffix}"))
    if path.exists() and all(_time_of(path) >= _time_of(p) for p in paths):
        paths = [path]  # else it is of an earlier run, or of the process that started the ranks
    if not paths:
        raise FileNotFoundError(f"{path}: no such log, and no {path_of_rank(path, 0).name} of its ranks")
    logs = {file: found for file in paths if (found := _read_file(file))}
    earlier = _earlier(logs)
    if earlier:
        names = ", ".join(file.name for file in earlier)
        print(printable(f"left out, of an earlier run: {names}"), file=sys.stderr)
    found = [i for file in logs if file not in earlier for i in logs[file]]
    return sorted(found, key=lambda i: i.start)


def _earlier(logs: dict[Path, list[Instruction]]) -> list[Path]:
    """Returns the logs of an earlier run than the last: the ranks of one begin within minutes.

    A log that ended before another began is one, too; a log without an end may be of a rank that hangs.
    """
    began = {file: _time_of(file) for file in logs}
    last = max(began.values(), default=0.0)
    return [
        file for file, found in logs.items()
        if began[file] < last - _APART or max(i.start + _seconds(i) for i in found) < last - _PAUSE
    ]


def _seconds(i: Instruction) -> float:
    return math.inf if i.duration is None else i.duration


def _read_file(path: Path) -> list[Instruction]:
    """Returns the instructions of one rank; [] for a file that an earlier run with more ranks left."""
    header = _header_of(path)
    first = path_of_rank(re.sub(r"\.rank\d+(?=\.|$)", "", str(path)), 0)
    if path == first and int(header["rank"]):
        raise ValueError(f"{path} is damaged: the log of rank 0 says that it is rank {header['rank']}'s")
    if ".rank" in path.name and first.exists() and int(header["rank"]) >= _world_of(first):
        return []
    zero, found, running, damaged = float(header["time"]), [], {}, None
    with open_regular(path) as file:
        file.readline(_LONGEST)
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 2):
            if damaged is not None:  # a line in the middle; the last one may be cut off
                raise damaged
            try:
                _add(_text_of(line), zero, found, running)
            except ValueError as error:
                damaged = ValueError(f"{path}:{number} is no line of an instruction log: {error}")
    return found


def _add(line: str, zero: float, found: list[Instruction], running: dict[int, Instruction]) -> None:
    """Adds the instruction that a line begins to those that were found, or ends one that runs.

    Raises:
        ValueError: it is no such line.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(repr(line[:100]))
    if match["event"] == "START":
        i = _started(match, zero)
        running[i.number] = i
        found.append(i)
        return
    outputs, duration = _values(match["values"]), _DURATION.fullmatch(match["last"])
    if duration is None:
        raise ValueError(f"the duration {match['last'][:100]!r}")
    i = running.pop(int(match["number"]), None)
    if i is not None:
        i.outputs = tuple(v for _, v in outputs if isinstance(v, Operand))
        i.duration, i.failed = float(duration[1]) / 1e3, match["event"] == "FAILED"
        # after its first line was written, so that it lies within the operation around it
        i.start = zero + float(match["time"]) - i.duration


def _text_of(line: bytes) -> str:
    return printable(line.decode(errors="replace").removesuffix("\n"))


def _started(match: re.Match, zero: float) -> Instruction:
    pairs = _values(match["values"])
    module = "" if match["last"] == "-" else match["last"]
    # a block of a program has no arguments, but may have the text that was given to record_function
    is_block = all(k == "args" and not isinstance(v, Operand) for k, v in pairs)
    i = Instruction(
        int(match["number"]), match["name"], match["phase"], module,
        None if is_block else tuple(k for k, _ in pairs),
        tuple(v for _, v in pairs), {}, None, int(match["rank"]), int(match["thread"] or 0),
    )
    i.start, i.site = zero + float(match["time"]), match["site"] or ""
    return i


def _values(text: str) -> list[tuple[str, Operand | str]]:
    pairs = (pair.partition("=") for pair in text.split())
    return [(name, _operand(value) or value) for name, _, value in pairs]


def _operand(text: str) -> Operand | None:
    match = _OPERAND.fullmatch(text)
    if match is None:
        return None
    number, dtype, sizes, device = match.groups()
    shape = tuple(map(int, filter(None, sizes.split(","))))
    try:
        kind = dtypes.as_dtype(dtype)
    except TypeError as error:
        raise ValueError(str(error)) from None
    nbytes = kind.itemsize
    for size in shape:
        nbytes *= size
    return Operand(int(number), shape, kind, device or "cpu", nbytes)


def world_size() -> int:
    """Returns the number of ranks, by the launcher's environment; 1 without one."""
    found = (os.environ.get(name, "") for name in _SIZES)
    return next((int(size) for size in found if size.isdecimal()), 1)


def _world_of(path: Path) -> int:
    found = re.search(rf"world=({_COUNT})", _header_of(path)[0])
    return int(found[1]) if found else 1


def _time_of(path: Path) -> float:
    """Returns when the process of a log began, in seconds since 1970."""
    return float(_header_of(path)["time"])


def _header_of(path: Path) -> re.Match:
    with open_regular(path) as file:
        header = _FACTS.fullmatch(_text_of(file.readline(_LONGEST)))
    if header is None:
        raise ValueError(f"{path} is no instruction log: its first line isn't '{_HEADER}: rank=… time=…'")
    return header
