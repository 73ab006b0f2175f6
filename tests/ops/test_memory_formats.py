"""Memory formats: accepted where PyTorch accepts them, with its values and errors."""

import pickle

import numpy as np
import pytest
import torch

import mytorch
from tests.oracle import fails_alike, in_both

X = np.arange(120.0, dtype="float32").reshape(2, 3, 4, 5)
CALLS = {
    "contiguous": lambda x, f: x.contiguous(memory_format=f),
    "to": lambda x, f: x.to(memory_format=f),
    "to a dtype": lambda x, f: x.to(x.dtype, memory_format=f) * 2,
    "clone": lambda x, f: x.clone(memory_format=f),
    "double": lambda x, f: x.double(memory_format=f),
}
LIKE = ["empty_like", "zeros_like", "ones_like"]
FORMATS = ["contiguous_format", "preserve_format", "channels_last"]


PAIRS = [(name, how) for name in CALLS for how in FORMATS if (name, how) != ("contiguous", "preserve_format")]


@pytest.mark.parametrize(("name", "how"), PAIRS)
def test_values(name, how):
    ours, theirs = (CALLS[name](m.tensor(X).transpose(1, 2), getattr(m, how)) if how != "channels_last"
                    else CALLS[name](m.tensor(X), m.channels_last) for m in (mytorch, torch))
    assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", LIKE)
def test_like(name):
    for how in FORMATS:
        ours, theirs = (
            getattr(m, name)(m.tensor(X), memory_format=getattr(m, how)) for m in (mytorch, torch)
        )
        assert ours.shape == tuple(theirs.shape) and ours.dtype == "float32"
        if name != "empty_like":
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_is_contiguous():
    for shape in ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (2, 3)):
        for m in (mytorch, torch):
            x = m.ones(shape)
            assert x.is_contiguous() and x.is_contiguous(memory_format=m.contiguous_format)
            assert x.is_contiguous(memory_format=m.channels_last) == (shape in ((2, 1, 4, 5), (2, 3, 1, 1)))
    for m in (mytorch, torch):
        assert m.ones(2, 4, 5, 3).permute(0, 3, 1, 2).is_contiguous(memory_format=m.channels_last)


def test_a_model():
    for m in (mytorch, torch):
        model = m.nn.Conv2d(3, 2, 3).to(memory_format=m.channels_last)
        x = m.tensor(X).to(memory_format=m.channels_last)
        assert tuple(model(x).shape) == (2, 2, 2, 3)


@pytest.mark.parametrize("name", [*CALLS, *LIKE])
def test_wrong_formats(name):
    def call(m, x, how):
        how = getattr(m, how, how)
        return CALLS[name](x, how) if name in CALLS else getattr(m, name)(x, memory_format=how)

    if name != "double":
        fails_alike(*in_both(lambda m, x: call(m, x, "channels_last")), X[0], match="required rank 4 tensor")
        fails_alike(*in_both(lambda m, x: call(m, x, "channels_last_3d")), X, match="required rank 5 tensor")
        with pytest.raises(TypeError, match="must be mytorch.memory_format, not str"):
            call(mytorch, mytorch.tensor(X), "rows")


def test_they_are_names():
    assert repr(mytorch.channels_last) == "mytorch.channels_last"
    assert isinstance(mytorch.preserve_format, mytorch.memory_format)
    assert pickle.loads(pickle.dumps(mytorch.channels_last)) is mytorch.channels_last


def test_bfloat16_on_a_gpu(fake_cuda):
    assert mytorch.cuda.is_bf16_supported()
    assert mytorch.cuda.is_bf16_supported(False) == (mytorch.cuda.get_device_capability()[0] >= 8)


def test_bfloat16_without_a_gpu():
    assert mytorch.cuda.is_bf16_supported() is torch.cuda.is_bf16_supported() is False
