"""Draws a timeline with matplotlib, as PNG or SVG."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..utils.atomic import atomic_write
from .timeline import COLOURS, COMPUTE, LANES, PHASE_COLOURS, Bar, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LANE, _GAP, _BAND = 1.0, 0.14, 0.55  # heights of a lane, between lanes, between ranks
_TEXT = "#333333"


def draw_timeline(line: Timeline, path: str | os.PathLike, title: str = "", dpi: int = 160) -> None:
    """Draws a timeline to a file, whose suffix is `.png` or `.svg`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a picture of the timeline needs matplotlib: pip install matplotlib") from error
    bottoms = _bottoms(line)
    figure = Figure(figsize=(13, 1.5 + 0.62 * len(bottoms) + 0.2 * len(line.ranks)), dpi=dpi)
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.125, right=0.935, top=1 - 0.5 / figure.get_figheight(),
                           bottom=0.95 / figure.get_figheight())
    axes = figure.add_subplot()
    middles: dict[int, float] = {}
    for (rank, lane), bottom in bottoms.items():
        _draw_lane(axes, line, rank, lane, bottom, middles)
    for arrow in line.arrows:
        start = 1e3 * arrow.late.start, middles[id(arrow.late)]
        end = 1e3 * arrow.waiting.end, middles[id(arrow.waiting)]
        style = {"arrowstyle": "-|>", "color": "#333333", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=end, xytext=start, zorder=5, arrowprops={**style, "mutation_scale": 9})
        axes.plot(*start, marker="o", markersize=2.5, color="#333333", zorder=5)
    _decorate(axes, line, bottoms, title)
    kind = os.path.splitext(path)[1].lstrip(".").lower()
    with atomic_write(path) as file:
        figure.savefig(file, format=kind)


def _bottoms(line: Timeline) -> dict[tuple[int, str], float]:
    """Returns the lower edge of each lane; rank 0 is at the top. A lane that no rank uses isn't drawn."""
    lanes = [lane for lane in LANES if any((rank, lane) in line.bars for rank in line.ranks)]
    found, y = {}, 0.0
    for rank in line.ranks:
        for lane in lanes:
            y -= _LANE + _GAP
            found[rank, lane] = y
        y -= _BAND
    return found


def _draw_lane(
    axes: Axes, line: Timeline, rank: int, lane: str, bottom: float, middles: dict[int, float]
) -> None:
    """Draws the bars of a lane, and adds the middle of each to `middles`, by its id."""
    axes.axhspan(bottom, bottom + _LANE, color="#f6f6f6", zorder=0, linewidth=0)
    if lane == COMPUTE:
        phases = line.phases[rank]
        axes.broken_barh(
            [(1e3 * start, 1e3 * (end - start)) for _, start, end in phases], (bottom, _LANE),
            facecolors=[PHASE_COLOURS.get(phase, "#f6f6f6") for phase, _, _ in phases], zorder=1, linewidth=0,
        )
        for phase, start, end in phases:
            if end - start > 0.06 * line.seconds:
                axes.text(1e3 * (start + end) / 2, bottom + _LANE + 0.03, phase, ha="center", va="bottom",
                          fontsize=7.5, color="#777777")
    _draw_bars(axes, line, line.bars.get((rank, lane), []), bottom, middles)
    idle = f"{line.idle(rank, lane):.0%} idle"
    axes.text(1.006, bottom + _LANE / 2, idle, transform=axes.get_yaxis_transform(), va="center",
              fontsize=8.5, color=_TEXT)


def _draw_bars(axes: Axes, line: Timeline, bars: list[Bar], bottom: float, middles: dict[int, float]) -> None:
    """Draws bars as one collection, or two: an artist for each of many thousands takes minutes."""
    from matplotlib.collections import PolyCollection

    for is_hatched in (False, True):
        shown, corners = [bar for bar in bars if bar.is_hatched is is_hatched], []
        for bar in shown:
            row = _LANE / bar.rows
            height = 0.94 * row * bar.height
            low = bottom + bar.row * row + (row - height) / 2
            middles[id(bar)] = low + height / 2
            left, right, high = 1e3 * bar.start, 1e3 * bar.end, low + height
            corners.append([(left, low), (left, high), (right, high), (right, low)])
        # between wide ones a white line, which would hide a narrow one
        edges = [0.25 if bar.end - bar.start > 0.002 * line.seconds else 0.0 for bar in shown]
        colours = [COLOURS[bar.instruction.kind] for bar in shown]
        axes.add_collection(
            PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=edges, zorder=3,
                           hatch="///" if is_hatched else None), autolim=False,
        )


def _decorate(axes: Axes, line: Timeline, bottoms: dict, title: str) -> None:
    from matplotlib.patches import Patch

    lanes = len({lane for _, lane in bottoms})
    for n, ((rank, lane), bottom) in enumerate(bottoms.items()):
        axes.text(-0.008, bottom + _LANE / 2, lane, transform=axes.get_yaxis_transform(), ha="right",
                  va="center", fontsize=8.5, color=_TEXT)
        if n % lanes == 0:
            axes.text(-0.132, bottom + _LANE + 0.03, f"rank {rank}", transform=axes.get_yaxis_transform(),
                      fontsize=10.5, fontweight="bold", va="bottom", color=_TEXT)
    axes.set(ylim=(min(bottoms.values()) - 0.1, 0.12), yticks=[])
    axes.set_xlim(1e3 * line.begin, 1e3 * (line.begin + line.seconds))
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)  # times that --start takes
    axes.set_xlabel("milliseconds since the first operation", fontsize=9, color=_TEXT)
    axes.set_title(title, loc="left", fontsize=11.5, color=_TEXT, pad=10, parse_math=False)
    axes.tick_params(labelsize=8.5, colors=_TEXT)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="x", color="white", linewidth=1.0, zorder=2)
    times = line.seconds_by_kind()
    whole = sum(times.values()) or 1.0
    shown = [
        Patch(color=COLOURS[kind], label=f"{kind} {t / whole:.0%}")
        for kind, t in times.items() if t > 0.005 * whole
    ]
    axes.figure.legend(
        handles=shown, loc="lower center", ncol=min(len(shown), 8), frameon=False, fontsize=8.5,
        handlelength=1.0, handleheight=1.0, columnspacing=1.4, bbox_to_anchor=(0.53, 0.0),
    )
