"""Documents of text, JSONL and parquet files and of Hugging Face's datasets, read in parts of limited size.

A source has `parts()`, ranges (begin, end, bytes), and `read(begin, end)`, which yields the documents that
begin in a range as (text, is_whole): a long one comes in pieces, of which only the last has is_whole.
"""

import http.client
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mytorch.utils import atomic_write
from mytorch.utils.reading import open_regular
from prepare_data.common import PrepareError

PART_BYTES = 1 << 24  # what a kill costs at most, in each process
SEPARATOR = b"<|endoftext|>"  # a line of its own between the documents of a text file
PARQUET_REVISION = "refs/convert/parquet"  # Hugging Face's conversion of datasets that are made by a script
TIMEOUT = 10  # seconds

Range = tuple[int, int, int]
Documents = Iterator[tuple[str, bool]]


class LinesFile:
    """A file of lines; parts are ranges of bytes, and belong to the lines that begin there."""

    def __init__(self, path: Path, key: str):
        self.name, self.path, self.key = str(path), path, key
        status = path.stat()
        self.version = [status.st_size, status.st_mtime_ns]

    def parts(self) -> list[Range]:
        size = self.version[0]
        starts = range(0, size, PART_BYTES)
        return [(a, min(a + PART_BYTES, size), min(PART_BYTES, size - a)) for a in starts]

    def lines(self, begin: int) -> Iterator[tuple[int, bytes]]:
        """Yields the position and content of the lines that begin at `begin` or later."""
        with open_regular(self.path) as file:
            if begin:
                file.seek(begin - 1)
                begin += len(file.readline()) - 1  # the rest of a line that begins earlier
            for line in file:
                yield begin, line
                begin += len(line)

    def decode(self, position: int, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PrepareError(f"{self.name}, byte {position + error.start:,}: {error.reason}") from None


class TextFile(LinesFile):
    """UTF-8 text: one document, or several with a line <|endoftext|> between them."""

    def read(self, begin: int, end: int) -> Documents:
        # The line before the first document of a part is of the part before.
        start = max(0, begin - 2 * len(SEPARATOR))
        is_inside, piece, piece_position, num_pieces = begin == 0, bytearray(), 0, 0
        for position, line in self.lines(start):
            following = position + len(line)
            if line.strip() == SEPARATOR:
                if is_inside and (piece or num_pieces):
                    yield self.decode(piece_position, piece), True
                piece, num_pieces, is_inside = bytearray(), 0, begin <= following < end
                piece_position = following
            elif is_inside:
                piece += line
                if len(piece) >= PART_BYTES:
                    yield self.decode(piece_position, piece), False
                    piece, num_pieces, piece_position = bytearray(), num_pieces + 1, following
            if not is_inside and following >= end:
                return
        if is_inside and (piece or num_pieces):
            yield self.decode(piece_position, piece), True


class JsonLinesFile(LinesFile):
    """One JSON object a line, with the document as the string `key`; blank lines are none."""

    def read(self, begin: int, end: int) -> Documents:
        for position, line in self.lines(begin):
            if position >= end:
                return
            if line.strip():
                try:
                    content = json.loads(self.decode(position, line))
                except (ValueError, RecursionError) as error:
                    raise PrepareError(f"{self.name}, byte {position:,}: no JSON: {error}") from None
                text = content.get(self.key) if isinstance(content, dict) else None
                yield check_text(text, self.key, f"{self.name}, byte {position:,}"), True


class ParquetFile:
    """A column `key` of strings; parts are ranges of row groups."""

    def __init__(self, path: Path, key: str):
        self.name, self.path, self.key = str(path), path, key
        status = path.stat()
        self.version = [status.st_size, status.st_mtime_ns]

    def open(self) -> Any:
        pyarrow, parquet = import_package("pyarrow"), import_package("pyarrow.parquet")
        try:
            file = parquet.ParquetFile(self.path)
        except pyarrow.ArrowException as error:
            raise PrepareError(f"{self.name} is damaged: {error}") from None
        check_column(self.key, file.schema_arrow.names, self.name)
        return file

    def parts(self) -> list[Range]:
        with self.open() as file:
            column = file.schema_arrow.names.index(self.key)
            groups = (file.metadata.row_group(i) for i in range(file.num_row_groups))
            sizes = [group.column(column).total_uncompressed_size for group in groups]
        parts, begin = [], 0
        for end in range(1, len(sizes) + 1):
            if end == len(sizes) or sum(sizes[begin : end + 1]) > PART_BYTES:
                parts.append((begin, end, sum(sizes[begin:end])))
                begin = end
        return parts

    def read(self, begin: int, end: int) -> Documents:
        pyarrow = import_package("pyarrow")
        with self.open() as file:
            try:
                for batch in file.iter_batches(1024, row_groups=range(begin, end), columns=[self.key]):
                    for text in batch.column(0).to_pylist():
                        yield check_text(text, self.key, f"{self.name}, row groups {begin} to {end}"), True
            except (pyarrow.ArrowException, OSError) as error:
                raise PrepareError(f"{self.name} is damaged: {error}") from None


class HubDataset:
    """The split "train" of a dataset, which is memory-mapped; parts are ranges of rows."""

    def __init__(self, name: str, key: str, num_proc: int):
        self.name, self.key = name, key
        self.rows = load_hub_dataset(name, num_proc)
        check_column(key, self.rows.column_names, name)
        self.version = [len(self.rows)]

    def parts(self) -> list[Range]:
        count, num_bytes = len(self.rows), self.rows.data.nbytes
        step = max(1, count * PART_BYTES // max(num_bytes, 1))
        ends = [*range(step, count, step), count] if count else []
        return [(a, b, num_bytes * (b - a) // count) for a, b in zip([0, *ends], ends, strict=False)]

    def read(self, begin: int, end: int) -> Documents:
        for i in range(begin, end, 1024):
            for text in self.rows[i : min(i + 1024, end)][self.key]:
                yield check_text(text, self.key, f"{self.name}, rows {begin:,} to {end:,}"), True


Source = TextFile | JsonLinesFile | ParquetFile | HubDataset
FORMATS = {".txt": TextFile, ".jsonl": JsonLinesFile, ".parquet": ParquetFile}


def check_text(text: Any, key: str, where: str) -> str:
    if not isinstance(text, str):
        raise PrepareError(f"{where}: expected a string as {key!r}, got {type(text).__name__}")
    return text


def check_column(key: str, columns: list[str], name: str) -> None:
    if key not in columns:
        raise PrepareError(f"{name} has no column {key!r} (--text_key), but {', '.join(columns)}")


def open_file(name: str, key: str, downloads: Path, index: int) -> Source:
    """Returns the source of a path or URL; a file at a URL is first saved in the folder `downloads`."""
    is_url = name.startswith(("http://", "https://"))
    suffix = Path(urlsplit(name).path if is_url else name).suffix
    if suffix not in FORMATS:
        raise PrepareError(f"{name}: its format is unknown; expected {', '.join(FORMATS)}")
    path = Path(name)
    if is_url:
        path = downloads / f"{index:05}{suffix}"
        if not path.exists():
            download(name, path)
    elif not path.exists():
        raise PrepareError(f"no such file: {path}")
    with open_regular(path):  # no folder, no FIFO
        source = FORMATS[suffix](path, key)
    source.name = name
    return source


def download(url: str, path: Path) -> None:
    """Saves the file at a URL; one that is cut short is an error."""
    from tqdm import tqdm

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response, atomic_write(path) as partial:
            total = int(response.headers.get("Content-Length") or 0)
            if total:
                check_space(path.parent, total)
            with (
                open(partial, "wb") as file,
                tqdm.wrapattr(file, "write", total=total, desc=f"downloading {path.name}") as out,
            ):
                shutil.copyfileobj(response, out, 1 << 20)
            size = partial.stat().st_size
            if total and size != total:
                raise PrepareError(f"{url} was cut short: {size:,} of {total:,} bytes")
    except (OSError, http.client.HTTPException) as error:
        raise PrepareError(f"{url} could not be downloaded: {error}") from None


def check_space(folder: Path, num_bytes: float) -> None:
    """Raises PrepareError if the disk of a folder, which need not exist, has less than `num_bytes` free."""
    while not folder.exists():
        folder = folder.absolute().parent
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise PrepareError(f"{num_bytes / 1e9:,.1f} GB are needed, {folder} has {free / 1e9:,.1f} GB free")


def import_package(name: str) -> Any:
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        raise PrepareError(f"{error.name} is missing: pip install -e '.[train]'") from None


def load_hub_dataset(name: str, num_proc: int) -> Any:
    """Returns the split "train" of a dataset on Hugging Face, or of a local folder.

    Offline that of the cache; without one, PrepareError at once.
    """
    reason = None if Path(name).is_dir() else offline_reason()
    if reason:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read at the import: the cache, without attempts to connect
    datasets, errors = import_package("datasets"), []
    for revision in (None, PARQUET_REVISION):
        try:
            return datasets.load_dataset(name, split="train", num_proc=num_proc, revision=revision)
        except Exception as error:  # of several libraries; all are reported
            errors.append(f"{type(error).__name__}: {error}")
        if reason:
            raise PrepareError(
                f"{name} is not in the cache, and there is no network: {reason}. Local files can be "
                "prepared with --data_files"
            )
    raise PrepareError(f"{name} could not be loaded: {errors[0]}; its parquet revision: {errors[1]}")


def offline_reason() -> str | None:
    """Returns why Hugging Face can't be reached, or None."""
    url = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        urllib.request.urlopen(url, timeout=TIMEOUT).close()
    except urllib.error.HTTPError:  # an answer
        return None
    except OSError as error:
        return f"{url}: {error}"
    return None
