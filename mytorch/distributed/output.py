"""OutputFilter: passes on the output of ranks, but holds back messages of the launcher command."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TextIO

from .error_report import ERROR_LINE, write_error
from .processes import GRACE_SECONDS

_TAG = re.compile(r"^(?:\[(?:[^\],]*,)?(\d+)\]<std(?:out|err)>:|(\d+):) ?")  # mpiexec's, srun's
_NEXT_TAG = re.compile(r"(?!^)(?=\[[^\],]*,\d+\]<std(?:out|err)>:)")  # after a last line without its end
_RULE = re.compile(r"^-{70,}$")  # Open MPI puts its messages between two of these
_LAUNCHER_MESSAGES = (
    "prterun ", "prte ", "PRTE ", "mpiexec ", "MPI_ABORT ", "Primary job ", "A process or daemon", "PMIx ",
)
# Open MPI warns when the remote shell exits quickly, and of the delay that launcher_command.py sets. The last
# two come from a rank's MPI when the ranks disagree, before our own error explains that.
_NOISE = re.compile(
    r"^\[[^]]*\] (?:plm:ssh: Warning: setpgid|Delaying for \d+ seconds before aborting)"
    r"|^MPI Error in NBC subrequest |^NBC_Progress: an error "
)


class OutputFilter(threading.Thread):
    """Copies a stream.

    Args:
        source, target: binary input, text output.
        tagged: each line starts with the launcher command's tag; it is replaced by `[rank]`.
        folder: for error reports that come from other machines through this stream.

    Attributes:
        held: the launcher command's own messages. They are less precise than the ranks' reports, so they are
            shown only if no rank reports anything.
    """

    def __init__(self, source: BinaryIO, target: TextIO, tagged: bool, folder: Path):
        super().__init__(daemon=True)
        self._source, self._tagged, self._folder = source, tagged, folder
        self._target: TextIO | None = target
        self._framed: list[tuple[str, str]] | None = None  # lines since a rule
        self._is_writing, self._count = False, 0  # lines so far
        self.held = ""

    def run(self) -> None:
        for line in self._source:
            self._count += 1
            text = line.decode(errors="replace").lstrip("\0")  # Open MPI ends messages with a C string's \0
            *others, last = _NEXT_TAG.split(text) if self._tagged else [text]
            for part in others:
                self._handle(*self._split_tag(f"{part}\n"))
            self._handle(*self._split_tag(last))
        for line in self._framed or ():
            self._show(*line)

    def finish(self, interrupted: Callable[[], object]) -> None:
        """Waits until all lines are passed on, however slowly the target takes them, or it is interrupted.

        A process that isn't the job's may keep the source open; what it doesn't write is not waited for.
        """
        count = -1
        while self.is_alive() and (self._is_writing or count != self._count):
            count = self._count
            self.join(GRACE_SECONDS)
            if interrupted():
                break

    def _split_tag(self, line: str) -> tuple[str, str]:
        """Returns the prefix to show, and the line without its tag."""
        if self._tagged and (tag := _TAG.match(line)):
            return f"[{tag[1] or tag[2]}] ", line[tag.end() :]
        return "", line

    def _handle(self, prefix: str, line: str) -> None:
        if self._framed is not None:
            self._handle_framed(prefix, line)
        elif _RULE.match(line):
            self._framed = [(prefix, line)]
        elif ERROR_LINE in line and self._is_report(line.partition(ERROR_LINE)[2]):
            pass
        elif _NOISE.match(line):
            self.held += line
        else:
            self._show(prefix, line)

    def _is_report(self, text: str) -> bool:
        """Writes an error report of another machine; returns False for text that isn't one."""
        try:
            write_error(self._folder, json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        return True

    def _handle_framed(self, prefix: str, line: str) -> None:
        self._framed.append((prefix, line))
        if len(self._framed) == 2 and not line.startswith(_LAUNCHER_MESSAGES):
            lines, self._framed = self._framed, None
            for shown in lines:
                self._show(*shown)
        elif _RULE.match(line):
            self.held += "".join(line for _, line in self._framed)
            self._framed = None

    def _show(self, prefix: str, line: str) -> None:
        if self._target is not None:
            self._is_writing = True
            try:
                self._target.write(prefix + line)
                self._target.flush()
            except (OSError, ValueError):  # closed, or a full disk; the ranks must not block on that
                self._target = None
            self._is_writing = False
