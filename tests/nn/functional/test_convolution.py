"""Convolutions, transposed ones, unfold and fold are PyTorch's: values, gradients of any order, errors."""

import numpy as np
import pytest
import torch

import mytorch
from mytorch.backends.threads import available_cores
from mytorch.nn import functional as F
from mytorch.nn.functional import im2col
from tests.each import each
from tests.oracle import check, fails_alike

TF = torch.nn.functional
rng = np.random.default_rng(0)


def numbers(shape, dtype="float64"):
    if dtype.startswith(("int", "uint")):
        return rng.integers(0, 9, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(dtype)


# name: (function, shapes of input, weight and bias, other arguments)
CASES = {
    "plain": ("conv2d", [(2, 3, 6, 5), (4, 3, 3, 2), (4,)], {}),
    "without bias": ("conv2d", [(2, 3, 6, 5), (4, 3, 3, 2)], {}),
    "one image": ("conv2d", [(3, 6, 5), (4, 3, 3, 2), (4,)], {}),
    "no images": ("conv2d", [(0, 3, 6, 5), (4, 3, 3, 2), (4,)], {}),
    "1x1": ("conv2d", [(2, 3, 4, 5), (4, 3, 1, 1), (4,)], {}),
    "1x1 stride": ("conv2d", [(2, 3, 4, 5), (4, 3, 1, 1)], {"stride": 2}),
    "stride": ("conv2d", [(2, 3, 7, 8), (4, 3, 3, 3), (4,)], {"stride": 2, "padding": 1}),
    "stride and rest": ("conv2d", [(2, 3, 8, 9), (4, 3, 3, 2)], {"stride": (3, 4)}),
    "stride over gaps": ("conv2d", [(2, 3, 8, 9), (4, 3, 1, 2)], {"stride": (3, 4), "padding": 1}),
    "padding": ("conv2d", [(2, 3, 4, 5), (4, 3, 3, 2)], {"padding": (1, 0)}),
    "padding beyond the kernel": ("conv2d", [(2, 3, 4, 5), (4, 3, 2, 3), (4,)], {"padding": (5, 4)}),
    "padding beyond, stride": ("conv2d", [(2, 3, 4, 5), (4, 3, 2, 2)], {"padding": 5, "stride": 2}),
    "dilation": ("conv2d", [(2, 3, 9, 8), (4, 3, 3, 2), (4,)], {"dilation": (2, 3), "padding": 2}),
    "all": ("conv2d", [(2, 4, 9, 8), (6, 2, 3, 2), (6,)],
            {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}),
    "groups": ("conv2d", [(2, 6, 5, 5), (9, 2, 2, 2), (9,)], {"groups": 3}),
    "depthwise": ("conv2d", [(2, 4, 5, 5), (4, 1, 3, 3), (4,)], {"groups": 4, "padding": 1}),
    "depthwise, more channels": ("conv2d", [(2, 3, 5, 5), (6, 1, 3, 3)], {"groups": 3, "stride": 2}),
    "many channels": ("conv2d", [(2, 2, 5, 5), (9, 2, 3, 3)], {"padding": 1}),
    "same": ("conv2d", [(2, 3, 5, 6), (4, 3, 3, 5), (4,)], {"padding": "same", "dilation": (1, 2)}),
    "same, even kernel": ("conv2d", [(2, 3, 5, 6), (4, 3, 2, 4)], {"padding": "same"}),
    "valid": ("conv2d", [(2, 3, 5, 6), (4, 3, 2, 4)], {"padding": "valid", "stride": 2}),
    "as large as the image": ("conv2d", [(2, 3, 5, 6), (4, 3, 5, 6)], {}),
    "1d": ("conv1d", [(2, 3, 9), (4, 3, 3), (4,)], {"stride": 2, "padding": 1, "dilation": 2}),
    "1d one": ("conv1d", [(4, 9), (4, 2, 4)], {"padding": "same", "groups": 2}),
    "3d": ("conv3d", [(2, 2, 4, 5, 4), (3, 2, 2, 3, 2), (3,)], {"stride": (1, 2, 1), "padding": (1, 0, 1)}),
    "t plain": ("conv_transpose2d", [(2, 3, 4, 5), (3, 4, 3, 2), (4,)], {}),
    "t one image": ("conv_transpose2d", [(3, 4, 5), (3, 4, 3, 2), (4,)], {}),
    "t no images": ("conv_transpose2d", [(0, 3, 4, 5), (3, 4, 3, 2), (4,)], {}),
    "t stride": ("conv_transpose2d", [(2, 3, 4, 5), (3, 4, 3, 2), (4,)], {"stride": (2, 3), "padding": 1}),
    "t output_padding": ("conv_transpose2d", [(2, 3, 4, 5), (3, 4, 3, 3), (4,)],
                         {"stride": 3, "padding": 1, "output_padding": (1, 2)}),
    "t output_padding by dilation": ("conv_transpose2d", [(2, 3, 4, 5), (3, 4, 3, 2), (4,)],
                                     {"output_padding": 2, "dilation": 3}),
    "t groups": ("conv_transpose2d", [(2, 4, 4, 5), (4, 3, 3, 2), (6,)], {"groups": 2, "stride": 2}),
    "t depthwise": ("conv_transpose2d", [(2, 3, 4, 5), (3, 1, 3, 2)], {"groups": 3, "padding": 1}),
    "t dilation": ("conv_transpose2d", [(2, 3, 4, 5), (3, 4, 3, 2)], {"dilation": 2, "padding": (3, 1)}),
    "t 1d": ("conv_transpose1d", [(2, 3, 5), (3, 4, 4), (4,)], {"stride": 2, "output_padding": 1}),
    "t 3d": ("conv_transpose3d", [(2, 2, 3, 2, 3), (2, 3, 2, 3, 2), (3,)], {"stride": 2}),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES)


def arrays(case, dtype="float64"):
    return [numbers(shape, dtype) for shape in CASES[case][1]]


@EVERY_CASE
@each("dtype", ["float64", "float32", "int64"])
def test_values_and_gradients(case, dtype):
    name, _, kwargs = CASES[case]
    check(
        getattr(F, name),
        getattr(TF, name),
        *arrays(case, dtype),
        atol=5e-6 if dtype == "float32" else None,
        **kwargs,
    )


@EVERY_CASE
def test_half_precision_is_rounded_once(case):
    """PyTorch adds up some of these in float16, so the exact result is float64's."""
    name, _, kwargs = CASES[case]
    halves = arrays(case, "float16")
    got = [mytorch.Tensor(a, requires_grad=True) for a in halves]
    want = [torch.from_numpy(a.astype("float64")).requires_grad_() for a in halves]
    y, z = getattr(F, name)(*got, **kwargs), getattr(TF, name)(*want, **kwargs)
    g = numbers(tuple(z.shape), "float16")
    y.backward(mytorch.Tensor(g))
    z.backward(torch.from_numpy(g.astype("float64")))
    assert y.dtype == np.float16
    half = 2.0**-11 + 1e-5
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), half, 1e-6)
    for a, b in zip(got, want, strict=True):
        assert a.grad.dtype == np.float16
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), half, 1e-6)


LAYOUTS = {
    "transposed": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1),
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: np.flip(np.flip(a).copy()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ["plain", "1x1", "all", "one image", "t plain", "t groups"])
def test_other_layouts(case, layout):
    name, _, kwargs = CASES[case]
    inputs = [LAYOUTS[layout](a) for a in arrays(case)]
    check(getattr(F, name), getattr(TF, name), *inputs, **kwargs)
    assert getattr(F, name)(*map(mytorch.Tensor, inputs), **kwargs).is_contiguous()


@EVERY_CASE
@pytest.mark.parametrize("room", [1, 2000])
def test_by_parts_it_is_the_same(case, room, monkeypatch):
    """Columns for one row of one image at a time, or for a few rows or images."""
    name, _, kwargs = CASES[case]
    monkeypatch.setattr(im2col, "CACHE", room)
    check(getattr(F, name), getattr(TF, name), *arrays(case), **kwargs)


def test_columns_are_no_larger_than_the_room(monkeypatch):
    sizes = []
    to_columns = im2col.to_columns
    monkeypatch.setattr(im2col, "CACHE", 20_000)
    monkeypatch.setattr(
        im2col, "to_columns", lambda *args: sizes.append(to_columns(*args).nbytes) or to_columns(*args)
    )
    x, w = (mytorch.Tensor(numbers(s), requires_grad=True) for s in ((40, 3, 16, 16), (4, 3, 3, 3)))
    F.conv2d(x, w, padding=1).sum().backward()
    assert max(sizes) <= 20_000 < 5 * max(sizes) and len(sizes) > 40


def nested_gradients(library, function, inputs, kwargs, order):
    """sum(y^2 …), the gradients of it, the gradients of the sum of their squares, and so on."""
    found = [function(*inputs, **kwargs)]
    for _ in range(order):
        total = sum((f * f).sum() for f in found)
        found = library.autograd.grad(total, inputs, create_graph=True)
    return found


@pytest.mark.parametrize("case", ["plain", "all", "depthwise", "t stride", "1d one", "3d", "t groups"])
def test_gradients_of_gradients(case):
    name, _, kwargs = CASES[case]
    inputs = arrays(case)
    ours = [mytorch.Tensor(a, requires_grad=True) for a in inputs]
    theirs = [torch.from_numpy(a).requires_grad_() for a in inputs]
    for order in (2, 3):
        got = nested_gradients(mytorch, getattr(F, name), ours, kwargs, order)
        want = nested_gradients(torch, getattr(TF, name), theirs, kwargs, order)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), 1e-8, 1e-6)


def test_keywords_and_the_package_s_names():
    x, w, b = (mytorch.Tensor(a) for a in arrays("plain"))
    y = mytorch.conv2d(input=x, weight=w, bias=b, stride=1, padding=0, dilation=1, groups=1)
    np.testing.assert_array_equal(y.numpy(), F.conv2d(x, w, b).numpy())
    t = mytorch.conv_transpose2d(
        input=y, weight=w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
    )
    assert t.shape == x.shape


# What the kernels treat differently: shape of the input, of the weight, and the other arguments.
KERNELS = {
    "tiles of several images": ((9, 5, 7, 7), (6, 5, 3, 3), {"padding": 1}),
    "tiles of a part of an image": ((2, 3, 40, 33), (6, 3, 3, 2), {"padding": (0, 2), "stride": (1, 2)}),
    "several products": ((3, 150, 9, 17), (130, 150, 3, 3), {"padding": 1}),
    "groups": ((2, 12, 17, 15), (16, 3, 3, 3), {"groups": 4, "stride": 2, "padding": 1}),
    "depthwise": ((2, 7, 17, 15), (14, 1, 3, 5), {"groups": 7, "stride": (2, 1), "padding": (1, 2)}),
    "stride and dilation": ((2, 5, 19, 21), (6, 5, 3, 3),
                            {"stride": (4, 6), "dilation": (6, 4), "padding": 5}),
    "1x1": ((2, 8, 16, 16), (9, 8, 1, 1), {}),
    "1x1 stride": ((2, 8, 16, 15), (9, 8, 1, 1), {"stride": 3}),
    "windows in the padding": ((2, 3, 4, 5), (4, 3, 2, 3), {"padding": (9, 8)}),
    "a place that meets nothing": ((1, 2, 4, 3), (4, 2, 3, 4), {"stride": 2, "padding": 1}),
    "a place that meets nothing, few": ((1, 2, 4, 3), (2, 1, 3, 4), {"stride": 2, "padding": 1, "groups": 2}),
}


@pytest.mark.parametrize("case", KERNELS)
def test_the_kernel(case):
    x_shape, w_shape, kwargs = KERNELS[case]
    x, w, b = (0.1 * numbers(s, "float32") for s in (x_shape, w_shape, w_shape[:1]))

    def fused(*args, **kwargs):
        return F.conv2d(*args, **kwargs, fused=True)

    check(fused, TF.conv2d, x, w, b, atol=5e-6, **kwargs)


@pytest.mark.parametrize("case", ["plain", "depthwise", "stride"])
def test_the_kernel_keeps_nan_and_inf(case):
    name, shapes, kwargs = CASES[case]
    x, w, b = (numbers(s, "float32") for s in shapes)
    x[0, 0, 2, 2], x[1, 1, 3, 3] = np.nan, np.inf
    got = F.conv2d(*map(mytorch.Tensor, (x, w, b)), **kwargs, fused=True).numpy()
    want = TF.conv2d(*map(torch.from_numpy, (x, w, b)), **kwargs).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.fixture
def two_threads():
    if available_cores() < 2:
        pytest.skip("there is one core")
    before = mytorch.get_num_threads()
    yield
    mytorch.set_num_threads(before)


@pytest.mark.parametrize("case", KERNELS)
def test_the_number_of_threads_changes_nothing(case, two_threads):
    x_shape, w_shape, kwargs = KERNELS[case]
    arrays, found = [numbers(s, "float32") for s in (x_shape, w_shape)], []
    for threads in (1, 2):
        mytorch.set_num_threads(threads)
        x, w = (mytorch.Tensor(a, requires_grad=True) for a in arrays)
        y = F.conv2d(x, w, **kwargs, fused=True)
        (y * y).sum().backward()
        found.append([y.detach().numpy(), x.grad.numpy(), w.grad.numpy()])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_fused_or_an_error():
    x, w = (mytorch.Tensor(numbers(s)) for s in ((2, 3, 6, 5), (4, 3, 3, 2)))
    with pytest.raises(RuntimeError, match="conv2d.*fused=True, but .*compute in float32: none for float64"):
        F.conv2d(x, w, fused=True)
    with pytest.raises(RuntimeError, match="fused=True"):
        mytorch.nn.Conv2d(3, 4, 3, dtype="float64", fused=True)(x)


def test_there_is_no_kernel_of_three_dims(device):
    x, w = (mytorch.Tensor(numbers(s, "float32"), device=device) for s in ((2, 3, 4, 6, 5), (4, 3, 3, 2, 1)))
    layer = mytorch.nn.Conv3d(3, 4, (3, 2, 1), bias=False, device=device, fused=True)
    layer.weight.data = w.data
    for call in (lambda: F.conv3d(x, w, fused=True), lambda: layer(x)):
        with pytest.raises(RuntimeError, match=r"conv3d\(\): fused=True, but there is no fused kernel for c"):
            call()
    want = F.conv3d(x, w).cpu().numpy()
    for fused in (None, False):
        layer.fused = fused
        for y in (F.conv3d(x, w, fused=fused), layer(x).detach()):
            np.testing.assert_array_equal(y.cpu().numpy(), want)


X, W, T = numbers((2, 4, 8, 8)), numbers((6, 4, 3, 3)), numbers((4, 3, 3, 3))
# name: (function, tensors, other arguments, what the message says)
ERRORS = {
    "channels": ("conv2d", [X, W[:, :3]], {}, r"\(2, 4, 8, 8\) to have 3 channels, got 4"),
    "channels of groups": ("conv2d", [X, W], {"groups": 2}, "groups=2 .* to have 8 channels, got 4"),
    "groups": ("conv2d", [X, W[:5, :2]], {"groups": 2}, r"first dim of .* \(5, 2, 3, 3\), got groups=2"),
    "no groups": ("conv2d", [X, W], {"groups": 0}, "groups=0"),
    "groups of floats": ("conv2d", [X, W], {"groups": 1.0}, "groups must be an int, got 1.0"),
    "kernel": ("conv2d", [X, numbers((6, 4, 9, 9))], {}, r"kernel \(9, 9\) .* input \(8, 8\)"),
    "reach": ("conv2d", [X, W], {"dilation": 5, "padding": 1}, r"\(10, 10\) with its padding"),
    "stride": ("conv2d", [X, W], {"stride": 0}, "stride must be at least 1, got 0"),
    "strides": ("conv2d", [X, W], {"stride": (1, 2, 3)}, r"stride must be an int or 2 ints, got \(1, 2, 3\)"),
    "float stride": ("conv2d", [X, W], {"stride": 1.5}, "stride must be an int or 2 ints, got 1.5"),
    "padding": ("conv2d", [X, W], {"padding": -1}, "padding must be at least 0, got -1"),
    "paddings": ("conv2d", [X, W], {"padding": (1, 2, 3)}, "padding must be an int or 2"),
    "dilation": ("conv2d", [X, W], {"dilation": 0}, "dilation must be at least 1"),
    "same": ("conv2d", [X, W], {"padding": "same", "stride": 2}, r"not supported with a stride, got \(2"),
    "string": ("conv2d", [X, W], {"padding": "full"}, "got the string 'full'"),
    "dtypes": ("conv2d", [X, W.astype("float32")], {}, "same dtype, got float64, float32"),
    "dtype of the bias": ("conv2d", [X, W, numbers((6,), "float32")], {}, "got float64, float64, float32"),
    "bool": ("conv2d", [X > 0, W > 0], {}, "not implemented for bool"),
    "bias": ("conv2d", [X, W, numbers((5,))], {}, r"expected a bias of shape \(6,\), got \(5,\)"),
    "bias dims": ("conv2d", [X, W, numbers((6, 1))], {}, r"got \(6, 1\)"),
    "dims": ("conv2d", [X[0, 0], W], {}, r"3D \(unbatched\) or 4D \(batched\) input .* shapes \(8, 8\)"),
    "dims of 1d": ("conv1d", [X, W[0]], {}, r"2D \(unbatched\) or 3D"),
    "dims of the weight": ("conv2d", [X, W[0]], {}, r"4D weight, got shapes"),
    "empty image": ("conv2d", [X[:, :, :0], W], {"padding": 2}, r"input \(0, 8\)"),
    "empty kernel": ("conv2d", [X, W[..., :0]], {}, "the kernel is empty"),
    "no kernels": ("conv2d", [X, W[:0]], {}, r"first dim of the weight \(0, 4, 3, 3\)"),
    "no tensor": ("conv2d", [[1.0], W], {}, "input must be a Tensor, got list"),
    "no bias": ("conv2d", [X, W, 1.0], {}, r"bias must be a Tensor \| None, got float"),
    "t channels": ("conv_transpose2d", [X, T[:3]], {}, "to have 3 channels, got 4"),
    "t groups": ("conv_transpose2d", [X, T], {"groups": 3}, "got groups=3"),
    "t bias": ("conv_transpose2d", [X, T, numbers((4,))], {}, r"bias of shape \(3,\), got \(4,\)"),
    "t output_padding": ("conv_transpose2d", [X, T], {"output_padding": 1}, r"smaller than .* got \(1, 1\)"),
    "t negative": ("conv_transpose2d", [X, T], {"output_padding": -1}, "output_padding must be at least 0"),
    "t string": ("conv_transpose2d", [X, T], {"padding": "same"}, "must be an int or 2 ints, got 'same'"),
    "t too small": ("conv_transpose2d", [X[..., :1, :1], T], {"padding": 2}, r"size \(-1, -1\)"),
    "t dims": ("conv_transpose2d", [X[0, 0], T], {}, "3D .unbatched. or 4D"),
    "t stride": ("conv_transpose2d", [X, T], {"stride": 0}, "stride must be at least 1"),
    "unfold dims": ("unfold", [X[None], 3], {}, r"got \(1, 2, 4, 8, 8\)"),
    "unfold no channels": ("unfold", [X[:, :0], 3], {}, r"got \(2, 0, 8, 8\)"),
    "unfold kernel": ("unfold", [X, 9], {}, r"no window fits .* \(8, 8\): kernel_size \(9, 9\)"),
    "unfold kernels": ("unfold", [X, (3, 3, 3)], {}, "kernel_size must be an int or 2 ints"),
    "unfold one": ("unfold", [X, 0], {}, "kernel_size must be at least 1, got 0"),
    "unfold stride": ("unfold", [X, 3], {"stride": 0}, "stride must be at least 1"),
    "unfold padding": ("unfold", [X, 3], {"padding": -1}, "padding must be at least 0"),
    "unfold dilation": ("unfold", [X, 3], {"dilation": 0}, "dilation must be at least 1"),
    "unfold integers": ("unfold", [X.astype("int64"), 3], {}, "not implemented for dtype int64"),
    "fold rows": ("fold", [numbers((2, 35, 4)), 4, 3], {}, r"kernel_size \(3, 3\), got 35"),
    "fold columns": ("fold", [numbers((2, 36, 5)), 4, 3], {}, "2 x 2 windows .* got 5 columns"),
    "fold dims": ("fold", [numbers((36,)), 4, 3], {}, r"got \(36,\)"),
    "fold kernel": ("fold", [numbers((2, 36, 4)), 2, 3], {}, "0 x 0 windows"),
    "fold size": ("fold", [numbers((2, 36, 4)), (0, 4), 3], {}, "output_size must be at least 1"),
    "fold integers": ("fold", [numbers((2, 36, 4), "int64"), 4, 3], {}, "not implemented for dtype int64"),
}


@each("case", ERRORS)
def test_wrong_calls(case):
    name, inputs, kwargs, message = ERRORS[case]
    fails_alike(getattr(F, name), getattr(TF, name), *inputs, match=message, **kwargs)


# Unfold and fold.

FOLDS = {  # size of the image, kernel_size and the other arguments
    "plain": ((5, 6), (2, 3), {}), "int": ((5, 6), 2, {}), "1x1": ((3, 4), 1, {}),
    "apart": ((6, 6), 2, {"stride": 2}), "gaps": ((7, 8), 2, {"stride": 3}),
    "all": ((7, 6), (3, 2), {"dilation": (1, 2), "padding": (2, 1), "stride": (2, 3)}),
}
BATCHES = {"batch": (2, 3), "one": (3,), "none": (0, 3)}


@each("batch", BATCHES)
@each("case", FOLDS)
@each("dtype", ["float64", "float32", "float16", "bool"])
def test_unfold_and_fold(case, batch, dtype):
    size, kernel_size, kwargs = FOLDS[case]
    x = (
        numbers((*BATCHES[batch], *size)).astype(dtype) > 0.3
        if dtype == "bool"
        else numbers((*BATCHES[batch], *size), dtype)
    )
    kwargs = {"kernel_size": kernel_size, **kwargs}
    check(F.unfold, TF.unfold, x, **kwargs)
    columns = TF.unfold(torch.from_numpy(x), **kwargs).numpy()
    check(F.fold, TF.fold, columns, output_size=size, **kwargs)


def test_unfold_of_one_pixel_windows_is_a_copy():
    x = mytorch.ones(1, 2, 3, 3)
    y = F.unfold(x, 1)
    y.fill_(5)
    assert x.sum().item() == 18


def test_gradients_of_gradients_of_unfold_and_fold():
    def twice(library, functional, a):
        x = library.tensor(a, requires_grad=True)
        y = functional.unfold(x, 2, padding=1)
        z = functional.fold(y * y, (3, 4), 2, padding=1)
        (g,) = library.autograd.grad((z * z).sum(), x, create_graph=True)
        return library.autograd.grad((g * g).sum(), x)[0].numpy()

    a = numbers((1, 2, 3, 4))
    np.testing.assert_allclose(twice(mytorch, F, a), twice(torch, TF, a), 1e-9)


def test_fold_rounds_half_precision_once_and_is_contiguous():
    columns = numbers((2, 2 * 25, 36), "float16")
    got = F.fold(mytorch.Tensor(columns), 6, 5, padding=2)
    want = TF.fold(torch.from_numpy(columns.astype("float64")), 6, 5, padding=2)
    np.testing.assert_allclose(got.numpy(), want.numpy(), 2.0**-11, 1e-7)
    assert got.dtype == np.float16 and got.is_contiguous()


def test_the_bias_of_several_tiles():
    """Against float64: PyTorch's float32 gradient of a bias is rougher than ours."""
    x, w, b = (0.1 * numbers(s, "float32") for s in ((2, 3, 16, 17), (70, 3, 3, 3), (70,)))
    g = numbers((2, 70, 16, 17), "float32")
    bias = mytorch.tensor(b, requires_grad=True)
    y = F.conv2d(mytorch.tensor(x), mytorch.tensor(w), bias, 1, 1, fused=True)
    y.backward(mytorch.tensor(g))
    want = TF.conv2d(*(torch.from_numpy(a.astype("float64")) for a in (x, w, b)), 1, 1)
    np.testing.assert_allclose(y.detach().numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bias.grad.numpy(), g.astype("float64").sum((0, 2, 3)), rtol=1e-5, atol=2e-5)
