"""The package speaks the field's language: retired words don't come back; the core stays small."""

import ast
import functools
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mytorch"
CORE_LINES = 2500  # an evening's reading

# Retired words, in names, comments, docstrings and messages, with those that took their place.
RETIRED = {
    r"sole|is_sole": "owned",
    r"Pending": "LazyGrad, Request",
    r"widened|widens|call_widened|in_single|with_one_rounding": "upcast, downcast",
    r"pull_raw|pull_back|the way back": "backward pass, vjp",
    r"Again": "Recompute",
    r"by hand|by_hand|hand-derived": "manual backward",
    r"of_weight|of_bias|of_x|of_y": "dweight, dbias, dx, dy",
    r"rest1|rest2": "one_minus_beta1, one_minus_beta2",
    r"pace": "step_size",
    r"starter|starters": "launcher command",
    r"blame": "root cause",
    r"whole or (?:not|absent)": "atomic",
    r"what is wrong|what_is_wrong": "problem, error",
    r"place_name|_check_place|_obituary": "describe, location, position",
    r"comes twice|come twice": "duplicate, must be unique",
    r"anew|whoever": "again, the first that",
    r"Refusals|refusals": "break points",
    r"so many|somebody|nobody|goes on|lets go|let go|under way|hands over|asked for": "plain English",
}
FILES = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {("utils/data/dataset.py", "asked for")}  # PyTorch's message
ALLOWED_NAMES = {"pending"}  # Python's word for what is begun and not completed; the class was LazyGrad's


@pytest.mark.parametrize("pattern", RETIRED)
def test_retired_words_do_not_come_back(pattern):
    found = []
    for path in FILES:
        name = path.relative_to(PACKAGE).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in re.finditer(rf"\b(?:{pattern})\b", line):
                if (name, match[0]) not in ALLOWED:
                    found.append(f"{name}:{number}: {match[0]}")
    assert found == [], f"say {RETIRED[pattern]} instead"


@functools.cache
def names():
    """The names that the package gives: of variables, attributes, functions, classes, parameters, modules."""
    found = {path.stem: path.name for path in FILES}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for field in ("id", "attr", "arg", "name", "asname"):
                if isinstance(name := getattr(node, field, None), str):
                    found.setdefault(name, f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', '')}")
    return found


def retired_in(name, pattern):
    """The retired words among the words of a name, which are split at underscores and at capitals."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]
    texts = " ".join(words), "_".join(words)
    parts = rf"(?<![a-z0-9])(?:{pattern.lower()})(?![a-z0-9])"
    return {match[0] for text in texts for match in re.finditer(parts, text)} - ALLOWED_NAMES


@pytest.mark.parametrize("pattern", RETIRED)
def test_retired_words_are_in_no_name(pattern):
    found = {name: place for name, place in names().items() if retired_in(name, pattern)}
    assert found == {}, f"say {RETIRED[pattern]} instead"


def test_a_retired_word_would_be_found():
    assert re.search(rf"\b(?:{list(RETIRED)[-1]})\b", "so many of them")
    for name in ("sole", "_sole_owner", "SoleOwner", "isSole", "HTTPSole", "d_of_weight", "LetGo"):
        assert any(retired_in(name, pattern) for pattern in RETIRED), name
    for name in ("console", "Pending", "paced"):
        assert not any(retired_in(name, pattern) for pattern in RETIRED), name
    assert {"args", "nn", "forward", "GPT2", "n_embd", "_state"} <= names().keys()


def test_core_is_read_in_an_evening():
    """From the array to the backward pass; what lays gradients end to end can be read another evening."""
    files = set((PACKAGE / "core").glob("*.py")) - {PACKAGE / "core" / "flat_buffer.py"}
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert lines <= CORE_LINES
