"""Character-level tokenizer."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..utils.atomic import atomic_write
from ..utils.reading import read_json

MAX_CHARACTERS = 2**16  # ids are stored as uint16


class CharTokenizer:
    """Character-level tokenizer: the id of a character is its index in `characters`.

    Args:
        characters: the vocabulary.

    Raises:
        ValueError: `characters` is empty, has more than 65,536 characters, or contains duplicates.

    >>> from mytorch.tokenizers import CharTokenizer
    >>> tokenizer = CharTokenizer.from_text("hello")
    >>> tokenizer.characters, tokenizer.encode("hell"), tokenizer.decode([1, 0])
    ('ehlo', [1, 0, 2, 2], 'he')
    """

    type = "char"

    def __init__(self, characters: str):
        if not characters:
            raise ValueError("a CharTokenizer needs at least one character")
        codes = _code_points(characters, "strict")
        if len(codes) > MAX_CHARACTERS:
            raise ValueError(f"{len(codes):,} distinct characters, but uint16 ids allow {MAX_CHARACTERS:,}")
        if len(np.unique(codes)) != len(codes):
            duplicate = next(c for i, c in enumerate(characters) if c in characters[:i])
            raise ValueError(f"the characters of a CharTokenizer must be unique, got {duplicate!r} twice")
        self.characters = characters
        self._code_of_id = codes
        # A lookup table by code point, so that encoding is one NumPy index; the last entry is for all larger
        # code points.
        self._id_of_code = np.full(int(codes.max()) + 2, -1, dtype=np.int32)
        self._id_of_code[codes] = np.arange(len(codes))

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        """Returns a tokenizer of the characters in `text`, sorted by code point."""
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the characters of `text`; raises ValueError for an unknown character."""
        return self.encode_to_numpy(text).tolist()

    def encode_to_numpy(self, text: str) -> np.ndarray:
        """Returns the ids as a uint16 array of shape (len(text),), the format of the token files."""
        codes = _code_points(text)
        ids = self._id_of_code[np.minimum(codes, len(self._id_of_code) - 1)]
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            position = int(unknown[0])
            raise ValueError(
                f"unknown character {text[position]!r} at position {position}: "
                f"it is not one of the {self.vocab_size} characters of this tokenizer"
            )
        return ids.astype(np.uint16)

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """Returns the text of `ids`, a list or a 1-D array; raises ValueError for an unknown id."""
        ids = check_ids(ids, self.vocab_size)
        return self._code_of_id[ids].tobytes().decode("utf-32-le")

    def decode_bytes(self, ids: Iterable[int] | np.ndarray) -> bytes:
        """Returns `decode(ids)` as UTF-8."""
        return self.decode(ids).encode()

    def save(self, path: str | Path) -> None:
        """Saves the tokenizer as JSON; the write is atomic."""
        content = json.dumps({"type": self.type, "characters": self.characters})
        with atomic_write(path) as partial:
            partial.write_text(content + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "CharTokenizer":
        """Loads a saved tokenizer; raises ValueError if the file contains no character tokenizer."""
        content = read_json(path)
        try:
            if not isinstance(content, dict):
                raise ValueError(f"expected a JSON object, got {type(content).__name__}")
            if content.get("type") != cls.type:
                raise ValueError(f"expected a tokenizer of type {cls.type!r}, got {content.get('type')!r}")
            if not isinstance(content.get("characters"), str):
                raise ValueError("'characters' must be a string")
            return cls(content["characters"])
        except ValueError as error:
            raise ValueError(f"{path} is not a character tokenizer: {error}") from error

    def __repr__(self) -> str:
        return f"CharTokenizer(vocab_size={self.vocab_size})"


def check_ids(ids: Iterable[int] | np.ndarray, vocab_size: int) -> np.ndarray:
    """Returns `ids`, a list or a 1-D array, as an array (N,); raises ValueError for an unknown id."""
    ids = np.asarray(ids if hasattr(ids, "__array__") else list(ids))
    if ids.ndim != 1:
        raise ValueError(f"decode expects a list or a 1-D array of ids, got an array of shape {ids.shape}")
    if not len(ids):
        return ids.astype(np.int64)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"decode expects integers, got {ids.dtype}")
    outside = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if len(outside):
        position = int(outside[0])
        raise ValueError(f"id {ids[position]} at position {position} is outside 0..{vocab_size - 1}")
    return ids


def _code_points(text: str, errors: str = "surrogatepass") -> np.ndarray:
    """Returns the code points of `text`, uint32; `errors` is the error handler for surrogates."""
    return np.frombuffer(text.encode("utf-32-le", errors), dtype="<u4")
