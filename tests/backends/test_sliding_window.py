"""Windows over arrays of the CPU and of the stand-in for a GPU."""

import numpy as np
import pytest

from mytorch.backends.device import as_device, move
from mytorch.backends.sliding_window import sliding_window_view

X = np.arange(60.0).reshape(3, 4, 5)


@pytest.mark.parametrize("axis", [(1, 2), (-2, -1), (2, 0)])
@pytest.mark.parametrize("window", [(1, 1), (2, 3), (3, 2)])
def test_as_numpy(device, window, axis):
    want = np.lib.stride_tricks.sliding_window_view(X, window, axis)
    x = move(X.copy(), as_device(device))
    got = sliding_window_view(x, window, axis)
    np.testing.assert_array_equal(move(got, as_device("cpu")), want)
    x[:] = 0  # it is a view
    assert not move(got, as_device("cpu")).any()


def test_a_window_that_does_not_fit(device):
    x = move(X, as_device(device))
    for window in (6, -1):
        with pytest.raises(ValueError, match="window"):
            sliding_window_view(x, (window,), (2,))
