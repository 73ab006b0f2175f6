"""Convolutions and transposed convolutions: the public functions and the checks of their arguments."""

from __future__ import annotations

from collections.abc import Callable

from ...core.op import require_tensor
from ...core.tensor import Tensor
from ...ops import squeeze, unsqueeze
from ...ops.autocast import autocasts, in_half
from .composite import composite
from .im2col import Geometry, conv_input_gradient, convolution, geometry
from .types import IntOrInts
from .windows import ntuple, read_padding


@composite
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrInts = 1,
    padding: IntOrInts | str = 0, dilation: IntOrInts = 1, groups: int = 1,
) -> Tensor:
    """Returns the convolution over one dim: see `conv2d`, without the heights.

    >>> F.conv1d(mytorch.tensor([[[1.0, 2.0, 3.0]]]), mytorch.tensor([[[1.0, 1.0]]]))
    tensor([[[3.00000 5.00000]]])
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


@composite
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrInts = 1,
    padding: IntOrInts | str = 0, dilation: IntOrInts = 1, groups: int = 1,
) -> Tensor:
    """Returns the product of the kernels with every window of an image.

        y[n, o, i, j] = bias[o] + sum_{c, a, b} weight[o, c, a, b] x[n, c, row(i, a), row(j, b)]
        row(i, a) = i stride + a dilation - padding

    Args:
        input: (N, C, H, W), or (C, H, W) without the batch.
        weight: (O, C / groups, kernel height, kernel width), of the same dtype.
        bias: (O,)
        stride: from one window to the next; one int or one per dim, as the next two.
        padding: zeros around the image at each end; "valid" is none, "same" preserves H and W (an odd number
            has the additional one at the end).
        dilation: from one element of a window to the next.
        groups: the number of groups of channels, each with separate kernels.
        fused: True for the kernel of this device or an error, False for products of im2col matrices; None
            for the kernel where available.

    Returns:
        (N, O, H', W'), with H' = floor((H + 2 padding - dilation (kernel - 1) - 1) / stride) + 1.

    Raises:
        RuntimeError: shapes, dtypes or arguments do not match.

    >>> F.conv2d(mytorch.ones(1, 3, 8, 8), mytorch.ones(4, 3, 3, 3), padding=1).shape
    Size([1, 4, 8, 8])
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


@composite
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrInts = 1,
    padding: IntOrInts | str = 0, dilation: IntOrInts = 1, groups: int = 1,
) -> Tensor:
    """Returns the convolution over three dims: see `conv2d`, with a depth before the height. It has no
    kernel: `fused=True` raises a RuntimeError.

    >>> F.conv3d(mytorch.ones(1, 2, 8, 8, 8), mytorch.ones(4, 2, 3, 3, 3)).shape
    Size([1, 4, 6, 6, 6])
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


@autocasts(in_half)
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrInts = 1, padding: IntOrInts = 0,
    output_padding: IntOrInts = 0, groups: int = 1, dilation: IntOrInts = 1,
) -> Tensor:
    """Returns the transposed convolution over one dim: see `conv_transpose2d`, without the heights.

    >>> F.conv_transpose1d(mytorch.tensor([[[1.0, 2.0]]]), mytorch.tensor([[[1.0, 1.0]]]))
    tensor([[[1.00000 3.00000 2.00000]]])
    """
    args = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _convolve_transposed("conv_transpose1d", 1, *args)


@autocasts(in_half)
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrInts = 1, padding: IntOrInts = 0,
    output_padding: IntOrInts = 0, groups: int = 1, dilation: IntOrInts = 1,
) -> Tensor:
    """Returns the gradient of `conv2d` with respect to its input: each pixel adds its multiple of the kernel.

    Args:
        input: (N, C, H, W), or (C, H, W) without the batch.
        weight: (C, O / groups, kernel height, kernel width), of the same dtype.
        bias: (O,)
        stride, padding, dilation, groups: of that convolution.
        output_padding: additional rows and columns at the end of the result. A strided convolution maps
            several input sizes to one output size; this selects one of them.

    Returns:
        (N, O, H', W'), with
        H' = (H - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.

    Raises:
        RuntimeError: shapes, dtypes or arguments do not match.
    Source: Dumoulin & Visin, "A guide to convolution arithmetic for deep learning", 2016,
        https://arxiv.org/abs/1603.07285, section 4

    >>> F.conv_transpose2d(mytorch.ones(1, 2, 8, 8), mytorch.ones(2, 4, 2, 2), stride=2).shape
    Size([1, 4, 16, 16])
    """
    args = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _convolve_transposed("conv_transpose2d", 2, *args)


@autocasts(in_half)
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrInts = 1, padding: IntOrInts = 0,
    output_padding: IntOrInts = 0, groups: int = 1, dilation: IntOrInts = 1,
) -> Tensor:
    """Returns the transposed convolution over three dims: see `conv_transpose2d`, with a depth.

    >>> F.conv_transpose3d(mytorch.ones(1, 2, 4, 4, 4), mytorch.ones(2, 4, 2, 2, 2), stride=2).shape
    Size([1, 4, 8, 8, 8])
    """
    args = input, weight, bias, stride, padding, output_padding, groups, dilation
    return _convolve_transposed("conv_transpose3d", 3, *args)


def _convolve(input, weight, bias, stride, padding, dilation, groups):
    """Returns the convolution for arguments that `_check` has returned."""
    dims = weight.ndim - 2
    form = geometry(input.shape[-dims:], weight.shape[2:], stride, padding, dilation, groups)
    return _batched(dims, convolution, input, weight, bias, form)


@conv1d.check
def _check_conv1d(input, weight, bias, stride, padding, dilation, groups):
    return _check("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@conv2d.check
def _check_conv2d(input, weight, bias, stride, padding, dilation, groups):
    return _check("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@conv3d.check
def _check_conv3d(input, weight, bias, stride, padding, dilation, groups):
    return _check("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def _check(name, dims, input, weight, bias, stride, padding, dilation, groups):
    """Returns the arguments with one int per dim, and (before, after) per dim for the padding."""
    _check_tensors(name, dims, input, weight, bias, groups)
    stride = ntuple(stride, dims, f"{name}(): stride", 1)
    dilation = ntuple(dilation, dims, f"{name}(): dilation", 1)
    kernel = tuple(weight.shape[2:])
    padding = read_padding(name, padding, kernel, stride, dilation)
    channels = input.shape[-dims - 1]
    if channels != weight.shape[1] * groups:
        raise RuntimeError(
            f"{name}(): given groups={groups} and a weight of shape {tuple(weight.shape)}, expected the "
            f"input {tuple(input.shape)} to have {weight.shape[1] * groups} channels, got {channels}"
        )
    _check_bias(name, weight, bias, weight.shape[0])
    size = tuple(input.shape[-dims:])
    form = geometry(size, kernel, stride, padding, dilation, groups)
    if min(form.out) < 1 or 0 in size:
        room = tuple(n + before + after for n, (before, after) in zip(size, padding, strict=True))
        raise RuntimeError(
            f"{name}(): the kernel can't be larger than the input, which can't be empty: kernel {kernel} "
            f"with dilation {dilation}, input {size}, {room} with its padding"
        )
    return input, weight, bias, stride, padding, dilation, groups


def _convolve_transposed(name, dims, input, weight, bias, stride, padding, output_padding, groups, dilation):
    _check_tensors(name, dims, input, weight, bias, groups)
    stride = ntuple(stride, dims, f"{name}(): stride", 1)
    dilation = ntuple(dilation, dims, f"{name}(): dilation", 1)
    padding = ntuple(padding, dims, f"{name}(): padding", 0)
    more = ntuple(output_padding, dims, f"{name}(): output_padding", 0)
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation, strict=True)):
        raise RuntimeError(
            f"{name}(): output padding must be smaller than either stride or dilation, got {more}, "
            f"stride {stride} and dilation {dilation}"
        )
    if input.shape[-dims - 1] != weight.shape[0]:
        raise RuntimeError(
            f"{name}(): given a weight of shape {tuple(weight.shape)}, expected the input "
            f"{tuple(input.shape)} to have {weight.shape[0]} channels, got {input.shape[-dims - 1]}"
        )
    _check_bias(name, weight, bias, weight.shape[1] * groups)
    out, kernel = tuple(input.shape[-dims:]), tuple(weight.shape[2:])
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        for n, k, s, p, d, m in zip(out, kernel, stride, padding, dilation, more, strict=True)
    )
    if min(size) < 1:
        raise RuntimeError(
            f"{name}(): the output would have the size {size}: the padding {padding} is too large"
        )
    form = Geometry(size, kernel, out, stride, tuple((p, p) for p in padding), dilation, groups)
    return _batched(dims, conv_input_gradient, input, weight, bias, form)


def _batched(dims: int, function: Callable, input: Tensor, *args: object) -> Tensor:
    """Calls an op of batches; adds and removes the dim of the batch for one image."""
    if input.ndim == dims + 2:
        return function(input, *args)
    return squeeze(function(unsqueeze(input, 0), *args), 0)


def _check_tensors(
    name: str, dims: int, input: Tensor, weight: Tensor, bias: Tensor | None, groups: int
) -> None:
    for x in (input, weight, *(() if bias is None else (bias,))):
        require_tensor(x, name)
    if input.ndim not in (dims + 1, dims + 2) or weight.ndim != dims + 2:
        raise RuntimeError(
            f"{name}(): expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input and a {dims + 2}D "
            f"weight, got shapes {tuple(input.shape)} and {tuple(weight.shape)}"
        )
    if not isinstance(groups, int) or isinstance(groups, bool):
        raise TypeError(f"{name}(): groups must be an int, got {groups!r}")
    if groups < 1 or weight.shape[0] % groups or not weight.shape[0]:
        raise RuntimeError(
            f"{name}(): expected a positive number of groups that divides the first dim of the weight "
            f"{tuple(weight.shape)}, got groups={groups}"
        )
    if 0 in weight.shape[2:]:
        raise RuntimeError(f"{name}(): the kernel is empty: weight has shape {tuple(weight.shape)}")
    got = [x.dtype for x in (input, weight, bias) if x is not None]
    if len(set(got)) > 1:
        got = ", ".join(map(str, got))
        raise RuntimeError(f"{name}(): expected input, weight and bias to have the same dtype, got {got}")
    if got[0].kind == "b":
        raise NotImplementedError(f"{name}(): not implemented for bool tensors")


def _check_bias(name: str, weight: Tensor, bias: Tensor | None, outs: int) -> None:
    if bias is not None and tuple(bias.shape) != (outs,):
        raise RuntimeError(
            f"{name}(): with a weight of shape {tuple(weight.shape)}, expected a bias of shape ({outs},), "
            f"got {tuple(bias.shape)}"
        )
