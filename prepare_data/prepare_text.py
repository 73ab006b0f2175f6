"""Any text as tokens: train.bin, val.bin, tokenizer.json, from a UTF-8 file or a folder of files.

--pydocs uses the help topics of the Python installation, which need no network.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # runs without installing mytorch

from prepare_data.common import (
    PrepareError,
    add_tokenizer_arguments,
    argument_parser,
    decode_text,
    read_file,
    run,
    write_tokens,
)


def folder_text(folder: Path, pattern: str) -> str:
    """Returns the text of all files in `folder` that match `pattern`, sorted; each starts on a new line."""
    try:
        files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise PrepareError(f"--pattern {pattern!r}: {error}") from None
    if not files:
        raise PrepareError(f"no file in {folder} matches the pattern {pattern!r}")
    text = ""
    parts = []
    for file in files:
        if parts and not text.endswith("\n"):
            parts.append("\n")
        text = decode_text(read_file(file), str(file))
        parts.append(text)
    print(f"text from {len(files):,} files in {folder}")
    return "".join(parts)


def pydocs_text() -> str:
    """Returns the help topics of the running Python, sorted by name."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise PrepareError(f"the help topics of Python are not installed ({error})") from None
    print(f"text from the {len(topics)} help topics of Python {sys.version.split()[0]}")
    return "\n".join(topics[name] for name in sorted(topics))


def fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("path", type=Path, nargs="?", help="a text file, or a folder of text files")
    parser.add_argument("--pydocs", action="store_true", help="use the help topics of Python instead")
    parser.add_argument("--pattern", default="*.txt", help="files of a folder; default: %(default)s")
    parser.add_argument(
        "--path_to_save", type=Path, default="data/text", help="output folder; default: %(default)s"
    )
    parser.add_argument(
        "--val_fraction",
        type=fraction,
        default=0.1,
        help="size of the validation split; default: %(default)s",
    )
    add_tokenizer_arguments(parser)
    args = parser.parse_args(argv)
    if (args.path is None) != args.pydocs:
        parser.error("pass either a path or --pydocs")

    def prepare() -> None:
        if args.pydocs:
            text = pydocs_text()
        elif args.path.is_dir():
            text = folder_text(args.path, args.pattern)
        else:
            text = decode_text(read_file(args.path), str(args.path))
            print(f"text from {args.path}")
        write_tokens(text, args.path_to_save, args.val_fraction, args.tokenizer, args.vocab_size)

    return run(prepare)


if __name__ == "__main__":
    sys.exit(main())
