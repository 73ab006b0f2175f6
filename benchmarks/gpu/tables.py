"""The figures as Markdown, and what is wrong with them."""

from math import isfinite, isnan, nan

from benchmarks.gpu.sections import reason
from benchmarks.tables import table

LOSS_TOLERANCE = 0.05  # of a loss beside PyTorch's: rounding differs in every step of a long run
DTYPES = ("float32", "float16", "bfloat16")


def markdown(result: dict) -> str:
    """Returns all tables; those of sections that weren't run aren't there."""
    about, sections, peer = result["about"], result["sections"], result["peer"]
    text = "; ".join(f"{name} {value}" for name, value in about.items())
    text += f"; PyTorch {peer.get('pytorch') or peer['missing']}; {result['size']} size, {result['date']}.\n"
    for name, (title, show) in TABLES.items():
        if name in sections:
            rows = sections[name]["rows"]
            text += f"\n**{title}** ({sections[name]['seconds']:.0f} s)\n\n"
            text += show(rows, sections) if rows else "No figures.\n"
    found = problems(result)
    text += f"\n**{len(found)} problems:**\n\n" if found else "\nAll is right.\n"
    return text + "".join(f"- {problem}\n" for problem in found)


def problems(result: dict) -> list[str]:
    """Returns a line for all that makes the run a failure: sections, questions to mytorch, wrong results."""
    found, sections = [], result["sections"]
    for name, section in sections.items():
        if section["error"]:
            found.append(f"{name}: broken, {reason(section['error'])}")
        for failure in section["failures"]:
            if failure["library"] == "mytorch":
                found.append(f"{name}: {failure['what']}: {reason(failure['error'])}")
    for row in _rows(sections, "parity"):
        if row["wrong"]:
            case = f"{row['kernel']}, {row['table']} case {row['row']}, {row['dtype']}"
            found.append(f"parity: {case}: {row['wrong'].splitlines()[0]}")
    for dtype, difference in loss_differences(sections).items():
        if not difference <= LOSS_TOLERANCE:
            found.append(f"fp16: losses in {dtype} differ by {difference:.1e}, allowed {LOSS_TOLERANCE:.0e}")
    return found


def loss_differences(sections: dict) -> dict[str, float]:
    """Returns the largest |a - b| / b by dtype, between mytorch and PyTorch; NaN if a loss is not finite."""
    found: dict[str, float] = {}
    rows = {(row["library"], row["dtype"]): row["losses"] for row in _rows(sections, "fp16")}
    for (library, dtype), ours in rows.items():
        theirs = rows.get(("torch", dtype), ours)
        if library == "mytorch":
            differences = [abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)]
            found[dtype] = max(differences) if all(map(isfinite, differences)) else nan
    return found


def _rows(sections: dict, name: str) -> list[dict]:
    return sections.get(name, {}).get("rows", [])


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
    peers, lines = ("CuPy alone", "PyTorch eager", "torch.compile"), []
    for row in rows:
        cells = [row["kernel"], row["size"]]
        ours, (moved, moved_back, flops, flops_back) = row["times"].get("mytorch", {}), row["cost"]
        cells += _speeds(ours.get("forward"), moved, flops, sections)
        cells += _speeds(ours.get("both"), moved + moved_back, flops + flops_back, sections)
        for who in peers:
            times = row["times"].get(who, {})
            cells.append(f"{(times['both'] or times['forward'])['ms']:.3f}" if times else "")
        lines.append(cells)
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
    eager = next((row["ms"] for row in rows if row["who"] == "PyTorch eager"), nan)
    rate, lines = ceiling(sections, "float16"), []
    for row in rows:
        tflops, windows = row["tokens_per_second"] * row["flops_per_token"] / 1e12, row["windows_ms"]
        lines.append([
            row["who"], f"{row['ms']:.1f}", f"{min(windows):.1f} – {max(windows):.1f}",
            f"{row['tokens_per_second']:,.0f}", f"{tflops:,.1f}", _number(tflops / rate, ".0%"),
            _number(row["ms"] / eager, ".2f"), f"{row['bytes'] / 2**30:,.1f} GiB",
        ])  # fmt: skip
    head = ["", "ms/step", "fastest – slowest", "tokens/s", "TFLOP/s", "of the rate", "ratio", "memory"]
    return f"GPT-2, {rows[0]['config']}; float16 with float32 masters.\n\n{table(head, lines)}"


def _fp16(rows: list[dict], sections: dict) -> str:
    count = len(rows[0]["losses"])
    steps, lines = sorted({0, count // 4, count // 2, 3 * count // 4, count - 1}), []
    for row in rows:
        losses = [f"{row['losses'][step]:.4f}" for step in steps]
        lines.append([f"{row['library']} {row['dtype']}", *losses, f"{row['scale']:,.0f}"])
    found = [f"{value:.1e} in {dtype}" for dtype, value in loss_differences(sections).items()]
    after = f"\nThe largest relative difference of the losses is {', '.join(found)}.\n"
    return table(["loss at a step", *map(str, steps), "loss scale"], lines) + after


TABLES = {
    "ceilings": ("What the chip can do", _ceilings),
    "train": ("Training speed", _train),
    "parity": ("Kernels against float64", _parity),
    "kernels": ("Times of the kernels", _kernels),
    "fp16": ("Training in half precision", _fp16),
}
