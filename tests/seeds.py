"""The same random numbers for a test, whichever tests ran before it in its process."""

import random
import sys
from functools import cache

import numpy as np

START = np.random.default_rng(0).bit_generator.state


@cache
def generators():
    """NumPy's generators in the modules of the tests, which borrow from each other: all that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith("tests.")]
    names = [name for module in modules for name in vars(module).values()]
    return [name for name in names if isinstance(name, np.random.Generator)]


def rewind():
    """Let all of them begin anew, and Python's and NumPy's own, which PyTorch's samples are drawn with."""
    random.seed(0)
    np.random.seed(0)
    for generator in generators():
        generator.bit_generator.state = START
