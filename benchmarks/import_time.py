"""Time `import mytorch` beyond NumPy's own import, each in fresh interpreters.

python -m benchmarks.import_time [--runs 15]
"""

import argparse
import statistics
import subprocess
import sys

from benchmarks.harness import positive

PROGRAM = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def import_ms(module: str) -> float:
    """Returns the milliseconds of an import in a fresh interpreter; CalledProcessError where it fails."""
    command = [sys.executable, "-c", PROGRAM.format(module)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout) * 1e3


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.import_time", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=positive, default=15, help="fresh interpreters of each (15)")
    runs = parser.parse_args(argv).runs
    # the first fills the caches
    times = [(import_ms("numpy"), import_ms("mytorch")) for _ in range(runs + 1)]
    base, whole = (statistics.median(column[1:]) for column in zip(*times, strict=True))
    beyond = f"{whole - base:.0f} ms beyond NumPy (medians of {runs})"
    print(f"import numpy {base:.0f} ms, import mytorch {whole:.0f} ms: {beyond}")


if __name__ == "__main__":
    main()
