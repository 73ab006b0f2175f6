"""Array beside NumPy: arguments for both, and the comparison of their results."""

import numpy as np

from mytorch import Array

RNG = np.random.default_rng(0)
X = RNG.uniform(0.1, 0.9, (2, 3))
Y = RNG.uniform(0.1, 0.9, (2, 3))
ROW = RNG.uniform(0.1, 0.9, 3)
CUBE = RNG.uniform(0.1, 0.9, (2, 3, 4))
SQUARE = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 4.0]])
MIXED = np.array([[-1.5, 0.0, 2.5], [3.0, -0.2, 0.7]])
HOLES = np.array([[1.0, np.nan, 3.0], [np.nan, 5.0, 6.0]])
I = np.array([[5, 3, 12], [7, 1, 6]])  # noqa: E741
J = np.array([[2, 4, 3], [1, 6, 5]])
INDEX = np.array([2, 0, 1])
BITS = np.array([[True, False, True], [False, False, True]])


def words(text):
    return text.split()


def arrays(x, device):
    """The NumPy arrays in nested arguments as Arrays."""
    if isinstance(x, np.ndarray):
        return Array(x, device=device)
    if isinstance(x, (tuple, list)):
        return type(x)(arrays(item, device) for item in x)
    return x


def agree(got, want, device):
    """Arrays where NumPy has arrays, of the same values and shapes; on the CPU of the same dtype too."""
    if isinstance(want, (tuple, list)):
        assert type(got) is type(want) or hasattr(want, "_fields")
        for g, w in zip(got, want, strict=True):
            agree(g, w, device)
    elif isinstance(want, (np.ndarray, np.generic)) or isinstance(got, Array):
        assert isinstance(got, Array) and got.device == device
        if device == "cpu":
            assert got.dtype == np.asarray(want).dtype
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-12)
    else:
        assert got == want
