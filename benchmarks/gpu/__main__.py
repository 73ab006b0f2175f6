"""Measure all that runs on a GPU: whether the kernels are right, how fast they are, and GPT-2's training.

    python -m benchmarks.gpu --out DIR [--sections NAME...] [--kernels NAME...] [--quick] [--minutes N]

It needs CuPy and Triton; PyTorch, where it is installed, is the peer. Sections:

    ceilings   bandwidth of copies and triads, rate of matrix products in float32, TF32, float16, bfloat16
    parity     every kernel in every dtype, odd and real sizes, against float64; PyTorch's own error
    kernels    forward and backward at GPT-2's sizes, against CuPy alone, PyTorch eager, torch.compile
    train      tokens a second of GPT-2 124M in float16, batch 64 x 1024, eager and as a CUDA graph
    fp16       200 steps of it in float16, the losses beside PyTorch's

Each works in processes of its own, with a time limit. Whatever fails is written down, and the rest goes on.
All figures are in DIR/gpu.json, which is written after every section and keeps the sections of earlier runs
on the same GPU and versions; DIR/gpu.md has the tables. Exit code 1: a result was wrong, or something of ours
failed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu import sections
from benchmarks.gpu.sections import SECTIONS, Context
from benchmarks.gpu.sizes import SIZES
from benchmarks.gpu.stream import ask_all
from benchmarks.gpu.tables import markdown, problems
from mytorch.utils.atomic import atomic_write

NAME = "benchmarks.gpu"
START_S = 300.0  # that a process may take to say what it is: Triton builds its launcher, once


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for gpu.json and gpu.md")
    parser.add_argument(
        "--sections", nargs="+", default=list(SECTIONS), choices=SECTIONS, metavar="NAME", help="all of them"
    )
    parser.add_argument("--kernels", nargs="+", default=[], metavar="NAME", help="only these kernels")
    parser.add_argument(
        "--dtypes", nargs="+", default=["float16"], choices=("float16", "float32"), metavar="NAME",
        help="that the kernels are timed in: float16 float32 (float16)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", dest="size", action="store_const", const="quick", default="full",
        help="less of everything: a look at whether it works",
    )  # fmt: skip
    parser.add_argument("--size", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=30, help="that a section may take (30)")
    parser.add_argument(
        "--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)), metavar="N",
        help="processes that compare kernels at the same time, most of which is compiling (8)",
    )  # fmt: skip
    parser.add_argument("--no-peer", action="store_true", help="leave PyTorch out")
    args = parser.parse_args(argv)
    if args.minutes <= 0 or args.jobs < 1:
        parser.error(f"--minutes and --jobs must be positive, got {args.minutes:g} and {args.jobs}")
    unknown = {*args.kernels} - sections.known_kernels() if args.kernels else ()
    if unknown:
        known = ", ".join(sorted(sections.known_kernels()))
        parser.error(f"there is no kernel {', '.join(sorted(unknown))}; there are {known}")
    return args


def who_is_there(peer: bool) -> tuple[dict, dict]:
    """What mytorch's process says of itself and its GPU, and what PyTorch's does, or why it is missing.

    Raises:
        RuntimeError: no CuPy, no GPU or no Triton; the message says what to install.
    """
    if importlib.util.find_spec("cupy") is None:
        raise RuntimeError("CuPy is not installed: pip install 'mytorch[cuda12]' or 'mytorch[cuda13]'")
    about = _introduce("mytorch")
    if "error" in about:
        raise RuntimeError(about["error"])
    if not peer or not sections.has_peer():
        return about, {"missing": "not installed" if peer else "--no-peer"}
    theirs = _introduce("PyTorch eager")
    return about, {"missing": theirs["error"]} if "error" in theirs else theirs


def _introduce(who: str) -> dict:
    deadline = time.monotonic() + START_S
    ((_, answer),) = ask_all(*sections.WHO[who], [{"do": "about"}], START_S, deadline)
    if "error" in answer:
        return {"error": sections.reason(answer["error"]).removeprefix("RuntimeError: ")}
    return answer["result"]


def resume(file: Path, about: dict, peer: dict, size: str) -> dict:
    """The sections of an earlier run under the same conditions."""
    try:
        found = json.loads(file.read_text("utf-8"))
        same = (found["about"], found["peer"], found["size"]) == (about, peer, size)
        return found["sections"] if same else {}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        say(f"{file} can't be read, and is replaced: {error!r}")
        return {}


def finite(value: Any) -> Any:
    """None in place of inf and NaN, which JSON doesn't have."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(folder: Path, result: dict) -> None:
    """gpu.json and gpu.md, whole or as they were."""
    with atomic_write(folder / "gpu.json") as file:
        file.write_text(json.dumps(finite(result), indent=1, allow_nan=False) + "\n", "utf-8")
    with atomic_write(folder / "gpu.md") as file:
        file.write_text(markdown(finite(result)), "utf-8")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        about, peer = who_is_there(not args.no_peer)
    except RuntimeError as error:
        sys.exit(f"{NAME}: {error}")
    say(f"{about['gpu']}; PyTorch: {peer.get('pytorch') or peer['missing']}")
    result = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "about": about,
        "peer": peer,
        "size": args.size,
        "sections": resume(args.out / "gpu.json", about, peer, args.size),
    }
    for name in args.sections:
        say(f"{name}:")
        context = Context(
            name, args.size, args.kernels, args.dtypes, "pytorch" in peer,
            about["bfloat16"], args.jobs, time.monotonic() + 60 * args.minutes, say,
        )  # fmt: skip
        result["sections"][name] = sections.run(context)
        write(args.out, result)
    print(markdown(finite(result)))
    found = problems(finite(result))
    if found:
        sys.exit(f"{NAME}: {len(found)} problems, see above and {args.out / 'gpu.json'}")


if __name__ == "__main__":
    main()
