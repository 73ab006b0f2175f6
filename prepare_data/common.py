"""What the prepare scripts share: one-line errors, reading text, and output that is whole or not there."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mytorch.tokenizers import CharTokenizer


class PrepareError(Exception):
    """What the user has to know, in one line."""


def argument_parser(description: str) -> argparse.ArgumentParser:
    """A parser whose --help shows the description as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def run(prepare: Callable[[], None]) -> int:
    """Run a script's work and return its exit code; errors go to stderr as one line."""
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
    """The bytes of a file; raises PrepareError where there is no such file."""
    if path.is_dir():
        raise PrepareError(f"{path} is a folder, not a file")
    if not path.exists():
        raise PrepareError(f"there is no file {path}")
    return path.read_bytes()


def decode_text(raw: bytes, name: str) -> str:
    """`raw` read as UTF-8, line ends kept; raises PrepareError where it is empty or something else."""
    if not raw:
        raise PrepareError(f"{name} is empty")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at position {error.start:,}"
        raise PrepareError(f"{name} is not UTF-8: {byte} ({error.reason})") from None


def write_characters(text: str, folder: Path, val_fraction: float = 0.1) -> None:
    """Write train.bin, val.bin (uint16; validation is the end of `text`) and tokenizer.json to `folder`."""
    num_train = int((1 - val_fraction) * len(text))
    for split, length in (("train", num_train), ("val", len(text) - num_train)):
        if length == 0:
            raise PrepareError(
                f"the {split} split would be empty: the text has {len(text):,} characters "
                f"and {val_fraction:g} of it is for validation"
            )
    try:
        tokenizer = CharTokenizer.from_text(text)
    except ValueError as error:
        raise PrepareError(str(error)) from None
    tokens = tokenizer.encode_to_numpy(text)
    with whole_folder(folder) as partial:
        tokens[:num_train].tofile(partial / "train.bin")
        tokens[num_train:].tofile(partial / "val.bin")
        tokenizer.save(partial / "tokenizer.json")
    print(
        f"{folder}: train.bin {num_train:,} tokens, val.bin {len(text) - num_train:,} tokens, "
        f"tokenizer.json {tokenizer.vocab_size:,} characters"
    )


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files move into `folder` at the end; an error leaves `folder` as it was."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
            yield Path(partial)
            # The old tokenizer goes first, the new one comes last: a folder that has one is complete.
            (folder / "tokenizer.json").unlink(missing_ok=True)
            for file in sorted(Path(partial).iterdir(), key=lambda file: file.name == "tokenizer.json"):
                os.replace(file, folder / file.name)
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
