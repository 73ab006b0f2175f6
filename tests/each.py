"""Several cases in one test: pytest and its processes take longer for a test than most of these calls."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests import seeds


def each(names: str, values: Iterable) -> Callable:
    """As `pytest.mark.parametrize`, but all values are cases of one test, which fails with all that fail."""
    split, values = names.split(", "), list(values)

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def run(**others: Any) -> None:
            failures = []
            for value in values:
                seeds.rewind()
                case = dict(zip(split, value if len(split) > 1 else [value], strict=True))
                try:
                    test(**others, **case)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception):
                    failures.append(f"{case}:\n{traceback.format_exc()}")
            if failures:
                pytest.fail(f"{len(failures)} of {len(values)} fail\n" + "\n".join(failures), pytrace=False)

        signature = inspect.signature(test)
        rest = [p for name, p in signature.parameters.items() if name not in split]
        run.__signature__ = signature.replace(parameters=rest)
        return run

    return decorate
