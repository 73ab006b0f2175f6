"""The figures as Markdown, and what is wrong with them."""

from __future__ import annotations

import math
from typing import Any

LOSS_TOLERANCE = 0.05  # of a loss in float16 beside PyTorch's: rounding differs in every step of a long run
DTYPES = ("float32", "float16", "bfloat16")
FAILED = "it failed"  # in place of what is wrong with a case
OURS = ("mytorch", "mytorch, captured", "CuPy alone")


def markdown(result: dict) -> str:
    """All tables; those of sections that weren't run aren't there."""
    about, sections = result["about"], result["sections"]
    parts = [
        f"{about['gpu']}, driver {about['driver']}, CUDA {about['cuda_runtime']}; "
        f"mytorch {about['mytorch']}, CuPy {about['cupy']}, Triton {about['triton']}, "
        f"Python {about['python']}; {_peer(result['peer'])}; {result['size']} size, {result['date']}."
    ]
    for name, table in TABLES.items():
        if name in sections:
            section = sections[name]
            parts += ["", f"**{TITLES[name]}** ({section['seconds']:.0f} s)", ""]
            parts += table(section["rows"], sections) if section["rows"] else ["No figures."]
            parts += [line for note in section["notes"] for line in ("", note)]
    found = problems(result)
    parts += ["", "All is right." if not found else f"**{len(found)} problems:**"]
    return "\n".join([*parts, *(["", *(f"- {problem}" for problem in found)] if found else [])]) + "\n"


def problems(result: dict) -> list[str]:
    """A line for all that makes the run a failure: broken sections, failed items of ours, wrong results."""
    found = []
    for name, section in result["sections"].items():
        if section["error"]:
            found.append(f"{name}: broken, {section['error'].strip().splitlines()[-1]}")
        for failure in section["failures"]:
            if failure["who"] in OURS:
                item = " ".join(str(v) for k, v in failure["item"].items() if k not in ("do", "size"))
                said = failure["error"].strip().splitlines() or ["unknown"]
                found.append(f"{name}: {failure['who']}, {item}: {said[-1]}")
    for row in result["sections"].get("parity", {}).get("rows", []):
        if row["wrong"] and row["wrong"] != FAILED:
            case = f"{row['kernel']}, {row['table']} case {row['row']}, {row['dtype']}"
            found.append(f"parity: {case}: {row['wrong'].splitlines()[0]}")
    difference = loss_difference(result["sections"].get("fp16", {}).get("rows", []))
    if difference is not None and not difference <= LOSS_TOLERANCE:
        found.append(f"fp16: the losses differ by {difference:.1e}, allowed {LOSS_TOLERANCE:.0e}")
    return found


def ceiling(sections: dict, *whats: str) -> float | None:
    """The highest of these figures; None if none was measured."""
    rows = sections.get("ceilings", {}).get("rows", [])
    return max((row["value"] for row in rows if row["what"] in whats), default=None)


def share(cost: dict, passes: tuple[str, ...], ms: float, dtype: str, sections: dict) -> float | None:
    """The time that the chip's ceilings allow, as a share of the measured one; None without ceilings.

    max(bytes / bandwidth, operations / rate) / time
    """
    bandwidth, rate = ceiling(sections, "copy", "triad"), ceiling(sections, dtype)
    moved, flops = (sum(cost[f"{p}_{what}"] for p in passes) for what in ("bytes", "flops"))
    if bandwidth is None or (flops and rate is None):
        return None
    return max(moved / bandwidth / 1e6, flops / rate / 1e9 if flops else 0.0) / ms


def loss_difference(rows: list[dict]) -> float | None:
    """The largest |a - b| / b of two runs; inf if a loss is no number; None if there is only one run."""
    losses = [row["losses"] for row in rows]
    if any(loss is None or not math.isfinite(loss) for run in losses for loss in run):
        return math.inf
    if len(losses) < 2:
        return None
    return max(abs(a - b) / abs(b) for a, b in zip(*losses[:2], strict=True))


def _peer(peer: dict) -> str:
    return f"PyTorch {peer['pytorch']}" if "pytorch" in peer else f"no PyTorch ({peer['missing']})"


def _number(x: float | None, form: str) -> str:
    return "" if x is None else format(x, form)


def _ceilings(rows: list[dict], sections: dict) -> list[str]:
    lines = ["| | best | measured |", "|---|--:|---|"]
    for row in rows:
        tried = ", ".join(f"{_size_of(tried)}: {tried['value']:,.1f}" for tried in row["tried"])
        lines.append(f"| {row['what']} | {row['value']:,.1f} {row['unit']} | {tried} |")
    return lines


def _size_of(tried: dict) -> str:
    return f"{tried['n']} × {tried['n']}" if "n" in tried else f"{tried['bytes'] / 2**20:,.0f} MiB"


def _parity(rows: list[dict], sections: dict) -> list[str]:
    lines = [
        "Largest error of results and gradients, as a fraction of the largest number; PyTorch's in brackets.",
        "",
        f"| kernel | cases | wrong | {' | '.join(DTYPES)} |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        mine = [row for row in rows if row["kernel"] == kernel]
        cells = [_errors([row for row in mine if row["dtype"] == dtype]) for dtype in DTYPES]
        wrong = sum(bool(row["wrong"]) for row in mine)
        lines.append(f"| `{kernel}` | {len(mine)} | {wrong} | {' | '.join(cells)} |")
    return lines


def _errors(rows: list[dict]) -> str:
    ours = [_largest(row) for row in rows if row["error"] is not None]
    theirs = [_largest(row["peer"]) for row in rows if "error" in (row.get("peer") or {})]
    return (f"{max(ours):.1e}" if ours else "") + (f" ({max(theirs):.1e})" if theirs else "")


def _largest(row: dict) -> float:
    return max(row["error"], row["gradient_error"] or 0.0)


def _kernels(rows: list[dict], sections: dict) -> list[str]:
    lines = [
        "Milliseconds with a cold cache. The share is that of the measured ceilings: the least time that the "
        "least bytes and operations take, by the time taken.",
        "",
        "| kernel | size | forward | GB/s | TFLOP/s | share | both | GB/s | TFLOP/s | share | CuPy alone "
        "| PyTorch eager | torch.compile |",
        "|---|---|" + "--:|" * 11,
    ]
    for row in rows:
        cells = [f"`{row['kernel']}` {row['dtype']}", row["size"]]
        ours = row["times"].get("mytorch", {})
        for key, passes in (("forward", ("forward",)), ("total", ("forward", "backward"))):
            cells += _speeds(row, ours.get(key), passes, sections)
        for who in ("CuPy alone", "PyTorch eager", "torch.compile"):
            times = row["times"].get(who)
            cells.append("" if times is None else f"{(times['total'] or times['forward'])['ms']:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _speeds(row: dict, seen: dict | None, passes: tuple[str, ...], sections: dict) -> list[str]:
    if seen is None:
        return [""] * 4
    ms, cost = seen["ms"], row["cost"]
    moved, flops = (sum(cost[f"{p}_{what}"] for p in passes) for what in ("bytes", "flops"))
    part = share(cost, passes, ms, row["dtype"], sections)
    return [
        f"{ms:.3f}", f"{moved / ms / 1e6:,.0f}", f"{flops / ms / 1e9:,.0f}" if flops else "",
        _number(part, ".0%"),
    ]  # fmt: skip


def _train(rows: list[dict], sections: dict) -> list[str]:
    rate = ceiling(sections, "float16")
    eager = next((row["ms"] for row in rows if row["who"] == "PyTorch eager"), None)
    config = rows[0]["config"]
    lines = [
        f"GPT-2, {config['n_layer']} layers, {config['n_embd']} wide, {config['batch_size']} x "
        f"{config['context_length']} tokens a step, float16 with float32 masters. Ratio: time by that of "
        "PyTorch eager.",
        "",
        "| | ms/step | fastest – slowest | tokens/s | TFLOP/s | of the matrix rate | ratio | memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        tflops = row["tokens_per_second"] * row["flops_per_token"] / 1e12
        windows = row["windows_ms"]
        lines.append(
            f"| {row['who']} | {row['ms']:.1f} | {min(windows):.1f} – {max(windows):.1f} "
            f"| {row['tokens_per_second']:,.0f} | {tflops:,.1f} | {_number(rate and tflops / rate, '.0%')} "
            f"| {_number(eager and row['ms'] / eager, '.2f')} | {row['bytes'] / 2**30:,.1f} GiB |"
        )
    return lines


def _fp16(rows: list[dict], sections: dict) -> list[str]:
    count = min(len(row["losses"]) for row in rows)
    steps = sorted({0, count // 4, count // 2, 3 * count // 4, count - 1})
    lines = [
        f"Loss at a step; no model can have less than {rows[0]['least_loss']:.3f} on these tokens.",
        "",
        f"| | {' | '.join(map(str, steps))} | loss scale | skipped |",
        "|---|" + "--:|" * (len(steps) + 2),
    ]
    for row in rows:
        losses = " | ".join(_number(row["losses"][step], ".4f") for step in steps)
        lines.append(f"| {row['who']} | {losses} | {row['scale']:,.0f} | {row.get('skipped', '')} |")
    difference = loss_difference(rows)
    if difference is not None:
        lines += ["", f"The largest relative difference of the losses is {difference:.1e}."]
    return lines


TITLES = {
    "ceilings": "What the chip can do",
    "parity": "Kernels against float64",
    "kernels": "Times of the kernels",
    "train": "Training speed",
    "fp16": "Training in float16",
}
TABLES: dict[str, Any] = {
    "ceilings": _ceilings,
    "parity": _parity,
    "kernels": _kernels,
    "train": _train,
    "fp16": _fp16,
}
