"""The convolutions that both implementations get: shapes as in ResNets, arrays made from a seed by NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

REPEATS = 3  # steps in a row that a worker does of one shape; a third of them isn't timed


@dataclass(frozen=True)
class Shape:
    """One layer and its batch of square images."""

    batch: int
    channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.kernel // 2

    def __str__(self) -> str:
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return (
            f"{self.batch} x {self.channels} x {self.size} x {self.size} -> {self.out_channels}, "
            f"{self.kernel}x{self.kernel} / {self.stride}{groups}"
        )


SHAPES = {
    "resnet": [
        *(Shape(8, width, size, width, 3) for width, size in ((64, 56), (128, 28), (256, 14), (512, 7))),
        *(Shape(8, width, size, 2 * width, 3, 2) for width, size in ((64, 56), (128, 28), (256, 14))),
        Shape(8, 64, 56, 256, 1),
        Shape(8, 256, 56, 64, 1),
        Shape(8, 64, 56, 128, 1, 2),
        Shape(8, 3, 224, 64, 7, 2),
    ],
    "other": [
        Shape(32, 16, 32, 16, 3),
        Shape(8, 64, 56, 64, 3, groups=64),
        Shape(8, 128, 28, 128, 3, groups=32),
    ],
    "tiny": [Shape(2, 3, 8, 4, 3), Shape(2, 4, 8, 4, 3, 2, 2)],  # for the tests
}


def arrays(shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Input, weight and the gradient of the result, normal numbers in float32."""
    rng = np.random.default_rng(7)
    out = (shape.size + 2 * shape.padding - shape.kernel) // shape.stride + 1
    sizes = [
        (shape.batch, shape.channels, shape.size, shape.size),
        (shape.out_channels, shape.channels // shape.groups, shape.kernel, shape.kernel),
        (shape.batch, shape.out_channels, out, out),
    ]
    return tuple(rng.standard_normal(size, dtype=np.float32) for size in sizes)
