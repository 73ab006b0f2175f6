"""Functions shared by the scripts: one-line errors, text input, atomic output."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mytorch.tokenizers import CharTokenizer
from mytorch.utils.atomic import flush
from mytorch.utils.reading import open_regular


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


def write_char_tokens(text: str, folder: Path, val_fraction: float = 0.1) -> None:
    """Writes the character tokens of `text` to train.bin and val.bin (uint16), and tokenizer.json.

    Args:
        val_fraction: size of the validation split, which is the end of `text`.
    """
    num_train = int((1 - val_fraction) * len(text))
    for split, length in (("train", num_train), ("val", len(text) - num_train)):
        if length == 0:
            raise PrepareError(
                f"the {split} split would be empty: the text has {len(text):,} characters "
                f"and the validation fraction is {val_fraction:g}"
            )
    try:
        tokenizer = CharTokenizer.from_text(text)
    except ValueError as error:
        raise PrepareError(str(error)) from None
    tokens = tokenizer.encode_to_numpy(text)
    with atomic_folder(folder) as partial:
        tokens[:num_train].tofile(partial / "train.bin")
        tokens[num_train:].tofile(partial / "val.bin")
        tokenizer.save(partial / "tokenizer.json")
    print(
        f"{folder}: train.bin {num_train:,} tokens, val.bin {len(text) - num_train:,} tokens, "
        f"tokenizer.json {tokenizer.vocab_size:,} characters"
    )


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
