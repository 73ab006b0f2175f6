"""What the configurations of all models have in common."""

from __future__ import annotations

import json
from dataclasses import asdict
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from mytorch.utils import atomic_write
from mytorch.utils.reading import read_json

# A damaged number would have a model built of layer after layer until the memory is full.
_MOST_LAYERS, _MOST = 10_000, 2**31 - 1


class ModelConfig:
    """The base of the configurations of models, dataclasses that are saved as JSON.

    Attributes:
        cache_sizes: (layers, heads of keys and values, features of a head), of a `KVCache`.
        context_length: maximum sequence length, in tokens.
        sliding_window: the number of tokens that a token attends to; None for all.
        file_names: {field: its name in Hugging Face's config.json}.
        file_options: {other option there: the only value that is supported}; "model_type" is required.
    """

    cache_sizes: ClassVar[tuple[int, int, int]]
    context_length: ClassVar[int]
    sliding_window: ClassVar[int | None] = None
    file_names: ClassVar[dict[str, str]]
    file_options: ClassVar[dict[str, Any]]

    def check_positive(self, *names: str) -> None:
        """Raises ValueError unless these fields are positive integers, of a size that a model may have."""
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ValueError(f"{name} must be an int, got {value!r}")
            most = _MOST_LAYERS if "layer" in name else _MOST
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be at least 1 and at most {most}, got {value}")

    def check_divisible(self, name: str, by: str) -> None:
        """Raises ValueError unless one field is a multiple of another."""
        value, divisor = getattr(self, name), getattr(self, by)
        if value % divisor:
            raise ValueError(f"{name} must be divisible by {by}, got {name}={value} and {by}={divisor}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, path: str | PathLike) -> None:
        """Writes `to_dict()` to a JSON file, which `load` reads."""
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | PathLike) -> ModelConfig:
        """Returns the configuration in a JSON file of `to_dict()`.

        Raises:
            OSError: the file can't be read.
            ValueError: it is damaged, or has other options.
        """
        return cls.from_dict(read_json(path), path)

    @classmethod
    def from_dict(cls, content: object, path: str | PathLike) -> ModelConfig:
        """Returns the configuration of these fields; errors name the file that they come from."""
        try:
            if not isinstance(content, dict):
                raise ValueError(f"expected a JSON object, got {type(content).__name__}")
            return cls(**content)
        except (TypeError, ValueError) as error:
            name = {"GPT2Config": "GPT-2"}.get(cls.__name__, cls.__name__.removesuffix("Config"))
            article = "an" if name[0] in "AEIO" else "a"
            raise ValueError(f"{path} is no configuration of {article} {name}: {error}") from error

    @classmethod
    def from_hugging_face(cls, content: dict[str, Any], path: str | PathLike) -> ModelConfig:
        """Returns the configuration in the content of Hugging Face's config.json.

        Raises:
            ValueError: it is of another kind of model, or has an option that is not supported.
        """
        if not isinstance(content, dict):
            raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
        for name, supported in cls.file_options.items():
            value = content.get(name, None if name == "model_type" else supported)
            if value != supported and name != "architectures":
                raise ValueError(f"{path}: {name} is {value!r}, but {cls.__name__} is for {supported!r} only")
        names = cls.file_names.items()
        return cls.from_dict({field: content[name] for field, name in names if name in content}, path)

    def to_hugging_face(self) -> dict[str, Any]:
        """Returns the content of Hugging Face's config.json."""
        return {
            **self.file_options,
            **{name: getattr(self, field) for field, name in self.file_names.items()},
        }
