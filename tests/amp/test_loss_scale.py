"""The loss scale without a scaler: when it grows, and when it backs off."""

import numpy as np

from mytorch.amp.loss_scale import LossScale


def test_it_grows_after_an_interval_and_backs_off_after_an_inf():
    scale, seen = LossScale(8.0, 2.0, 0.5, 2, 1.0, 32.0), []
    for found in (0, 0, 0, 1, 0, 1, 0, 0, 0, 0):
        scale.update(np.full(1, found, np.float32))
        seen.append(scale.get())
    assert seen == [8, 16, 16, 8, 8, 4, 4, 8, 8, 16]
