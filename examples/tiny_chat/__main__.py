"""
From nothing to a model that answers: all stages, one after the other.

    python -m examples.tiny_chat --preset small    three CPU minutes
    python -m examples.tiny_chat --preset night    a larger model, for a night; not measured
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

from . import conversations, evaluate, finetune, pretrain, report, text, tokenizer
from .common import parser, run, write_lines

STAGES = {
    "text": text, "tokenizer": tokenizer, "pretrain": pretrain, "conversations": conversations,
    "finetune": finetune, "evaluate": evaluate, "report": report,
}
PRESETS = {  # options of the stages; the defaults are small
    "small": {},
    "night": {
        "tokenizer": "--vocab_size 4096",
        "pretrain": "--layers 8 --width 384 --context 512 --batch_size 16 --steps 3000 --lr 1e-3",
        "finetune": "--batch_size 8 --steps 150 --lr 3e-4",
    },
}


def run_stages(folder: Path, options: dict[str, list[str]]) -> None:
    """Runs all stages with these options, and measures their time."""
    times = []
    for name, stage in STAGES.items():
        if name == "report":
            write_lines(folder / "stages.jsonl", times)
        seconds, cpu_seconds = time.perf_counter(), time.process_time()
        stage.main(["--folder", str(folder), *options.get(name, [])])
        seconds, cpu_seconds = time.perf_counter() - seconds, time.process_time() - cpu_seconds
        times.append({"stage": name, "seconds": seconds, "cpu_seconds": cpu_seconds})


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__.strip().splitlines()[0])
    made.add_argument("--preset", choices=PRESETS, default="small", help="night is not measured")
    made.add_argument("--path", help="a folder of text; Python's help pages by default")
    made.add_argument("--conversations", nargs="+", help="JSONL files; made from the help pages by default")
    args = made.parse_args(arguments)
    for package in ("jinja2", "matplotlib"):  # of the last stages: said now, not after a night
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"{package} is not installed: pip install -e '.[models,plot]'")

    options = {name: PRESETS[args.preset].get(name, "").split() for name in STAGES}
    options = {name: [*given, "--seed", str(args.seed)] for name, given in options.items()}
    if args.path:
        options["text"] += ["--path", args.path]
    if args.conversations:
        options["finetune"] += ["--conversations", *args.conversations]
    run_stages(args.folder, options)


if __name__ == "__main__":
    run(main)
