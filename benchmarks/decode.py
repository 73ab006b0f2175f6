"""Time how fast a GPT writes, token by token with a cache of keys and values, beside PyTorch eager.

    python -m benchmarks.decode [--config nano|small|gpt2] [--rounds N]

Each implementation lives in a process of its own; they take turns, with the same weights and the same prompt,
batch 1, float32. Both take the most probable token each time, and must write the same text. A time is that of
the whole call: the prompt, then one token at a time. Times are medians over the turns during which no other
program used the processor. Exit code 1: the texts differ, or a worker ended early.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.decode_problem import LENGTHS
from benchmarks.gpt_step import Variant
from benchmarks.machine import cpu_model
from benchmarks.problem import CONFIGS, save_problem
from benchmarks.protocol import WorkerError
from benchmarks.report import LossMismatch, Measurement
from benchmarks.turns import TurnsParser, take_turns

VARIANTS = [
    Variant("PyTorch eager", "benchmarks.workers.torch_decode"),
    Variant("mytorch", "benchmarks.workers.mytorch_decode"),
]


def report(config: str, about: list[dict], measurements: list[Measurement], limit: float) -> str:
    """The text that is printed; a ratio is how many times as many tokens per second the first one's are."""
    length = LENGTHS[config]
    lines = [
        f"GPT-2 {config}: {CONFIGS[config]}; float32",
        f"{length.new} tokens after a prompt of {length.prompt}, batch 1, greedy; the texts are the same",
        cpu_model(),
        *(
            f"{m.label}: {facts['version']}; {facts['blas']}; {facts['threads']} threads"
            for m, facts in zip(measurements, about, strict=True)
        ),
        "",
        f"{'':<20}{'ms/token':>10}{'tokens/s':>10}{'ratio':>7}{'quiet turns':>15}",
    ]
    ms = [statistics.median(m.times(limit)) / length.new for m in measurements]
    for m, each in zip(measurements, ms, strict=True):
        lines.append(
            f"{m.label:<20}{each:>10.2f}{1e3 / each:>10.1f}{ms[0] / each:>7.2f}"
            f"{len(m.quiet(limit)):>9} of {len(m.chunks)}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = TurnsParser("decode", __doc__, 7)
    parser.add_argument("--config", default="gpt2", choices=LENGTHS, metavar="nano|small|gpt2")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="mytorch-decode-") as folder:
        problem = Path(folder) / "problem.npz"
        save_problem(problem, CONFIGS[args.config])
        try:
            about, (measurements,) = take_turns(
                VARIANTS, [args.config, str(problem)], 1, args.rounds, args.other_cores,
                LENGTHS[args.config].repeats + 1, tolerance=0,
            )  # fmt: skip
        except (LossMismatch, WorkerError) as error:
            sys.exit(f"benchmarks.decode: {error}")
    print(report(args.config, about, measurements, args.other_cores))


if __name__ == "__main__":
    main()
