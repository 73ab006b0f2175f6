"""What the ranks and their starter write: passed on line by line, but for what the launcher itself wants."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

from .failure import ERROR_LINE, keep

_TAG = re.compile(r"^(?:\[(?:[^\],]*,)?(\d+)\]<std(?:out|err)>:|(\d+):) ?")  # mpiexec's, srun's
_RULE = re.compile(r"^-{70,}$")  # Open MPI puts its own messages between two of these
_ITS_OWN = (
    "prterun ", "prte ", "PRTE ", "mpiexec ", "MPI_ABORT ", "Primary job ", "A process or daemon", "PMIx ",
)  # fmt: skip
# It says so when the agent was quick to start; and the other, in a second that starters.py asks for. The last
# two come from a rank's MPI when the ranks disagree, before our own error says how.
_NOISE = re.compile(
    r"^\[[^]]*\] (?:plm:ssh: Warning: setpgid|Delaying for \d+ seconds before aborting)"
    r"|^MPI Error in NBC subrequest |^NBC_Progress: an error "
)


class Output(threading.Thread):
    """Passes on a stream.

    Args:
        source, target: bytes in, text out.
        tagged: each line begins with the starter's tag; it becomes `[rank]`.
        folder: where errors go that come by this way, from other machines.

    Attributes:
        held: the starter's own messages; they say less than the ranks do, so they are shown only when nobody
            else says anything.
    """

    def __init__(self, source: Any, target: Any, tagged: bool, folder: Path):
        super().__init__(daemon=True)
        self._source, self._target, self._tagged, self._folder = source, target, tagged, folder
        self._block: list[tuple[str, str]] | None = None  # lines since a rule
        self.held = ""

    def run(self) -> None:
        for line in self._source:
            text = line.decode(errors="replace").lstrip("\0")  # the end of Open MPI's last message, as in C
            self._take(*self._without_tag(text))
        for line in self._block or ():
            self._show(*line)

    def _without_tag(self, line: str) -> tuple[str, str]:
        """What to put before the line, and the line."""
        if self._tagged and (tag := _TAG.match(line)):
            return f"[{tag[1] or tag[2]}] ", line[tag.end() :]
        return "", line

    def _take(self, prefix: str, line: str) -> None:
        if self._block is not None:
            self._collect(prefix, line)
        elif _RULE.match(line):
            self._block = [(prefix, line)]
        elif ERROR_LINE in line:
            self._keep_error(line.partition(ERROR_LINE)[2])
        elif _NOISE.match(line):
            self.held += line
        else:
            self._show(prefix, line)

    def _collect(self, prefix: str, line: str) -> None:
        self._block.append((prefix, line))
        if len(self._block) == 2 and not line.startswith(_ITS_OWN):
            block, self._block = self._block, None
            for entry in block:
                self._show(*entry)
        elif _RULE.match(line):
            self.held += "".join(line for _, line in self._block)
            self._block = None

    def _keep_error(self, text: str) -> None:
        keep(self._folder, json.loads(text))

    def _show(self, prefix: str, line: str) -> None:
        if self._target is not None:
            try:
                self._target.write(prefix + line)
                self._target.flush()
            except (BrokenPipeError, ValueError):  # nobody reads; the ranks must not wait for that
                self._target = None
