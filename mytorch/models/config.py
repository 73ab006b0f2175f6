"""What the configurations of all models have in common."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from os import PathLike
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import numpy as np

from mytorch.utils import atomic_write
from mytorch.utils.reading import read_json
from mytorch.utils.writing import finite_json_text

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
        file_neutral: {option that other kinds of models have: the value that changes nothing}. It isn't
            written, and any other value, but for None, is refused.
    """

    cache_sizes: ClassVar[tuple[int, int, int]]
    context_length: ClassVar[int]
    sliding_window: ClassVar[int | None] = None
    file_names: ClassVar[dict[str, str]]
    file_options: ClassVar[dict[str, Any]]
    file_neutral: ClassVar[dict[str, Any]] = {
        "partial_rotary_factor": 1, "rope_interleaved": False, "quantization_config": None, "alibi": False,
        "logit_scale": 1, "logits_scaling": 1, "residual_multiplier": 1, "embedding_multiplier": 1,
        "attention_multiplier": None, "query_pre_attn_scalar": None, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "num_local_experts": 0, "num_experts": 0, "clip_qkv": None,
    }

    def check_positive(self, *names: str) -> None:
        """Raises ValueError unless these fields are positive integers, of a size that a model may have."""
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ValueError(f"{name} must be an int, got {value!r}")
            most = _MOST_LAYERS if "layer" in name else _MOST
            if not 1 <= value <= most:
                raise ValueError(f"{name} must be at least 1 and at most {most}, got {value}")

    def check_number(self, name: str, positive: bool = True) -> None:
        """Raises ValueError unless a field is a finite number that is positive, or else not negative."""
        value = getattr(self, name)
        if not is_number(value) or value < 0 or (positive and value == 0):
            kind = "positive" if positive else "nonnegative"
            raise ValueError(f"{name} must be a {kind} number, got {value!r}")

    def check_divisible(self, name: str, by: str) -> None:
        """Raises ValueError unless one field is a multiple of another."""
        value, divisor = getattr(self, name), getattr(self, by)
        if value % divisor:
            raise ValueError(f"{name} must be divisible by {by}, got {name}={value} and {by}={divisor}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, path: str | PathLike) -> None:
        """Writes `to_dict()` to a JSON file, which `load` reads.

        Raises:
            ValueError: a number isn't finite.
        """
        with atomic_write(path) as partial:
            partial.write_text(finite_json_text(self.to_dict(), indent=2) + "\n")

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
            kinds = get_type_hints(cls)
            for field in fields(cls):
                if field.name in content and not _is_a(content[field.name], kinds[field.name]):
                    raise ValueError(f"{field.name} must be {field.type}, got {content[field.name]!r:.60}")
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
        for name, neutral in cls.file_neutral.items():
            if content.get(name) not in (None, neutral):
                raise ValueError(f"{path}: {name} is {content[name]!r:.60}, which is not supported")
        names = cls.file_names.items()
        return cls.from_dict({field: content[name] for field, name in names if name in content}, path)

    def to_hugging_face(self) -> dict[str, Any]:
        """Returns the content of Hugging Face's config.json."""
        return {
            **self.file_options,
            **{name: getattr(self, field) for field, name in self.file_names.items()},
        }


def is_number(value: object) -> bool:
    """Returns whether a value is a finite number; bools are none."""
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def _is_a(value: object, hint: object) -> bool:
    """Returns whether a value is of the type of a field; an int is a float, too, and a bool is no int."""
    if options := get_args(hint) if get_origin(hint) is not dict else ():
        return any(_is_a(value, option) for option in options)
    if hint in (int, float):
        return is_number(value) and (hint is float or isinstance(value, (int, np.integer)))
    return isinstance(value, get_origin(hint) or hint)
