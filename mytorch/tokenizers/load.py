"""Loading any tokenizer."""

from __future__ import annotations

from pathlib import Path

from ..utils.reading import read_json
from .char import CharTokenizer
from .gpt2 import gpt2_tokenizer
from .subword import SubwordTokenizer
from .tokenizer_json import from_tokenizer_json


def load_tokenizer(path: str | Path) -> CharTokenizer | SubwordTokenizer:
    """Returns the tokenizer of a `tokenizer.json`: characters, GPT-2's, or Hugging Face's format.

    Args:
        path: the file, or its folder.

    Raises:
        OSError: it can't be read.
        ValueError: it is damaged, or of another type.
    """
    path = Path(path)
    path = path / "tokenizer.json" if path.is_dir() else path
    kind = tokenizer_type(path)
    if kind == CharTokenizer.type:
        return CharTokenizer.load(path)
    return gpt2_tokenizer() if kind == "gpt2" else from_tokenizer_json(path)


def tokenizer_type(path: str | Path) -> str:
    """Returns "char", "gpt2", or "subword" for Hugging Face's format: the type of a `tokenizer.json`.

    Raises:
        OSError: it can't be read.
        ValueError: it is damaged, or of another type.
    """
    content = read_json(path)
    if isinstance(content, dict) and "model" in content:
        return "subword"
    kind = content.get("type") if isinstance(content, dict) else None
    if kind not in ("char", "gpt2"):
        raise ValueError(
            f"{path} is damaged: expected a tokenizer of type 'char' or 'gpt2', or Hugging Face's format, "
            f"got type {kind!r}"
        )
    return kind
