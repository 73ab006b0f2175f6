"""pixel_shuffle, pixel_unshuffle and channel_shuffle."""

from __future__ import annotations

from ...core.op import index_of, require_tensor
from ...core.tensor import Tensor
from ...ops import permute, reshape


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Rearranges (..., C r², H, W) to (..., C, H r, W r): each pixel becomes r × r, from r² channels.

    Raises:
        RuntimeError: fewer than 3 dims, a factor below 1, or channels not divisible by r².
    Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
        Convolutional Neural Network", 2016, https://arxiv.org/abs/1609.05158

    >>> F.pixel_shuffle(mytorch.ones(1, 4, 3, 3), 2).shape
    Size([1, 1, 6, 6])
    """
    r = _factor(input, upscale_factor, "pixel_shuffle", "upscale_factor")
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle(): expects its input's channels to be divisible by the square of upscale_factor, "
            f"but got {channels} channels and {r}"
        )
    x = reshape(input, (*lead, channels // (r * r), r, r, height, width))
    x = permute(x, (*range(len(lead) + 1), -2, -4, -1, -3))
    return reshape(x, (*lead, channels // (r * r), height * r, width * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Rearranges (..., C, H r, W r) to (..., C r², H, W): the inverse of `pixel_shuffle`.

    Raises:
        RuntimeError: fewer than 3 dims, a factor below 1, or a height or width not divisible by r.

    >>> F.pixel_unshuffle(mytorch.ones(1, 1, 6, 6), 2).shape
    Size([1, 4, 3, 3])
    """
    r = _factor(input, downscale_factor, "pixel_unshuffle", "downscale_factor")
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise RuntimeError(
            "pixel_unshuffle(): expects height and width to be divisible by downscale_factor, "
            f"but got ({height}, {width}) and {r}"
        )
    x = reshape(input, (*lead, channels, height // r, r, width // r, r))
    x = permute(x, (*range(len(lead) + 1), -3, -1, -4, -2))
    return reshape(x, (*lead, channels * r * r, height // r, width // r))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleaves the channels of the groups of (N, C, …): the first of each group, then the second of each.

    Raises:
        RuntimeError: fewer than 3 dims, or channels not divisible by `groups`.
    Source: Zhang et al., "ShuffleNet: An Extremely Efficient Convolutional Neural Network for Mobile
        Devices", 2017, https://arxiv.org/abs/1707.01083

    >>> F.channel_shuffle(mytorch.arange(4).view(1, 4, 1), 2).flatten()
    tensor([0 2 1 3])
    """
    require_tensor(input, "channel_shuffle")
    groups = index_of(groups)
    if input.ndim < 3:
        shape = tuple(input.shape)
        raise RuntimeError(f"channel_shuffle(): expects input with > 2 dims, but got shape {shape}")
    if groups < 1:
        raise RuntimeError(f"channel_shuffle(): number of groups must be positive, got {groups}")
    n, channels, *rest = input.shape
    if channels % groups:
        raise RuntimeError(
            f"channel_shuffle(): number of channels must be divisible by groups, got {channels} and {groups}"
        )
    x = reshape(input, (n, groups, channels // groups, *rest))
    return reshape(permute(x, (0, 2, 1, *range(3, x.ndim))), (n, channels, *rest))


def _factor(input, factor, name, argument):
    require_tensor(input, name)
    factor = index_of(factor)
    if input.ndim < 3:
        raise RuntimeError(f"{name}(): expects input to have at least 3 dimensions, got {input.ndim}")
    if factor < 1:
        raise RuntimeError(f"{name}(): expects a positive {argument}, but got {factor}")
    return factor
