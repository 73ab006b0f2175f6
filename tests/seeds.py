"""The same random numbers for a test, whichever tests ran before it in its process."""

import random
import sys
from functools import cache

import numpy as np

from mytorch.random import manual_seed

START = np.random.default_rng(0).bit_generator.state


@cache
def generators():
    """NumPy's generators in the modules of the tests, which borrow from each other: all that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith("tests.")]
    names = [name for module in modules for name in vars(module).values()]
    return [name for name in names if isinstance(name, np.random.Generator)]


def rewind():
    """Lets all of them begin anew, and those of mytorch, Python, NumPy and, if that is loaded, PyTorch."""
    manual_seed(0)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        # Its own also formats, and keeps, a traceback for each kind of device that is missing: 2 ms a call,
        # and PyTorch's databases call it for each sample.
        torch.manual_seed = torch.default_generator.manual_seed
        torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    for generator in generators():
        generator.bit_generator.state = START
