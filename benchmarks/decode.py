"""Time how fast a GPT writes, token by token with a cache of keys and values, beside PyTorch eager.

    python -m benchmarks.decode [--config nano|small|gpt2] [--rounds N] [--out FILE]

The libraries take turns, with the same weights and the same prompt, batch 1, float32. Both take the most
probable token each time, and must write the same text. A time is that of the whole call: the prompt, then one
token at a time; the median of the quiet turns counts. Exit code 1: the texts differ, or a worker failed.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.gpt import CONFIGS
from benchmarks.harness import MYTORCH, TORCH, Plan, Task, by_library, measure, parser, show

# tokens of the prompt, tokens that follow it, texts in a turn
LENGTHS = {"nano": (16, 48, 20), "small": (32, 128, 6), "gpt2": (32, 64, 2), "tiny": (3, 5, 2)}


def jobs(library: Any, name: str) -> list[Callable[[], Task]]:
    """Returns the only job, whose steps write a text and return its fingerprint."""
    config, (length, new, _) = CONFIGS[name], LENGTHS[name]
    prompt = np.random.default_rng(3).integers(0, config.vocab_size, (1, length))

    def make() -> Task:
        generation = import_module(f"benchmarks.gpt_{library.__name__}").generation
        generate = generation(config, library.from_numpy(prompt), new)
        return Task(lambda: float(zlib.crc32(np.asarray(generate(), np.int64).tobytes())))

    return [make]


def main(argv: list[str] | None = None) -> None:
    options = parser("decode", __doc__, 7)
    options.add_argument("--config", default="gpt2", choices=LENGTHS, metavar="nano|small|gpt2")
    args = options.parse_args(argv)
    name, (length, new, texts) = args.config, LENGTHS[args.config]
    plan = Plan("decode", texts, warm_up=1, tolerance=0.0)
    result = measure(plan, [TORCH, MYTORCH], [name], [("text", name)], args)
    what = f"{new} tokens after a prompt of {length}, batch 1, greedy; the texts are the same"
    title = f"GPT-2 {name}: {CONFIGS[name]}; float32\n{what}"
    show(title, result, by_library(result, "token", new, new), args)


if __name__ == "__main__":
    main()
