"""The figures as Markdown, and what is wrong with them."""

from collections.abc import Iterator
from math import isfinite, isnan, nan

from benchmarks.gpu.sections import reason
from benchmarks.gpu.sizes import SIZES
from benchmarks.harness import table

VALUE_TOLERANCE = 1e-3  # of what programs compute, beside PyTorch's or eager's, whose LSTM computes in TF32
LOSS_TOLERANCE = 0.05  # of a loss beside PyTorch's: rounding differs in every step of a long run
SHOWN = 30  # kernels of a profile; gpu.json has all
DTYPES = ("float32", "float16", "bfloat16")


def markdown(result: dict) -> str:
    """Returns all tables; those of sections that weren't run aren't there."""
    about, sections, peer = result["about"], result["sections"], result["peer"]
    text = "; ".join(f"{name} {value}" for name, value in about.items())
    text += f"; PyTorch {peer.get('pytorch') or peer['missing']}; {result['size']} size, {result['date']}.\n"
    for name, show in TABLES.items():
        if name in sections:
            rows = list(show(_rows(sections, name), sections))
            text += f"\n**{name}** ({sections[name]['seconds']:.0f} s). {show.__doc__}\n\n"
            cells = [[*map(_cell, row.values())] for row in rows]
            text += table([*rows[0]], cells) if rows else "No figures.\n"
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
    values = {(row["job"], row["library"]): row["value"] for row in reversed(_rows(sections, "programs"))}
    for row in _rows(sections, "programs"):
        want = values.get((row["job"], "torch"), values[row["job"], row["library"]])
        if row["library"] == "mytorch" and not abs(row["value"] - want) <= VALUE_TOLERANCE * abs(want):
            found.append(f"programs: {row['who']}, {row['case']}: {row['value']:.6g}, expected {want:.6g}")
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


def _cell(value: str | float) -> str:
    return value if isinstance(value, str) else "" if isnan(value) else f"{value:,.4g}"


def ceiling(sections: dict, *whats: str) -> float:
    """Returns the highest of these figures; NaN if none was measured."""
    return max((row["value"] for row in _rows(sections, "ceilings") if row["what"] in whats), default=nan)


def _parity(rows: list[dict], sections: dict) -> Iterator[dict]:
    """The largest error of results and gradients, as a fraction of the largest number."""
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        mine = [row for row in rows if row["kernel"] == kernel]
        yield {"kernel": kernel, "cases": len(mine), "wrong": sum(bool(row["wrong"]) for row in mine)} | {
            d: max((row["error"] for row in mine if row["dtype"] == d), default=nan) for d in DTYPES
        }


def _kernels(rows: list[dict], sections: dict) -> Iterator[dict]:
    """In float16 with a cold cache. Share: the time that the ceilings allow, by that taken."""
    rate = ceiling(sections, "float16")
    for row in sorted(rows, key=lambda row: row["kernel"]):
        moved, moved_back, flops, flops_back = row["cost"]
        found = {"kernel": row["kernel"], "size": row["shape"], "": row["who"]}
        passes = ("forward", moved, flops), ("both", moved + moved_back, flops + flops_back)
        for name, moved, flops in passes:
            ms = row[name]["ms"] if row[name] else nan
            least = max(moved / ceiling(sections, "copy", "add") / 1e6, flops and flops / rate / 1e9)
            speeds = {"GB/s": moved / ms / 1e6, "TFLOP/s": flops / ms / 1e9, "share": least / ms}
            found |= {f"{name}, ms": ms} | {f"{name}, {what}": value for what, value in speeds.items()}
        yield found


def _train(rows: list[dict], sections: dict) -> Iterator[dict]:
    """GPT-2 with float32 masters; ratio: to PyTorch eager; the losses differ at most by so much."""
    eager = {row["dtype"]: row["ms"] for row in rows if row["who"] == "PyTorch eager"}
    for row in rows:
        yield {
            "": f"{row['who']}, {row['dtype']}", "ms/step": row["ms"], "fastest": min(row["windows_ms"]),
            "slowest": max(row["windows_ms"]), "tokens/s": row["tokens_per_second"],
            "TFLOP/s": row["tflops"], "share": row["tflops"] / ceiling(sections, row["dtype"]),
            "ratio": row["ms"] / eager.get(row["dtype"], nan), "GiB": row["bytes"] / 2**30,
            "last loss": row["losses"][-1], "differ by": loss_difference(row, rows),
        }


def _profile(rows: list[dict], sections: dict) -> Iterator[dict]:
    """Where the time of a step goes: all of it, that of Python, and that of each kernel."""
    for row in rows:
        parts = [("a step", 1, row["ms"]), ("Python", 1, row["host_ms"]), *row["kernels"][:SHOWN]]
        for name, calls, ms in parts:
            yield {"": row["who"], "what": name[:80], "calls": calls, "ms": ms}


def _programs(rows: list[dict], sections: dict) -> Iterator[dict]:
    """Calls in float32, with the work of the CPU; ratio: to PyTorch eager."""
    eager = {row["job"]: row["ms"] for row in rows if row["who"] == "PyTorch eager"}
    for row in sorted(rows, key=lambda row: list(SIZES["full"].programs).index(row["job"])):
        yield {
            "job": row["job"], "size": row["size"], "": row["who"], "ms": row["ms"],
            "fastest": min(row["windows_ms"]), "slowest": max(row["windows_ms"]),
            "ratio": row["ms"] / eager.get(row["job"], nan), "value": row["value"],
        }


def _ceilings(rows: list[dict], sections: dict) -> Iterator[dict]:
    """What the chip can do at best."""
    return ({"": row["what"], "best": row["value"], "unit": row["unit"]} for row in rows)


TABLES = {
    "ceilings": _ceilings, "train": _train, "profile": _profile, "programs": _programs, "parity": _parity,
    "kernels": _kernels,
}
