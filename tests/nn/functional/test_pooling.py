"""Pooling, padding, interpolation and pixel shuffle: what PyTorch's database leaves out, and errors."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch import Tensor
from mytorch.nn import functional as F
from mytorch.nn.functional import avg_pooling
from tests.each import each
from tests.every import every
from tests.oracle import check

rng = np.random.default_rng(0)
INF, NAN = np.inf, np.nan
GRADS = {Tensor: mytorch.autograd.grad, torch.Tensor: torch.autograd.grad}


def normal(*shape, dtype="float32"):
    return np.asarray(rng.standard_normal(shape), dtype)


def integers(*shape, dtype="int64"):
    return rng.integers(0, 9, shape).astype(dtype)


SPECIAL = np.array([[[1, NAN, 2, NAN, -INF, -INF, INF, 3, 3, -0.0, 0.0, NAN]]], "float32")
TIES = np.array([[[[2, 2, 1], [2, 3, 3], [0, 3, 3]]]], "float32")

# name: (function, arrays, arguments, keyword arguments)
CALLS = {
    "of several NaN the last": ("max_pool1d", [SPECIAL], (4, 1), {"return_indices": True}),
    "NaN in two dims": ("max_pool2d", [SPECIAL.reshape(1, 1, 3, 4)], (2, 1), {"return_indices": True}),
    "-inf, and padding": ("max_pool1d", [np.full((1, 1, 5), -INF, "float32")], (3, 2, 1, 1, True, True), {}),
    "of equal ones the first": ("max_pool2d", [TIES], (2, 1, 1), {"return_indices": True}),
    "overlapping dilated windows": ("max_pool2d", [normal(2, 3, 7, 6)], (2, 1, 1, (3, 2), True, True), {}),
    "three dims": ("max_pool3d", [normal(2, 5, 4, 6)], (3, (2, 1, 2), 1, 1, True, True), {}),
    "integers": ("max_pool2d", [-integers(2, 3, 5, 5)], (3, 2, 1), {"return_indices": True}),
    "bytes": ("max_pool2d", [integers(3, 5, 5, dtype="uint8")], (3, 2, 1), {"return_indices": True}),
    "half": ("max_pool2d", [normal(2, 3, 5, 5, dtype="float16")], (3, 2, 1), {}),
    "windows of one": ("max_pool2d", [normal(2, 3, 5, 5)], (1,), {"return_indices": True}),
    "every other element": ("max_pool2d", [normal(2, 3, 5, 5)], (1, 2), {}),
    "no stride": ("max_pool1d", [normal(2, 3, 5)], (2, ()), {}),
    "one window": ("max_pool2d", [normal(2, 3, 4, 5)], ((4, 5),), {"return_indices": True}),
    "empty batch": ("max_pool2d", [normal(0, 3, 4, 5)], (2,), {"return_indices": True}),
    "adaptive, uneven": ("adaptive_max_pool2d", [normal(2, 3, 7, 5)], ((3, 4), True), {}),
    "adaptive, more than there are": ("adaptive_max_pool1d", [normal(2, 3, 4)], (7, True), {}),
    "adaptive, of one": ("adaptive_max_pool2d", [normal(2, 3, 1, 2)], ((3, 5), True), {}),
    "adaptive, none": ("adaptive_max_pool1d", [normal(2, 3, 4)], (0, True), {}),
    "adaptive, three dims": ("adaptive_max_pool3d", [normal(3, 4, 5, 6)], ((None, 2, 3), True), {}),
    "adaptive NaN": ("adaptive_max_pool1d", [SPECIAL], (5, True), {}),
    "mean of integers": ("avg_pool2d", [-integers(2, 3, 5, 5)], (3, 2, 1, True, False), {}),
    "mean of inf": ("avg_pool1d", [SPECIAL], (3, 2, 1), {}),
    "adaptive mean of inf": ("adaptive_avg_pool1d", [SPECIAL], (5,), {}),
    "adaptive mean of an empty channel": ("adaptive_avg_pool2d", [normal(2, 0, 4, 5)], (2,), {}),
    "norm": ("lp_pool2d", [np.abs(normal(2, 3, 5, 5))], (3, 2, 1, True), {}),
    "norm of integers": ("lp_pool1d", [integers(3, 5)], (2, 2), {}),
    "crop and pad": ("pad", [normal(2, 3, 5)], ((-1, 2, 1, -2),), {"value": 1.5}),
    "crop all": ("pad", [normal(2, 5)], ((-3, -2),), {}),
    "crop and wrap": ("pad", [normal(2, 3, 5)], ((-1, 3), "circular"), {}),
    "wrap and crop": ("pad", [normal(2, 3, 5)], ((3, -2), "circular"), {}),
    "repeat and crop": ("pad", [normal(2, 5)], ((3, -2), "replicate"), {}),
    "repeat the ends": ("pad", [normal(2, 3, 4)], ((0, 2, 3, 1), "replicate"), {}),
    "mirror far": ("pad", [normal(2, 5)], ((-7, 4), "reflect"), {}),
    "mirror three dims": ("pad", [normal(2, 3, 4, 3)], ((2, 1, 0, 3, 1, 1), "reflect"), {}),
    "only the first dims": ("pad", [normal(2, 3)], ((0, 0, 1, 2), "constant", -1), {}),
    "nothing to pad": ("pad", [normal(2, 3)], ((0, 0),), {}),
    "bytes padded": ("pad", [integers(2, 3, dtype="uint8")], ((1, 1), "constant", 254.9), {}),
    "bools padded": ("pad", [integers(2, 3) > 4], ((1, 1),), {"value": True}),
    "bools wrapped": ("pad", [integers(2, 3) > 4], ((1, 2), "circular"), {}),
    "halves mirrored": ("pad", [normal(2, 3, dtype="float16")], ((1, 2), "reflect"), {}),
    "nearest of bytes": ("interpolate", [integers(1, 2, 5, 6, dtype="uint8")], ((7, 4),), {}),
    "one element": ("interpolate", [normal(1, 1, 1)], (4,), {"mode": "linear", "align_corners": True}),
    "to one element": ("interpolate", [normal(1, 1, 4)], (1,), {"mode": "linear", "align_corners": True}),
    "a factor that changes nothing": ("interpolate", [normal(1, 1, 3)], (None, 1.2, "linear"), {}),
    "shuffle": ("pixel_shuffle", [normal(2, 3, 18, 2, 1)], (3,), {}),
    "shuffle integers": ("pixel_shuffle", [integers(4, 2, 1)], (2,), {}),
    "unshuffle": ("pixel_unshuffle", [normal(3, 4, 6)], (2,), {}),
    "channels": ("channel_shuffle", [normal(1, 6, 2, 1)], (3,), {}),
}


@each("name", CALLS)
@each("layout", ["contiguous", "reversed", "transposed"])
def test_as_pytorch(name, layout):
    function, arrays, args, kwargs = CALLS[name]
    arrange = {
        "contiguous": lambda a: a,
        "reversed": lambda a: np.flip(np.flip(a).copy()),
        "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1),
    }[layout]
    ours, theirs = getattr(F, function), getattr(torch.nn.functional, function)
    grad = name not in ("adaptive, none", "adaptive mean of an empty channel")  # PyTorch has none for these
    check(
        lambda *xs: ours(*xs, *args, **kwargs), lambda *xs: theirs(*xs, *args, **kwargs),
        *map(arrange, arrays), grad=grad,
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"antialias": True}], ids=str)
def test_bytes_are_interpolated_in_fixed_point(mode, options):
    for size in ((3, 9), (11, 4), (6, 7), (1, 1)):
        x = integers(1, 2, 6, 7, dtype="uint8") * 28
        got = F.interpolate(Tensor(x), size, mode=mode, **options)
        want = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode, **options)
        assert got.dtype == np.uint8
        np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nearest_rounds_as_pytorch_s(mode, dtype):
    sizes = [(n, size) for n in range(3, 30, 2) for size in range(1, 60)]
    for n, size in (*sizes, (6, 74), (6, 94), (8, 98)):  # those three lie on the edge
        x = np.arange(n, dtype=dtype).reshape(1, 1, n)
        got = F.interpolate(Tensor(x), size, mode=mode).numpy()
        want = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode).numpy()
        np.testing.assert_array_equal(got, want, err_msg=f"{n} to {size}")


@pytest.mark.parametrize("old", ["upsample", "upsample_nearest", "upsample_bilinear"])
def test_old_names_warn(old):
    x = normal(1, 2, 3, 4)
    with pytest.warns(UserWarning, match="deprecated"):
        got = getattr(F, old)(Tensor(x), 5)
    with pytest.warns(UserWarning, match="deprecated"):
        want = getattr(torch.nn.functional, old)(torch.from_numpy(x), 5)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-6)


def test_a_pool_of_ones_and_an_empty_pad_are_copies():
    x = mytorch.ones(1, 2, 3)
    for y in (F.max_pool1d(x, 1), F.avg_pool1d(x, 1), F.pad(x, (0, 0)), F.pad(x, (0, 0), "reflect")):
        y.mul_(5)
    assert x.tolist() == [[[1, 1, 1], [1, 1, 1]]]


ROW, IMAGE = normal(1, 2, 6), normal(1, 2, 6, 6)

# name: (function, input, arguments, what the message has to say)
WRONG = {
    "max: dims": ("max_pool1d", IMAGE, (2,), "got .1, 2, 6, 6."),
    "max: channels": ("max_pool2d", IMAGE[:, :0], (2,), "got .1, 0, 6, 6."),
    "max: bool": ("max_pool2d", IMAGE > 0, (2,), "bool"),
    "max: integers": ("max_pool1d", integers(1, 2, 6), (2,), "int64"),
    "max: kernel": ("max_pool2d", IMAGE, ((2, 2, 2),), r"kernel_size.*got \(2, 2, 2\)"),
    "max: no kernel": ("max_pool1d", ROW, (0,), "kernel_size"),
    "max: float kernel": ("max_pool2d", IMAGE, (2.0,), "kernel_size.*2.0"),
    "max: stride": ("max_pool2d", IMAGE, (2, 0), "stride"),
    "max: padding": ("max_pool2d", IMAGE, (2, 1, 2), "padding"),
    "max: negative padding": ("max_pool1d", ROW, (2, 1, -1), "padding.*-1"),
    "max: dilation": ("max_pool1d", ROW, (2, 1, 0, 0), "dilation"),
    "max: too small": ("max_pool2d", IMAGE, (7,), "too small"),
    "avg: integers": ("avg_pool2d", integers(1, 6, 6, dtype="int32"), (2,), "int32"),
    "avg: divisor": ("avg_pool2d", IMAGE, (2, 2, 0, False, True, 0), "divisor"),
    "avg: dims": ("avg_pool3d", IMAGE[0], (2,), "got .2, 6, 6."),
    "adaptive: integers": ("adaptive_avg_pool2d", integers(1, 6, 6), (2,), "int64"),
    "adaptive: negative": ("adaptive_max_pool1d", ROW, (-1,), "output_size.*-1"),
    "adaptive: None": ("adaptive_avg_pool1d", ROW, (None,), "output_size.*None"),
    "adaptive: sizes": ("adaptive_avg_pool2d", IMAGE, ((2, 2, 2),), "output_size"),
    "adaptive: more sizes than dims": ("adaptive_max_pool2d", IMAGE[0, 0], ((2, 2),), "too few dims"),
    "adaptive: empty": ("adaptive_max_pool2d", IMAGE[..., :0], (2,), "got .1, 2, 6, 0."),
    "pad: odd": ("pad", ROW, ((1,),), "divisible by 2"),
    "pad: long": ("pad", ROW, ((1,) * 8,), "padding length 8 and input of dimension 3"),
    "pad: int": ("pad", ROW, (1,), "tuple of ints"),
    "pad: float": ("pad", ROW, ((1.0, 1),), "tuple of ints"),
    "pad: mode": ("pad", ROW, ((1, 1), "mirror"), "mirror"),
    "pad: value": ("pad", ROW, ((1, 1), "reflect", 2.0), "doesn't take in value"),
    "pad: dims": ("pad", IMAGE, ((1, 1), "reflect"), "padding size 2 is not supported for 4D"),
    "pad: mirror": ("pad", ROW, ((6, 0), "reflect"), r"\(6, 0\)"),
    "pad: wrap": ("pad", ROW, ((0, 7), "circular"), "wrapping around"),
    "pad: crop": ("pad", ROW, ((-4, -3),), "non-negative"),
    "pad: crop to nothing": ("pad", ROW, ((-4, -2), "replicate"), "too small"),
    "pad: empty": ("pad", ROW[..., :0], ((1, 1), "replicate"), "non-zero"),
    "pad: bool": ("pad", ROW > 0, ((1, 1), "reflect"), "bool"),
    "pad: overflow": ("pad", integers(3, dtype="int8"), ((1, 1), "constant", 300), "300"),
    "pad: fraction above": ("pad", integers(3, dtype="uint8"), ((1, 1), "constant", 255.9), "255.9"),
    "pad: inf": ("pad", integers(3), ((1, 1), "constant", INF), "inf"),
    "pad: list": ("pad", [1.0], ((1, 1),), "list"),
    "interpolate: nothing": ("interpolate", ROW, (), "either size or scale_factor"),
    "interpolate: both": ("interpolate", ROW, (2, 2.0), "only one of size or scale_factor"),
    "interpolate: mode": ("interpolate", ROW, (2, None, "cubic"), "cubic"),
    "interpolate: dims": ("interpolate", ROW, (2, None, "bilinear"), "got 3D"),
    "interpolate: 2D": ("interpolate", ROW[0], (2,), "got 2D"),
    "interpolate: corners": ("interpolate", ROW, (2, None, "nearest", False), "align_corners"),
    "interpolate: sizes": ("interpolate", IMAGE, ((2, 2, 2),), r"\[6, 6\] and size \(2, 2, 2\)"),
    "interpolate: factors": ("interpolate", IMAGE, (None, (2.0,)), "scale_factor"),
    "interpolate: recompute": ("interpolate", ROW, (2, None, "area", None, True), "recompute_scale_factor"),
    "interpolate: empty": ("interpolate", ROW, (0,), "greater than 0"),
    "interpolate: small": ("interpolate", ROW, (None, 0.1), "greater than 0"),
    "interpolate: antialias": ("interpolate", IMAGE, (2, None, "nearest", None, None, True), "antialias"),
    "interpolate: integers": ("interpolate", integers(1, 2, 6), (2,), "int64"),
    "interpolate: bytes": ("interpolate", ROW.astype("uint8"), (2, None, "linear"), "uint8"),
    "shuffle: dims": ("pixel_shuffle", ROW[0], (1,), "at least 3 dimensions"),
    "shuffle: factor": ("pixel_shuffle", IMAGE, (0,), "positive"),
    "shuffle: channels": ("pixel_shuffle", IMAGE, (2,), "2 channels"),
    "shuffle: float": ("pixel_shuffle", IMAGE, (2.0,), "float"),
    "unshuffle: size": ("pixel_unshuffle", IMAGE, (4,), r"\(6, 6\) and 4"),
    "channels: groups": ("channel_shuffle", IMAGE, (3,), "2 and 3"),
    "channels: no groups": ("channel_shuffle", IMAGE, (0,), "positive"),
    "channels: dims": ("channel_shuffle", ROW[0], (2,), "> 2 dims"),
}
OTHERWISE = {
    "adaptive: negative",
    "interpolate: antialias",
}  # PyTorch fails, too, by chance with another class


OVERLAPPING = {  # arguments of avg_pool2d
    "3, 2": (3, 2, 1), "3, 1": (3, 1, 1), "tall": ((4, 2), (1, 1), (2, 0)), "rounded up": (3, 2, 1, True),
    "without the padding": (3, 2, 1, False, False), "a divisor": ((2, 3), (1, 2), 0, False, True, 7),
}


@pytest.fixture
def taken(monkeypatch):
    """A list of what decided for the kernel (True) or for NumPy, also for small arrays."""
    monkeypatch.setenv("MYTORCH_COMPILE", "wait")
    decisions, convolved = [], avg_pooling._convolved
    monkeypatch.setattr(avg_pooling, "IN_CACHE", 0)

    def decide(*args):
        form = convolved(*args)
        decisions.append(form is not None)
        return form

    monkeypatch.setattr(avg_pooling, "_convolved", decide)
    return decisions


@pytest.mark.parametrize("name", OVERLAPPING)
def test_large_overlapping_windows_take_the_kernel_of_convolutions(name, taken, monkeypatch):
    """With NumPy's sums, bit for bit, and PyTorch's gradients, and their own gradients."""
    monkeypatch.setattr(avg_pooling, "SHORT_ROW", 1)
    args = OVERLAPPING[name]
    for shape in ((2, 3, 9, 20), (3, 9, 20)):
        x = normal(*shape)
        check(lambda t: F.avg_pool2d(t, *args), lambda t: torch.nn.functional.avg_pool2d(t, *args), x)
        y = F.avg_pool2d(Tensor(x).transpose(-1, -2).contiguous().transpose(-1, -2), *args)
        assert taken and every(taken)
        with F.use_fused(False):
            assert (F.avg_pool2d(Tensor(x), *args) == y).all() and not taken.pop()

    def twice(pool, t):
        (dx,) = GRADS[type(t)]((pool(t, *args) ** 2).sum(), t, create_graph=True)
        return dx * dx

    check(lambda t: twice(F.avg_pool2d, t), lambda t: twice(torch.nn.functional.avg_pool2d, t), x)
    assert every(taken)


def test_windows_that_stay_with_numpy(taken, monkeypatch):
    """Those that don't overlap, short rows, other dtypes, one and three dims; small arrays."""
    F.avg_pool2d(Tensor(normal(2, 3, 20, 40)), 2)
    F.avg_pool2d(Tensor(normal(2, 3, 20, 17)), 3, 1)
    F.avg_pool2d(Tensor(normal(2, 3, 20, 40, dtype="float64")), 3, 1)
    F.avg_pool2d(Tensor(integers(2, 3, 20, 40)), 3, 1)
    F.avg_pool1d(Tensor(normal(2, 3, 40)), 3, 1)
    F.avg_pool3d(Tensor(normal(2, 3, 9, 9, 40)), 3, 1)
    monkeypatch.setattr(avg_pooling, "IN_CACHE", 2 * 3 * 20 * 40)
    F.avg_pool2d(Tensor(normal(2, 3, 20, 40)), 3, 1)
    assert taken == [False] * 7
    F.avg_pool2d(Tensor(normal(2, 3, 21, 40)), 3, 1)
    assert taken[7:] == [True]


@pytest.mark.filterwarnings("ignore")
@each("name", WRONG)
def test_wrong_calls(name):
    function, x, args, message = WRONG[name]
    make = (lambda a: torch.from_numpy(np.array(a))) if isinstance(x, np.ndarray) else (lambda a: a)
    with pytest.raises(Exception) as theirs:
        getattr(torch.nn.functional, function)(make(x), *args)
    kind = theirs.type if name not in OTHERWISE else Exception
    with pytest.raises(kind, match=message):
        getattr(F, function)(Tensor(x) if isinstance(x, np.ndarray) else x, *args)
