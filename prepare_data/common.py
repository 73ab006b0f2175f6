"""Functions shared by the scripts: one-line errors, text input, atomic output."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mytorch.tokenizers import BPETokenizer, CharTokenizer, gpt2_tokenizer
from mytorch.utils.atomic import flush
from mytorch.utils.reading import open_regular

TOKENIZERS = ("char", "bpe", "gpt2")


class PrepareError(Exception):
    """An error that is reported to the user in one line."""


def argument_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser that prints the description with its line breaks."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(prepare: Callable[[], None]) -> int:
    """Calls `prepare` and returns the exit code; an error is printed to stderr in one line."""
    try:
        prepare()
    except (PrepareError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


def read_file(path: Path) -> bytes:
    """Returns the bytes of a file; raises PrepareError if the file does not exist."""
    if path.is_dir():
        raise PrepareError(f"{path} is a folder, not a file")
    if not path.exists():
        raise PrepareError(f"no such file: {path}")
    with open_regular(path) as file:
        return file.read()


def decode_text(raw: bytes, name: str) -> str:
    """Returns `raw` decoded as UTF-8; raises PrepareError if it is empty or not UTF-8."""
    if not raw:
        raise PrepareError(f"{name} is empty")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at position {error.start:,}"
        raise PrepareError(f"{name} is not UTF-8: {byte} ({error.reason})") from None


def add_tokenizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --tokenizer and --vocab_size."""
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        default="char",
        help="characters; byte-level BPE, trained on the training split; GPT-2's. Default: %(default)s",
    )
    parser.add_argument(
        "--vocab_size",
        type=int,
        default=1280,
        help="number of tokens with --tokenizer bpe; default: %(default)s",
    )


def write_tokens(
    text: str, folder: Path, val_fraction: float = 0.1, kind: str = "char", vocab_size: int = 1280
) -> None:
    """Writes the tokens of `text` to train.bin and val.bin (uint16), and tokenizer.json.

    Args:
        val_fraction: size of the validation split, which is the end of `text`.
        kind: of the tokenizer, one of TOKENIZERS.
        vocab_size: of a tokenizer of the kind "bpe".
    """
    num_train = int((1 - val_fraction) * len(text))
    splits = {"train": text[:num_train], "val": text[num_train:]}
    for split, part in splits.items():
        if not part:
            raise PrepareError(
                f"the {split} split would be empty: the text has {len(text):,} characters "
                f"and the validation fraction is {val_fraction:g}"
            )
    try:
        tokenizer = make_tokenizer(kind, text, splits["train"], vocab_size)
    except ValueError as error:
        raise PrepareError(str(error)) from None
    tokens = {split: tokenizer.encode_to_numpy(part) for split, part in splits.items()}
    with atomic_folder(folder) as partial:
        for split, ids in tokens.items():
            ids.tofile(partial / f"{split}.bin")
        if kind == "gpt2":
            content = json.dumps({"type": "gpt2", "vocab_size": tokenizer.vocab_size})
            (partial / "tokenizer.json").write_text(content + "\n", encoding="utf-8")
        else:
            tokenizer.save(partial / "tokenizer.json")
    print(
        f"{folder}: train.bin {len(tokens['train']):,} tokens, val.bin {len(tokens['val']):,} tokens, "
        f"tokenizer.json {tokenizer.vocab_size:,} {'characters' if kind == 'char' else 'tokens'}"
    )


def make_tokenizer(kind: str, text: str, train: str, vocab_size: int) -> CharTokenizer | BPETokenizer:
    """Returns a tokenizer of the characters in `text`, one that is trained on `train`, or GPT-2's."""
    if kind == "char":
        return CharTokenizer.from_text(text)
    if kind == "gpt2":
        return gpt2_tokenizer()
    if vocab_size > 2**16:
        raise PrepareError(f"--vocab_size {vocab_size}: ids are stored as uint16, which allows 65,536")
    return BPETokenizer.train(train, vocab_size)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder and moves its files to `folder`; after an error `folder` is unchanged."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
            yield Path(partial)
            # The old tokenizer is deleted first, the new one moved last: a folder with one is complete.
            (folder / "tokenizer.json").unlink(missing_ok=True)
            files = sorted(Path(partial).iterdir(), key=lambda file: file.name == "tokenizer.json")
            for file in files:
                flush(file)
            for file in files:
                os.replace(file, folder / file.name)
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
