"""detect_anomaly names the op that first made a NaN, and where it was called."""

import warnings

import numpy as np
import pytest

import mytorch
from mytorch.autograd import detect_anomaly, is_anomaly_enabled, set_detect_anomaly


def test_a_nan_gradient_names_the_op_and_its_call():
    x = mytorch.zeros(2, requires_grad=True)
    with detect_anomaly():
        y = x.sqrt() * 0  # the gradient of sqrt is infinite there, times 0
        with pytest.raises(RuntimeError, match=r"Function 'sqrt' returned nan values in its 0th output") as e:
            y.sum().backward()
    assert "test_anomaly.py" in str(e.value) and "x.sqrt() * 0" in str(e.value)


def test_the_first_nan_of_the_forward_pass_warns_once():
    x = mytorch.tensor([-1.0, 2.0], requires_grad=True)
    with detect_anomaly(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (x.log() * 2).sum()
    assert [str(w.message).split("(")[0] for w in caught] == ["log"]
    assert "test_anomaly.py" in str(caught[0].message)


def test_gradients_with_a_graph_are_looked_at_as_well():
    x = mytorch.zeros(2, requires_grad=True)
    with detect_anomaly():
        y = (x.sqrt() * 0).sum()
        with pytest.raises(RuntimeError, match="'sqrt' returned nan"):
            mytorch.autograd.grad(y, x, create_graph=True)


def test_without_check_nan_only_places_are_remembered():
    x = mytorch.zeros(2, requires_grad=True)
    with detect_anomaly(check_nan=False):
        y = x.sqrt() * 0
        y.sum().backward()
    assert np.isnan(x.grad.numpy()).all()
    assert "test_anomaly.py" in y.node.trace


def test_it_is_off_outside():
    assert not is_anomaly_enabled()
    with detect_anomaly():
        assert is_anomaly_enabled()
        with set_detect_anomaly(False):
            assert not is_anomaly_enabled()
        assert is_anomaly_enabled()
    assert not is_anomaly_enabled()
    set_detect_anomaly(True)
    try:
        assert is_anomaly_enabled()
    finally:
        set_detect_anomaly(False)
    x = mytorch.zeros(2, requires_grad=True)
    (x.sqrt() * 0).sum().backward()
    assert np.isnan(x.grad.numpy()).all()
