"""`all` for tests, which must not pass because there was nothing to look at."""

from collections.abc import Iterable


def every(items: Iterable) -> bool:
    """Returns whether all items are true; unlike `all` it fails where there are none."""
    items = list(items)
    assert items, "there is nothing to look at: the assertion could not fail"
    return all(items)
