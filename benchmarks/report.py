"""From chunks of training steps to figures: which chunks count, whether the losses agree, the table."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field

TOLERANCE = 1e-4


class LossMismatch(RuntimeError):
    """Two implementations computed different losses, so their times can't be compared."""


@dataclass(frozen=True)
class Chunk:
    """Some training steps in a row: mean time of one, and the cores that others kept busy meanwhile."""

    ms: float
    other_cores: float | None  # None where the system doesn't tell

    def is_quiet(self, limit: float) -> bool:
        """Whether others used at most `limit` cores; an unknown load passes, and the report says so."""
        return self.other_cores is None or self.other_cores <= limit


@dataclass
class Measurement:
    """All that was measured of one implementation."""

    label: str
    about: dict
    chunks: list[Chunk] = field(default_factory=list)
    peak_memory: int = 0

    def quiet(self, limit: float) -> list[Chunk]:
        """The chunks that others did not disturb."""
        return [chunk for chunk in self.chunks if chunk.is_quiet(limit)]

    def times(self, limit: float) -> list[float]:
        """Milliseconds a step of the quiet chunks; of all of them where none was quiet."""
        return [chunk.ms for chunk in self.quiet(limit) or self.chunks]


def loss_differences(losses: list[float], reference: list[float]) -> list[float]:
    """|a - b| / max(1, |b|) of each step, which is the smaller of the absolute and the relative difference.

    Infinite where a loss is NaN or infinite. Raises ValueError where the numbers of steps differ.
    """
    return [
        abs(a - b) / max(1.0, abs(b)) if math.isfinite(a) and math.isfinite(b) else math.inf
        for a, b in zip(losses, reference, strict=True)
    ]


def check_losses(label: str, losses: list[float], reference_label: str, reference: list[float]) -> float:
    """The largest difference; raises LossMismatch, naming the first step, where it is above TOLERANCE."""
    differences = loss_differences(losses, reference)
    for step, difference in enumerate(differences):
        if difference > TOLERANCE:
            raise LossMismatch(
                f"the losses differ by {difference:.1e} at step {step}, "
                f"allowed {TOLERANCE:.0e}: {label} {losses[step]:.7f}, "
                f"{reference_label} {reference[step]:.7f}"
            )
    return max(differences)


def summarize(measurements: list[Measurement], tokens: int, limit: float) -> list[dict]:
    """One row of figures a measurement; `ratio` is to the first one's time."""
    medians = [statistics.median(measured.times(limit)) for measured in measurements]
    return [
        {
            "label": measured.label,
            **measured.about,
            "ms": ms,
            "fastest_ms": min(measured.times(limit)),
            "slowest_ms": max(measured.times(limit)),
            "tokens_per_second": tokens / ms * 1e3,
            "ratio": ms / medians[0],
            "peak_memory": measured.peak_memory,
            "quiet_chunks": len(measured.quiet(limit)),
            "all_chunks": len(measured.chunks),
            "chunks": [asdict(chunk) for chunk in measured.chunks],
        }
        for measured, ms in zip(measurements, medians, strict=True)
    ]


def table(rows: list[dict]) -> str:
    """The rows as text, one line each."""
    lines = [
        f"{'':<26}{'ms/step':>9}{'fastest – slowest':>20}{'tokens/s':>11}{'ratio':>7}"
        f"{'peak RSS':>11}{'chunks':>12}"
    ]
    for row in rows:
        span = f"{row['fastest_ms']:.1f} – {row['slowest_ms']:.1f}"
        chunks = f"{row['quiet_chunks']} of {row['all_chunks']}"
        lines.append(
            f"{row['label']:<26}{row['ms']:>9.1f}{span:>20}{row['tokens_per_second']:>11,.0f}"
            f"{row['ratio']:>7.2f}{row['peak_memory'] / 2**20:>7,.0f} MiB{chunks:>12}"
        )
    return "\n".join(lines)


def quietness(rows: list[dict], wanted: int, limit: float) -> str:
    """A sentence on the discarded chunks; it begins with NOT QUIET where the figures can't be trusted."""
    if any(chunk["other_cores"] is None for row in rows for chunk in row["chunks"]):
        return "NOT KNOWN TO BE QUIET: this system has no /proc/stat, so no chunk was discarded."
    total = sum(row["all_chunks"] for row in rows)
    discarded = total - sum(row["quiet_chunks"] for row in rows)
    said = f"{discarded} of {total} chunks discarded: others used more than {limit:g} cores during them."
    if all(row["quiet_chunks"] >= wanted for row in rows):
        return said
    busy = statistics.median(chunk["other_cores"] for row in rows for chunk in row["chunks"])
    used_all = [row["label"] for row in rows if not row["quiet_chunks"]]
    missing = f" No chunk of {', '.join(used_all)} was quiet: all of them are counted." if used_all else ""
    return (
        f"NOT QUIET: {said} That leaves fewer than the {wanted} quiet ones a row that were wanted; "
        f"others used {busy:.2f} cores in the median.{missing} Measure again when the machine is idle."
    )
