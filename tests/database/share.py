"""Which samples of a long list one test takes."""

import os
from collections.abc import Iterable, Iterator
from typing import Any


def share(samples: Iterable[Any], part: int, most: int) -> Iterator[Any]:
    """At most about `most` of the samples, evenly spread; the next part takes the next ones.

    Some lists are all combinations of all arguments, a thousand of them, and each of an operator's dtypes
    goes through the list: together they take every sample, or nearly. With MYTORCH_TEST_ALL=1 each takes all.
    """
    samples = list(samples)
    step = 1 if os.environ.get("MYTORCH_TEST_ALL") == "1" else -(-len(samples) // most)
    return iter(samples[part % step :: step] if step > 1 else samples)
