"""
Stage 1: collects the text, documents that are split into data/train.jsonl and data/val.jsonl.

    python -m examples.tiny_chat.text                      Python's own help pages
    python -m examples.tiny_chat.text --path ~/documents   .txt, .md, .rst and .py files of any folder
"""

from __future__ import annotations

import random
from pathlib import Path

from .common import bar, parser, run, write_lines
from .help_pages import pages

SUFFIXES = {".md", ".py", ".rst", ".txt"}


def read_folder(folder: Path) -> list[str]:
    """Returns the texts of all files with these suffixes; says which are not UTF-8.

    Raises:
        FileNotFoundError: there are none.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise FileNotFoundError(f"no {', '.join(sorted(SUFFIXES))} files in {folder}")
    texts = []
    for path in bar(files, "text"):
        try:
            texts.append(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            print(f"left out: {path} is not UTF-8 ({error.reason})")
    return texts


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__.strip().splitlines()[0])
    options.add_argument("--path", type=Path, help="a folder of text; Python's help pages by default")
    options.add_argument("--modules", nargs="+", help="help pages of these modules alone")
    options.add_argument("--val_fraction", type=float, default=0.05, help="of the documents")
    args = options.parse_args(arguments)
    if not 0 < args.val_fraction < 1:
        raise ValueError(f"--val_fraction must be in 0 … 1, got {args.val_fraction}")

    documents = read_folder(args.path) if args.path else list(bar(pages(args.modules), "text"))
    documents = [text for text in documents if text.strip()]
    random.Random(args.seed).shuffle(documents)
    held_out = max(1, round(len(documents) * args.val_fraction))
    if len(documents) <= held_out:
        raise ValueError(f"{len(documents)} documents are too few to hold {held_out} out")
    splits = {"val": documents[:held_out], "train": documents[held_out:]}
    for split, texts in splits.items():
        write_lines(args.folder / f"data/{split}.jsonl", [{"text": text} for text in texts])
        size = sum(len(text.encode()) for text in texts)
        print(f"text: {split} has {len(texts):,} documents, {size:,} bytes")


if __name__ == "__main__":
    run(main)
