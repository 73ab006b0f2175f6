"""Measure all that runs on a GPU: whether the kernels are right, how fast they are, and GPT-2's training.

    python -m benchmarks.gpu --out DIR [--sections NAME...] [--kernels NAME...] [--quick] [--minutes N]

It needs CuPy and Triton; PyTorch, where it is installed, is the peer. Sections:

    ceilings   bandwidth of copies and sums, rate of matrix products in float32, TF32, float16, bfloat16
    train      GPT-2 124M, batch 64 x 1024, float16 and bfloat16: tokens a second, eager and as a CUDA graph,
               losses beside PyTorch's
    profile    a step of it by kernel, and Python's time
    programs   training steps and functions, eager, compiled, and as a CUDA graph
    parity     every kernel in every dtype, odd and real sizes, against float64; cross entropy at full size
    kernels    forward and backward at GPT-2's sizes, against CuPy alone, PyTorch eager, torch.compile

Each works in processes of its own; what fails is a row with its error. DIR/gpu.json is written after every
row and keeps the sections of earlier runs on the same GPU and versions; DIR/gpu.md has the tables. Exit code
1: a result was wrong, or something of ours failed.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.gpu import sections
from benchmarks.gpu.sections import SECTIONS, say
from benchmarks.gpu.sizes import SIZES
from benchmarks.gpu.tables import markdown, problems
from benchmarks.harness import positive, write
from benchmarks.processes import ask_all

NAME, DATE = "benchmarks.gpu", "%Y-%m-%d %H:%M:%S %z"
START_S = 300.0  # that a process may take to say what it is: Triton builds its launcher, once


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {NAME}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="for gpu.json and gpu.md")
    add("--sections", nargs="+", default=list(SECTIONS), choices=SECTIONS, metavar="NAME", help="all of them")
    known = sections.known_kernels()
    add("--kernels", nargs="+", default=known, choices=known, metavar="NAME", help="only these kernels")
    add("--quick", dest="size", action="store_const", const="quick", default="full",
        help="less of everything: a look at whether it works")
    add("--size", choices=SIZES, help=argparse.SUPPRESS)
    add("--minutes", type=float, default=8, help="that a section may take (8)")
    add("--jobs", type=positive, default=max(1, min(8, (os.cpu_count() or 1) // 2)), metavar="N",
        help="processes that compare kernels at the same time, most of which is compiling (8)")
    add("--no-peer", action="store_true", help="leave PyTorch out")
    return parser.parse_args(argv)


def introduce(library: str, size: str) -> dict:
    """Returns what the library's process says of itself and its GPU, or {"missing": the reason}."""
    command, deadline = ["benchmarks.gpu.worker", library, size], time.monotonic() + START_S
    ((_, answer),) = ask_all(command, {}, [{"do": "about"}], START_S, deadline)
    if "error" in answer:
        return {"missing": sections.reason(answer["error"]).removeprefix("RuntimeError: ")}
    return answer["result"]


def measure(name: str, result: dict, args: argparse.Namespace) -> None:
    """Adds a section to the result, which is saved after every row."""
    begin, processes = time.monotonic(), args.jobs if name == "parity" else 1
    halves = ["float16", *["bfloat16"] * ("ml_dtypes" in result["about"])]  # CuPy needs it
    groups = SECTIONS[name](SIZES[args.size], halves, args.kernels)
    groups = [group for group in groups if group.library == "mytorch" or "pytorch" in result["peer"]]

    def save(rows: list[dict]) -> None:
        seconds = round(time.monotonic() - begin, 1)
        result["sections"][name] = {"date": time.strftime(DATE), "seconds": seconds, "rows": rows}
        write(args.out / "gpu.json", result)

    save([])
    deadline = begin + 60 * args.minutes
    sections.run(groups, args.size, deadline, processes, save)
    write(args.out / "gpu.md", markdown(result))


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    about = introduce("mytorch", args.size)
    if "missing" in about:  # CuPy, a GPU, or Triton
        sys.exit(f"{NAME}: {about['missing']}")
    peer = {"missing": "--no-peer"} if args.no_peer else introduce("torch", args.size)
    say(f"{about['gpu']}; PyTorch: {peer.get('pytorch') or peer['missing']}")
    result = {"date": time.strftime(DATE), "about": about, "peer": peer, "size": args.size, "sections": {}}
    if (args.out / "gpu.json").exists():  # of an earlier run
        known = json.loads((args.out / "gpu.json").read_text("utf-8"))
        if all(known[name] == result[name] for name in ("about", "peer", "size")):
            result["sections"] = known["sections"]
    for name in args.sections:
        say(f"{name}:")
        measure(name, result, args)
    print(markdown(result))
    if found := problems(result):
        sys.exit(f"{NAME}: {len(found)} problems, see above and {args.out / 'gpu.json'}")


if __name__ == "__main__":
    main()
