"""Initialisations: the distributions of PyTorch's, and its errors."""

import contextlib
import threading

import numpy as np
import pytest
import torch

import mytorch
from mytorch import nn

# name: (shape, the arguments after the tensor)
RANDOM = {
    "uniform_": [((300, 400), ()), ((300, 400), (-2, 5))],
    "normal_": [((300, 400), ()), ((300, 400), (3, 0.1))],
    "trunc_normal_": [((300, 400), ()), ((300, 400), (1, 2, 0, 3)), ((300, 400), (0, 1, 0.5, 1))],
    "xavier_uniform_": [((300, 400), ()), ((30, 40, 5, 20), (2,))],
    "xavier_normal_": [((300, 400), ()), ((30, 40, 5, 20), (2,))],
    "kaiming_uniform_": [
        ((300, 400), ()), ((30, 40, 5, 20), (0, "fan_out", "relu")), ((300, 400), (5**0.5,)),
    ],
    "kaiming_normal_": [((300, 400), ()), ((30, 40, 5, 20), (0, "fan_out", "relu")), ((300, 400), (1,))],
}
RANDOM_CASES = [(name, case) for name, cases in RANDOM.items() for case in cases]


@pytest.mark.parametrize(("name", "case"), RANDOM_CASES, ids=str)
def test_distributions(name, case):
    shape, args = case
    mytorch.manual_seed(0)
    torch.manual_seed(0)
    x = mytorch.zeros(shape, requires_grad=True)
    assert getattr(nn.init, name)(x, *args) is x and x.grad_fn is None
    ours = np.sort(x.detach().numpy().ravel())
    theirs = np.sort(getattr(torch.nn.init, name)(torch.zeros(shape), *args).numpy().ravel())
    steps = np.linspace(0, ours.size - 1, 201).astype(int)[2:-2]
    np.testing.assert_allclose(ours[steps], theirs[steps], atol=0.05 * theirs.std())
    assert abs(ours.std() / theirs.std() - 1) < 0.01


CONSTANT = {
    "ones_": ((2, 3), ()), "zeros_": ((2, 3), ()), "constant_": ((2, 3), (0.3,)), "eye_": ((2, 3), ()),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constants(name):
    shape, args = CONSTANT[name]
    ours, theirs = (getattr(t.nn.init, name)(t.full(shape, 7.0), *args) for t in (mytorch, torch))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (3, 2, 4), (6, 1, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_orthogonal(shape, dtype):
    x = nn.init.orthogonal_(mytorch.zeros(shape, dtype=dtype), gain=2).numpy().reshape(shape[0], -1)
    x = x if x.shape[0] <= x.shape[1] else x.T
    np.testing.assert_allclose(x @ x.T, 4 * np.eye(len(x)), atol=1e-5)


def test_orthogonal_matrices_are_uniformly_distributed():
    """Then the mean of the trace is 0; without the correction of signs it is far from it."""
    mytorch.manual_seed(0)
    traces = [np.trace(nn.init.orthogonal_(mytorch.zeros(3, 3)).numpy()) for _ in range(600)]
    assert abs(np.mean(traces)) < 5 / np.sqrt(600)


def test_truncated_normal_stays_inside():
    x = nn.init.trunc_normal_(mytorch.zeros(100_000), 0, 1, -0.5, 0.25).numpy()
    assert -0.5 <= x.min() < -0.499 and 0.249 < x.max() <= 0.25


@pytest.mark.parametrize("name", [*RANDOM, "orthogonal_"])
def test_a_generator_repeats(name):
    g = mytorch.Generator()
    draws = []
    for _ in range(2):
        g.manual_seed(5)
        draws.append(getattr(nn.init, name)(mytorch.zeros(4, 6), generator=g).numpy())
    np.testing.assert_array_equal(*draws)
    assert draws[0].any()


GAINS = ["linear", "conv2d", "conv_transpose1d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]


@pytest.mark.parametrize("name", GAINS)
def test_gains(name):
    assert nn.init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


WRONG = {
    "gain": (lambda t: t.nn.init.calculate_gain("gelu"), "(?i)unsupported nonlinearity"),
    "slope": (lambda t: t.nn.init.calculate_gain("leaky_relu", "x"), "negative_slope 'x' not a valid number"),
    "mode": (lambda t: t.nn.init.kaiming_normal_(t.ones(2, 2), mode="fan"), "'fan' not supported"),
    "fan of a vector": (lambda t: t.nn.init.xavier_uniform_(t.ones(2)), "fewer than 2 dimensions"),
    "eye of 3 dims": (lambda t: t.nn.init.eye_(t.ones(2, 2, 2)), "2 dimensions"),
    "orthogonal vector": (lambda t: t.nn.init.orthogonal_(t.ones(2)), "2 or more dimensions"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_use(call, message):
    with pytest.raises(ValueError):
        call(torch)
    with pytest.raises(ValueError, match=message):
        call(mytorch)


def test_warnings():
    with pytest.warns(UserWarning, match="zero-element tensors is a no-op"):
        nn.init.kaiming_uniform_(mytorch.zeros(0, 3))
    with pytest.warns(UserWarning, match="mean 9 is more than 2 std"):
        nn.init.trunc_normal_(mytorch.zeros(3), 9)


def test_on_a_gpu(fake_cuda):
    for name in (*RANDOM, *CONSTANT, "orthogonal_"):
        x = mytorch.full((4, 6), 7.0, device="cuda:1")
        args = (0.5,) if name == "constant_" else ()
        assert getattr(nn.init, name)(x, *args) is x
        assert str(x.device) == "cuda:1" and not (x == 7).any()


def test_what_is_skipped_ends_with_the_block_in_each_thread():
    """Also in a thread that skips for the first time, within another block, and after an error."""
    found = []

    def fill():
        x = mytorch.zeros(2)
        nn.init.ones_(x)
        return x.tolist() == [1, 1]

    def body():
        found.append(fill())
        with nn.init.skipped():
            with nn.init.skipped():
                found.append(fill())
            found.append(fill())
        found.append(fill())
        with contextlib.suppress(KeyError), nn.init.skipped():
            raise KeyError
        found.append(fill())

    with nn.init.skipped():  # of this thread
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    assert found == [True, False, False, True, True]
