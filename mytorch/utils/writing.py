"""JSON that every reader takes: RFC 8259 has no NaN and no Infinity, which Python's json writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_BESIDE = "_nonfinite"  # of the name of the field with the word
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_text(content: object, **options: object) -> str:
    """Returns JSON with null for numbers that aren't finite, and the word in a field beside it.

    Beside a list is a list of the same shape, with null for what is finite. `with_numbers` is the inverse.

    Args:
        options: of `json.dumps`.

    >>> from mytorch.utils.writing import json_text
    >>> json_text({"loss": float("nan"), "lr": 0.1})
    '{"loss": null, "loss_nonfinite": "NaN", "lr": 0.1}'
    """
    try:
        return json.dumps(content, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_with_words(content), allow_nan=False, **options)


def finite_json_text(content: Mapping[str, object], **options: object) -> str:
    """Returns JSON of a configuration, which is read again.

    Raises:
        ValueError: a number in it isn't finite; the message names it.
    """
    for name, value in content.items():
        if not _is_finite(value):
            raise ValueError(f"can't write {name}={value!r} as JSON, which has finite numbers alone")
    return json.dumps(content, allow_nan=False, **options)


def _is_finite(x: object) -> bool:
    if isinstance(x, dict):
        return all(map(_is_finite, x.values()))
    return all(map(_is_finite, x)) if isinstance(x, (list, tuple)) else _words_of(x) is None


def _with_words(x: object) -> Any:
    if isinstance(x, dict):
        found = {}
        for key, value in x.items():
            found[_words_of(key) or key] = _with_words(value)
            words, beside = _words_of(value), f"{key}{_BESIDE}"
            if words is not None and beside not in x:
                found[beside] = words
        return found
    if isinstance(x, (list, tuple)):
        return [_with_words(item) for item in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _words_of(x: object) -> Any:
    """Returns the word of a number that isn't finite, or those in a list; None if all are finite."""
    if isinstance(x, (list, tuple)):
        words = [_words_of(item) for item in x]
        return words if any(word is not None for word in words) else None
    return json.dumps(float(x)) if isinstance(x, float) and not math.isfinite(x) else None


def with_numbers(x: object) -> Any:
    """Returns the content of JSON from `json_text` with its numbers, also in nested dicts and lists."""
    if isinstance(x, list):
        return [with_numbers(item) for item in x]
    if not isinstance(x, dict):
        return x
    found = {key: with_numbers(value) for key, value in x.items()}
    for key in x:
        beside = f"{key}{_BESIDE}"
        if beside in found and key in found:
            found[key] = _number_of(found[key], found[beside])
            if _words_of(found[key]) == found[beside]:
                del found[beside]
    return found


def _number_of(x: object, word: object) -> Any:
    if isinstance(x, list) and isinstance(word, list) and len(x) == len(word):
        return [_number_of(*pair) for pair in zip(x, word, strict=True)]
    return _NUMBERS.get(word, x) if x is None and isinstance(word, str) else x
