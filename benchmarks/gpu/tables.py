"""The figures as Markdown, and what is wrong with them."""

from math import isfinite, isnan, nan

from benchmarks.gpu.sections import reason
from benchmarks.harness import table

LOSS_TOLERANCE = 0.05  # of a loss beside PyTorch's: rounding differs in every step of a long run
SHOWN = 30  # kernels of a profile; gpu.json has all
DTYPES = ("float32", "float16", "bfloat16")


def markdown(result: dict) -> str:
    """Returns all tables; those of sections that weren't run aren't there."""
    about, sections, peer = result["about"], result["sections"], result["peer"]
    text = "; ".join(f"{name} {value}" for name, value in about.items())
    text += f"; PyTorch {peer.get('pytorch') or peer['missing']}; {result['size']} size, {result['date']}.\n"
    for name, (title, show) in TABLES.items():
        if name in sections:
            rows = _rows(sections, name)
            text += f"\n**{title}** ({sections[name]['seconds']:.0f} s)\n\n"
            text += show(rows, sections) if rows else "No figures.\n"
    found = problems(result)
    text += f"\n**{len(found)} problems:**\n\n" if found else "\nAll is right.\n"
    return text + "".join(f"- {problem}\n" for problem in found)


def problems(result: dict) -> list[str]:
    """Returns a line for all that makes the run a failure: of mytorch no result, or a wrong one."""
    found, sections = [], result["sections"]
    for name, section in sections.items():
        for row in section["rows"]:
            if row["library"] == "mytorch" and (wrong := row.get("failed") or row.get("wrong")):
                found.append(f"{name}: {row['who']}, {row['case']}: {reason(wrong)}")
    trained = _rows(sections, "train")
    for row in trained:
        if row["library"] == "mytorch" and not (by := loss_difference(row, trained)) <= LOSS_TOLERANCE:
            found.append(f"train: {row['who']}, {row['case']}: losses differ by {by:.1e}")
    return found


def loss_difference(row: dict, rows: list[dict]) -> float:
    """Returns the largest |a - b| / b of a run's losses and PyTorch's, or those of the eager run; NaN if one
    is not finite."""
    losses = {other["who"]: other["losses"] for other in rows if other["dtype"] == row["dtype"]}
    reference = losses.get("PyTorch eager") or losses.get("mytorch") or row["losses"]
    differences = [abs(a - b) / abs(b) for a, b in zip(row["losses"], reference, strict=True)]
    return max(differences) if all(map(isfinite, differences)) else nan


def _rows(sections: dict, name: str) -> list[dict]:
    """Returns those that have a result."""
    return [row for row in sections.get(name, {}).get("rows", []) if "failed" not in row]


def ceiling(sections: dict, *whats: str) -> float:
    """Returns the highest of these figures; NaN if none was measured."""
    return max((row["value"] for row in _rows(sections, "ceilings") if row["what"] in whats), default=nan)


def _number(x: float, form: str) -> str:
    return "" if isnan(x) else format(x, form)


def _ceilings(rows: list[dict], sections: dict) -> str:
    return table(["", "best"], [[row["what"], f"{row['value']:,.1f} {row['unit']}"] for row in rows])


def _parity(rows: list[dict], sections: dict) -> str:
    lines = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        mine = [row for row in rows if row["kernel"] == kernel]
        wrong = sum(bool(row["wrong"]) for row in mine)
        errors = [max((row["error"] for row in mine if row["dtype"] == d), default=nan) for d in DTYPES]
        lines.append([kernel, str(len(mine)), str(wrong), *(_number(error, ".1e") for error in errors)])
    said = "Largest error of results and gradients, as a fraction of the largest number.\n\n"
    return said + table(["kernel", "cases", "wrong", *DTYPES], lines)


def _kernels(rows: list[dict], sections: dict) -> str:
    peers, lines, seen = ("CuPy alone", "PyTorch eager", "torch.compile"), [], {}
    for row in rows:
        seen.setdefault(row["kernel"], {})[row["who"]] = row
    for kernel, times in seen.items():
        first, ours = next(iter(times.values())), times.get("mytorch", {})
        moved, moved_back, flops, flops_back = first["cost"]
        speeds = _speeds(ours.get("forward"), moved, flops, sections)
        speeds += _speeds(ours.get("both"), moved + moved_back, flops + flops_back, sections)
        others = [times[who]["both"] or times[who]["forward"] if who in times else None for who in peers]
        lines.append([kernel, first["shape"], *speeds, *(f"{t['ms']:.3f}" if t else "" for t in others)])
    said = "Milliseconds in float16 with a cold cache. Share: the time ceilings allow, by that taken.\n\n"
    speeds = ["GB/s", "TFLOP/s", "share"]
    return said + table(["kernel", "size", "forward", *speeds, "both", *speeds, *peers], lines)


def _speeds(seen: dict | None, moved: int, flops: int, sections: dict) -> list[str]:
    """Returns the time, both speeds, and max(bytes / bandwidth, operations / rate) / time."""
    if not seen:
        return [""] * 4
    ms, least = seen["ms"], moved / ceiling(sections, "copy", "add") / 1e6
    least = max(least, flops / ceiling(sections, "float16") / 1e9) if flops else least
    return [f"{ms:.3f}", f"{moved / ms / 1e6:,.0f}", f"{flops / ms / 1e9:,.0f}", _number(least / ms, ".0%")]


def _train(rows: list[dict], sections: dict) -> str:
    eager, lines = {row["dtype"]: row["ms"] for row in rows if row["who"] == "PyTorch eager"}, []
    for row in rows:
        windows = row["windows_ms"]
        lines.append([
            f"{row['who']}, {row['dtype']}", f"{row['ms']:.1f}", f"{min(windows):.1f} – {max(windows):.1f}",
            f"{row['tokens_per_second']:,.0f}", f"{row['tflops']:,.1f}",
            _number(row["tflops"] / ceiling(sections, row["dtype"]), ".0%"),
            _number(row["ms"] / eager.get(row["dtype"], nan), ".2f"), f"{row['bytes'] / 2**30:,.1f} GiB",
            f"{row['losses'][-1]:.4f}", _number(loss_difference(row, rows), ".1e"),
        ])  # fmt: skip
    head = ["", "ms/step", "fastest – slowest", "tokens/s", "TFLOP/s", "of the rate", "ratio", "memory"]
    head += [f"loss after {len(rows[0]['losses'])} steps", "differ by"]
    return f"GPT-2, {rows[0]['config']}; with float32 masters.\n\n{table(head, lines)}"


def _profile(rows: list[dict], sections: dict) -> str:
    names, text = ("ms", "host_ms", "gradients_ms", "update_ms"), ""
    lines = []
    for row in rows:
        busy = f"{sum(ms for _, _, ms in row['kernels']):.2f}" if row["kernels"] else row["missing"]
        lines.append([f"{row['who']}, {row['dtype']}", *(f"{row[name]:.2f}" for name in names), busy])
        kernels = [[name[:80], str(calls), f"{ms:.3f}"] for name, calls, ms in row["kernels"][:SHOWN]]
        text += f"\n{row['who']}:\n\n{table(['kernel', 'calls', 'ms'], kernels)}" if kernels else ""
    head = ["", "ms/step", "of Python", "forward, backward", "update", "sum of the kernels"]
    return table(head, lines) + text


TABLES = {
    "ceilings": ("What the chip can do", _ceilings),
    "train": ("Training speed", _train),
    "profile": ("Where the time of a step goes", _profile),
    "parity": ("Kernels against float64", _parity),
    "kernels": ("Times of the kernels", _kernels),
}
