"""Time `import mytorch` beyond NumPy's own import, each in fresh interpreters.

python -m benchmarks.import_time [--runs 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

PROGRAM = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def import_ms(module: str) -> float:
    """Milliseconds that `import module` takes in a fresh interpreter; CalledProcessError where it fails."""
    command = [sys.executable, "-c", PROGRAM.format(module)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout) * 1e3


def compare(runs: int, base: str = "numpy", module: str = "mytorch") -> tuple[float, float]:
    """Median milliseconds of both imports, taken in turns, after one of each that fills the disk cache."""
    import_ms(base), import_ms(module)
    times = [(import_ms(base), import_ms(module)) for _ in range(runs)]
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.import_time", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=15, help="fresh interpreters of each (15)")
    args = parser.parse_args(argv)
    if args.runs < 1:
        parser.error(f"--runs must be at least 1; got {args.runs}")
    base, module = compare(args.runs)
    print(
        f"import numpy {base:.0f} ms, import mytorch {module:.0f} ms: {module - base:.0f} ms beyond NumPy "
        f"(medians of {args.runs})"
    )


if __name__ == "__main__":
    main()
