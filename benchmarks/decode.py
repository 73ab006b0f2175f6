"""Time how fast a GPT writes, token by token with a cache of keys and values, beside PyTorch eager.

    python -m benchmarks.decode [--config nano|small|gpt2] [--rounds N]

Each implementation lives in a process of its own; they take turns, with the same weights and the same prompt,
batch 1, float32. Both take the most probable token each time, and must write the same text. A time is that of
the whole call: the prompt, then one token at a time. Times are medians over the turns during which no other
program used the processor. Exit code 1: the texts differ, or a worker ended early.
"""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import Measurement, TurnsParser, Variant, facts_lines, measure
from benchmarks.problem import CONFIGS, save_problem


@dataclass(frozen=True)
class Length:
    """Tokens of the prompt, tokens that follow it, and how often a worker generates them in one turn."""

    prompt: int
    new: int
    repeats: int

    def prompt_of(self, config: str) -> np.ndarray:
        """The prompt, (1, prompt) int64, the same in every process."""
        return np.random.default_rng(3).integers(0, CONFIGS[config].vocab_size, (1, self.prompt))


LENGTHS = {
    "nano": Length(16, 48, 20),
    "small": Length(32, 128, 6),
    "gpt2": Length(32, 64, 2),
    "tiny": Length(3, 5, 2),  # for the tests
}


def fingerprint(tokens: list[int]) -> float:
    """A number that is different for different tokens, but for an accident."""
    return float(zlib.crc32(np.asarray(tokens, np.int64).tobytes()))


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
        *facts_lines([m.label for m in measurements], about),
        "",
        f"{'':<20}{'ms/token':>10}{'tokens/s':>10}{'ratio':>7}{'quiet turns':>15}",
    ]
    ms = [m.median(limit) / length.new for m in measurements]
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
        about, (measurements,) = measure(
            "decode", args, VARIANTS, [args.config, str(problem)], 1, LENGTHS[args.config].repeats + 1, 0
        )
    print(report(args.config, about, measurements, args.other_cores))


if __name__ == "__main__":
    main()
