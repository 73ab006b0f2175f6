"""
Token files: a text as numbers, as the scripts in prepare_data/ write it into a folder.

- train.bin, val.bin: the tokens one after the other, uint16
- tokenizer.json: what made them of the text
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .data.dataset import Dataset

_OF_GPT2 = 50304  # its 50,257 tokens, rounded up to a multiple of 64


def load_tokens(folder: str | Path, split: str, context_length: int) -> np.memmap:
    """The tokens of a split, "train" or "val": (N,) uint16, read from the file where they are looked at.

    Raises:
        FileNotFoundError: it isn't there.
        ValueError: N is too small for a window of `context_length` and what follows its last token.
    """
    path = Path(folder) / f"{split}.bin"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing; make it with: "
            f"python prepare_data/prepare_shakespeare.py --path_to_save {folder}"
        )
    size = path.stat().st_size // 2
    if size <= context_length:
        raise ValueError(f"{path} has {size} tokens, too few for a context of {context_length}")
    return np.memmap(path, dtype=np.uint16, mode="r", shape=(size,))


class TokenWindows(Dataset[np.ndarray]):
    """A dataset of all windows of a split: sample i holds tokens i … i + context_length, int64.

    These are context_length tokens and, one further, the targets: `x, y = batch[:, :-1], batch[:, 1:]`.

    Args and errors: see `load_tokens`.
    """

    def __init__(self, folder: str | Path, split: str, context_length: int):
        self.tokens, self.context_length = load_tokens(folder, split, context_length), context_length

    def __len__(self) -> int:
        return len(self.tokens) - self.context_length

    def __getitem__(self, start: int) -> np.ndarray:
        if not 0 <= start < len(self):
            raise IndexError(f"window {start} is out of range, there are {len(self)}")
        return np.array(self.tokens[start : start + self.context_length + 1], np.int64)


def size_of_vocabulary(folder: str | Path) -> int:
    """How many tokens the tokenizer beside the data has; GPT-2's 50,257, rounded up to a multiple of 64."""
    path = Path(folder) / "tokenizer.json"
    kind = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"type": "gpt2"}
    return len(kind["characters"]) if kind["type"] == "char" else _OF_GPT2
