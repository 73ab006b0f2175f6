"""How large all is that is measured: in full, in a quick look, and for the tests of the benchmark."""

from dataclasses import dataclass

from benchmarks.gpt import CONFIGS, Config


def _gpt2(batch_size: int) -> Config:
    return Config(12, 12, 768, 1024, batch_size, 50304)  # 124M; vocabulary padded to a multiple of 64


@dataclass(frozen=True)
class Size:
    rows: int | None = 3  # of a kernel's odd cases that are compared; None: all, and those of real size
    copied: int = 1 << 29  # bytes of the array that is copied to find the bandwidth
    matrices: tuple[int, ...] = (8192,)  # products that are tried to find the matrix rate, N x N each
    flushed: int = 0  # bytes that are overwritten to empty the cache; 0 for four times its size
    ms: float = 50.0  # for which calls are repeated, at least and at most `runs` times
    runs: tuple[int, int] = (5, 50)
    kernels: Config = _gpt2(4)  # whose shapes the kernels are timed on, beside those of `images`
    images: tuple[int, int, int, int] = (16, 64, 56, 56)
    train: Config = _gpt2(8)  # what is trained, in `windows` of `steps` steps that are timed
    windows: int = 2
    steps: int = 5
    programs: tuple[str, ...] = ("MLP", "policy", "LSTM", "nano", "small", "sums", "exp")


SIZES = {
    "full": Size(None, 1 << 31, (4096, 8192, 16384), 0, 200.0, (10, 200), _gpt2(64), (250, 64, 56, 56),
                 _gpt2(64), windows=5, steps=20),
    "quick": Size(),
    "tiny": Size(1, 1 << 16, (64,), 1 << 16, 0.0, (2, 2), CONFIGS["tiny"], (2, 64, 2, 2), CONFIGS["tiny"],
                 steps=4, programs=("policy",)),
}
