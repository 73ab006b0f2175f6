"""FlopCounterMode: the floating-point operations of what runs, by module and operation."""

from __future__ import annotations

from collections import defaultdict

from .flops import product_flops
from .instruction import Instruction
from .recording import Sink, start, stop

UNITS = ("", "K", "M", "G", "T", "P", "E")


class FlopCounterMode(Sink):
    """A context that counts the floating-point operations of products, 2 M N K for (M, K) by (K, N).

    Matrix products are all that is counted, as in PyTorch; attention and convolutions are made of them. What
    is counted is what runs: forward, backward and what a checkpoint computes again (see `stream.flops`); of
    a convolution with groups that is less than PyTorch says, whose backward formula ignores the groups. On
    the device "meta" it takes no time, whatever the size of the tensors; the count is that of every device.

    Args:
        mods: ignored; modules are found by themselves, as in PyTorch.
        depth: of the modules in the table; None for all.
        display: prints the table at the end.

    Source: torch.utils.flop_counter, https://docs.pytorch.org/docs/2.13/_modules/torch/utils/flop_counter.html

    >>> from mytorch.utils.flop_counter import FlopCounterMode
    >>> with FlopCounterMode(display=False) as counter:
    ...     y = nn.Linear(3, 5, device="meta")(mytorch.empty(2, 3, device="meta"))
    >>> counter.get_total_flops()
    60
    """

    def __init__(self, mods: object = None, depth: int | None = 2, display: bool = True):
        self.depth, self.display = depth, display
        self._counts: dict[tuple[str, str], int] = defaultdict(int)  # by module and operation

    def __enter__(self) -> FlopCounterMode:
        self._counts.clear()
        start(self)
        return self

    def __exit__(self, *exception: object) -> None:
        stop(self)
        if self.display and exception[0] is None:
            print(self.get_table())

    def end(self, instruction: Instruction) -> None:
        """Counts what ran."""
        if count := product_flops(instruction):
            self._counts[instruction.module, instruction.name] += count

    def get_total_flops(self) -> int:
        """Returns the sum."""
        return sum(self._counts.values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Returns the counts by module and operation: "Global" for all, a module with those inside it."""
        found: dict[str, dict[str, int]] = {"Global": defaultdict(int)}
        for (module, name), count in self._counts.items():
            for path in ("Global", *with_parents(module)):
                found.setdefault(path, defaultdict(int))[name] += count
        return {path: dict(counts) for path, counts in found.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Returns the counts as text, modules down to `depth`."""
        depth, total = self.depth if depth is None else depth, self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for path, counts in sorted(self.get_flop_counts().items(), key=lambda item: item[0] != "Global"):
            level = 0 if path == "Global" else path.count(".") + 1
            if depth is None or level <= depth:
                rows.append(_row("  " * level + path, sum(counts.values()), total))
                rows += [_row(f"{'  ' * level} - {name}", count, total) for name, count in counts.items()]
        return aligned(rows)


def with_parents(path: str) -> list[str]:
    """Returns the paths of a module and of those that it is in: "h", "h.0", "h.0.mlp" for "h.0.mlp"."""
    parts = path.split(".") if path else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _row(name: str, count: int, total: int) -> tuple[str, str, str]:
    return name, with_unit(count), f"{count / total:.2%}" if total else "0%"


def with_unit(count: float) -> str:
    """Returns a number with three digits after the point and a unit: 1.500K, 2.000G."""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.3f}{UNITS[power]}" if power else f"{count:g}"


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Returns a table as text; the first column is aligned left, the others right, below a line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]])
