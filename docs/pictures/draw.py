"""
Draws the pictures of the README and the docs, in src/.

    python docs/pictures/draw.py [--metrics work_dir/gpt2-small-shakespeare/metrics.jsonl]
    python docs/pictures/draw.py --check    exits with 1 if the words of one are not up to date

The loss curve is drawn only with --metrics. Requires mytorch and matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from banner import draw_banner  # noqa: E402
from canvas import FOLDER  # noqa: E402
from curves import draw_benchmarks, draw_loss  # noqa: E402
from graphs import draw_autograd, draw_depth_first, draw_order  # noqa: E402
from layers import draw_layers  # noqa: E402
from ops import draw_ops  # noqa: E402

PICTURES = {
    "banner": draw_banner, "layers": draw_layers, "ops": draw_ops, "depth_first": draw_depth_first,
    "autograd": draw_autograd, "order": draw_order, "benchmarks": draw_benchmarks,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Draws the pictures of the README and the docs.")
    parser.add_argument("--check", action="store_true", help="compare what they say, and draw nothing")
    parser.add_argument("--metrics", type=Path, help="metrics.jsonl of a finished run, for the loss curve")
    args = parser.parse_args()
    canvases = {name: draw() for name, draw in PICTURES.items()}
    if args.check:
        return int(any(canvas.description() not in saved(name) for name, canvas in canvases.items()))
    if args.metrics:
        canvases["loss"] = draw_loss(args.metrics)
    for name, canvas in canvases.items():
        canvas.save(FOLDER / f"{name}.svg")
        print(FOLDER / f"{name}.svg")
    return 0


def saved(name: str) -> str:
    path = FOLDER / f"{name}.svg"
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
