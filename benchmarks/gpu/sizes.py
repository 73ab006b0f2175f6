"""How large all is that is measured: in full, in a quick look, and for the tests of the benchmark."""

from dataclasses import dataclass

from benchmarks.gpt import CONFIGS, Config


def _gpt2(batch_size: int) -> Config:
    return Config(12, 12, 768, 1024, batch_size, 50304)  # 124M; vocabulary padded to a multiple of 64


@dataclass(frozen=True)
class Size:
    """
    Attributes:
        rows: how many of a kernel's odd cases are compared; None: all, and those of real size.
        copied: bytes of the array that is copied to find the bandwidth.
        matrices: the products that are tried to find the matrix rate, N x N each.
        flushed: bytes that are overwritten to empty the cache; 0 for four times its size.
        ms, runs: how long calls are repeated, at least and at most how often.
        kernels: the GPT-2 whose shapes the kernels are timed on, beside those of `images`.
        train: the one that is trained, and `windows` of `steps` steps that are timed.
    """

    rows: int | None = None
    copied: int = 1 << 29
    matrices: tuple[int, ...] = (8192,)
    flushed: int = 0
    ms: float = 50.0
    runs: tuple[int, int] = (5, 50)
    kernels: Config = _gpt2(4)
    images: tuple[int, int, int, int] = (16, 64, 56, 56)
    train: Config = _gpt2(8)
    windows: int = 2
    steps: int = 5


_TINY = CONFIGS["tiny"]
SIZES = {
    "full": Size(
        copied=1 << 31, matrices=(4096, 8192, 16384), ms=200.0, runs=(10, 200), kernels=_gpt2(64),
        images=(250, 64, 56, 56), train=_gpt2(64), windows=5, steps=20,
    ),
    "quick": Size(rows=3),
    "tiny": Size(
        rows=1, copied=1 << 16, matrices=(64,), flushed=1 << 16, ms=0.0, runs=(2, 2), kernels=_TINY,
        images=(2, 64, 2, 2), train=_TINY, steps=4,
    ),
}  # fmt: skip
