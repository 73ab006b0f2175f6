"""What is generated: sizes of prompt and continuation for every model of `benchmarks.problem`."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from benchmarks.problem import CONFIGS


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
