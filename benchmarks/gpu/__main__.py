"""Measure all that runs on a GPU: whether the kernels are right, how fast they are, and GPT-2's training.

    python -m benchmarks.gpu --out DIR [--sections NAME...] [--kernels NAME...] [--quick] [--minutes N]

It needs CuPy and Triton; PyTorch, where it is installed, is the peer. Sections:

    ceilings   bandwidth of copies and sums, rate of matrix products in float32, TF32, float16, bfloat16
    train      tokens a second of GPT-2 124M in float16, batch 64 x 1024, eager and as a CUDA graph
    parity     every kernel in every dtype, odd and real sizes, against float64
    kernels    forward and backward at GPT-2's sizes, against CuPy alone, PyTorch eager, torch.compile
    fp16       200 steps of it in float16 and in bfloat16, the losses beside PyTorch's

Each works in processes of its own, with a time limit. Whatever fails is written down, and the rest goes on.
All figures are in DIR/gpu.json, which is written after every section and keeps the sections of earlier runs
on the same GPU and versions; DIR/gpu.md has the tables. Exit code 1: a result was wrong, or something of ours
failed.
"""

import argparse
import datetime
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.gpu import sections
from benchmarks.gpu.sections import SECTIONS, Context, say
from benchmarks.gpu.sizes import SIZES
from benchmarks.gpu.tables import markdown, problems
from benchmarks.harness import positive
from benchmarks.processes import ask_all
from benchmarks.tables import write, write_json

NAME = "benchmarks.gpu"
START_S = 300.0  # that a process may take to say what it is: Triton builds its launcher, once


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="for gpu.json and gpu.md")
    add("--sections", nargs="+", default=list(SECTIONS), choices=SECTIONS, metavar="NAME", help="all of them")
    add("--kernels", nargs="+", default=[], metavar="NAME", help="only these kernels")
    add("--quick", dest="size", action="store_const", const="quick", default="full",
        help="less of everything: a look at whether it works")  # fmt: skip
    add("--size", choices=SIZES, help=argparse.SUPPRESS)
    add("--minutes", type=float, default=30, help="that a section may take (30)")
    add("--jobs", type=positive, default=max(1, min(8, (os.cpu_count() or 1) // 2)), metavar="N",
        help="processes that compare kernels at the same time, most of which is compiling (8)")  # fmt: skip
    add("--no-peer", action="store_true", help="leave PyTorch out")
    args = parser.parse_args(argv)
    if args.kernels and (unknown := {*args.kernels} - sections.known_kernels()):
        known = ", ".join(sorted(sections.known_kernels()))
        parser.error(f"there is no kernel {', '.join(sorted(unknown))}; there are {known}")
    return args


def introduce(library: str) -> dict:
    """Returns what the library's process says of itself and its GPU, or {"missing": the reason}."""
    command, deadline = ["benchmarks.gpu.worker", library], time.monotonic() + START_S
    ((_, answer),) = ask_all(command, {}, [{"do": "about"}], START_S, deadline)
    if "error" in answer:
        return {"missing": sections.reason(answer["error"]).removeprefix("RuntimeError: ")}
    return answer["result"]


def who_is_there(peer: bool) -> tuple[dict, dict]:
    """Returns what both libraries say of themselves; ends the program without CuPy, a GPU or Triton."""
    if importlib.util.find_spec("cupy") is None:
        sys.exit(f"{NAME}: CuPy is not installed: pip install 'mytorch[cuda12]' or 'mytorch[cuda13]'")
    about = introduce("mytorch")
    if "missing" in about:
        sys.exit(f"{NAME}: {about['missing']}")
    if not peer:
        return about, {"missing": "--no-peer"}
    is_installed = importlib.util.find_spec("torch") is not None
    return about, introduce("torch") if is_installed else {"missing": "not installed"}


def resume(file: Path, about: dict, peer: dict, size: str) -> dict:
    """Returns the sections of an earlier run under the same conditions."""
    found = json.loads(file.read_text("utf-8")) if file.exists() else {}
    same = (found.get("about"), found.get("peer"), found.get("size")) == (about, peer, size)
    return found["sections"] if same else {}


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    about, peer = who_is_there(not args.no_peer)
    say(f"{about['gpu']}; PyTorch: {peer.get('pytorch') or peer['missing']}")
    result = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "about": about,
        "peer": peer,
        "size": args.size,
        "sections": resume(args.out / "gpu.json", about, peer, args.size),
    }
    libraries = ["mytorch", *["torch"] * ("pytorch" in peer)]
    halves = ["float16", *["bfloat16"] * (about["ml_dtypes"] != "not installed")]  # CuPy needs it
    for name in args.sections:
        say(f"{name}:")
        context = Context(name, args, libraries, halves, time.monotonic() + 60 * args.minutes)
        result["sections"][name] = sections.run(context)
        write_json(args.out / "gpu.json", result)
        write(args.out / "gpu.md", markdown(result))
    print(markdown(result))
    if found := problems(result):
        sys.exit(f"{NAME}: {len(found)} problems, see above and {args.out / 'gpu.json'}")


if __name__ == "__main__":
    main()
