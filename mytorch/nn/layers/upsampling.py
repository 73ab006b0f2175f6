"""Upsampling and pixel shuffle layers."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.tensor import Tensor
from .. import functional as F
from ..functional.types import IntOrInts
from ..module import Module


class Upsample(Module):
    """Resizes the last dims, (N, C, n…): see `F.interpolate`.

    Args:
        size, scale_factor, mode, align_corners, recompute_scale_factor: those of `F.interpolate`.

    >>> nn.Upsample(scale_factor=2)(mytorch.tensor([[[1.0, 2.0]]]))
    tensor([[[1.00000 1.00000 2.00000 2.00000]]])
    """

    def __init__(
        self, size: IntOrInts | None = None, scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ):
        super().__init__()
        if isinstance(scale_factor, tuple):
            scale_factor = tuple(map(float, scale_factor))
        elif scale_factor is not None:
            scale_factor = float(scale_factor)
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        given = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes (N, C, H, W) to the nearest pixel: `Upsample(mode="nearest")`.

    >>> nn.UpsamplingNearest2d(scale_factor=2)(mytorch.ones(1, 1, 2, 2)).shape
    Size([1, 1, 4, 4])
    """

    def __init__(self, size: IntOrInts | None = None, scale_factor: float | Sequence[float] | None = None):
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Resizes (N, C, H, W) bilinearly: `Upsample(mode="bilinear", align_corners=True)`.

    >>> nn.UpsamplingBilinear2d(scale_factor=2)(mytorch.ones(1, 1, 2, 2)).shape
    Size([1, 1, 4, 4])
    """

    def __init__(self, size: IntOrInts | None = None, scale_factor: float | Sequence[float] | None = None):
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """(..., C r², H, W) to (..., C, H r, W r), r = `upscale_factor`: see `F.pixel_shuffle`.

    >>> nn.PixelShuffle(2)(mytorch.ones(1, 4, 3, 3)).shape
    Size([1, 1, 6, 6])
    """

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H r, W r) to (..., C r², H, W), r = `downscale_factor`: see `F.pixel_unshuffle`.

    >>> nn.PixelUnshuffle(2)(mytorch.ones(1, 1, 6, 6)).shape
    Size([1, 4, 3, 3])
    """

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleaves the channels of `groups` groups: see `F.channel_shuffle`.

    >>> nn.ChannelShuffle(2)(mytorch.ones(1, 4, 3, 3)).shape
    Size([1, 4, 3, 3])
    """

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
