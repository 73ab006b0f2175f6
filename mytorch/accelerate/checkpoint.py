"""
Checkpoints: folders that are written atomically.

    model.safetensors  optimizer.bin  mp_config.bin  scheduler.bin  sampler.bin  random_states.bin
    manifest.json

All files but the manifest are safetensors (see `serialization`), whatever their names: nothing is pickled. A
checkpoint is written into a folder of another name, flushed to the disk, and renamed; its manifest holds size
and hash of each file. So a kill at any moment leaves the last good one, and damage is detected. Each file has
the hash of the one before it: a file of another checkpoint isn't taken for its own, even with equal content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from ..serialization import WithMetadata, load_open, save
from ..utils.atomic import flush
from ..utils.reading import check_regular, is_count, open_regular, read_json
from .checkpoint_parts import check_part, is_part

MANIFEST = "manifest.json"
IN_ALL = ("accelerator.bin", "sampler.bin", "random_states.bin")  # files of every checkpoint
_VERSION = 1
_NUMBERED = re.compile(r"checkpoint_(\d+)")


class CheckpointError(ValueError):
    """A checkpoint is missing, incomplete or altered."""


def write(folder: Path, files: dict[str, Any], replace: bool = True) -> None:
    """Writes objects into the files of a checkpoint; an old one is kept until the new one is whole.

    Args:
        files: objects for `serialization.save`, by file name.
        replace: replace an existing checkpoint.

    Raises:
        FileExistsError: the folder holds other files, or a checkpoint and `replace` is False.
        OSError: writing failed.
    """
    folder = folder.resolve()  # a link stays one
    _check_folder(folder, files, replace)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.partial")
    partial.mkdir()
    try:
        with open(partial / MANIFEST, "w", encoding="utf-8") as manifest:
            _lock(manifest)  # so that `clean` of another run leaves the folder alone
            entries, before = {}, ""
            for name, obj in files.items():
                save(WithMetadata(obj, {"previous": before}), partial / name)  # waits for the disk
                with open_regular(partial / name) as file:
                    before = _hash(file)
                    entries[name] = {"blake2b": before, "bytes": file.tell()}
            json.dump({"version": _VERSION, "files": entries}, manifest, indent=2)
            manifest.flush()
            os.fsync(manifest.fileno())
            _flush(partial)
            _check_folder(folder, files, replace)  # another run may have written it
            _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_folder(folder: Path, files: dict[str, Any], replace: bool) -> None:
    """Raises if writing would delete anything but a checkpoint."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise FileExistsError(f"can't save a checkpoint as {folder}: it is a file")
    if Path.cwd().is_relative_to(folder):
        raise FileExistsError(f"can't save a checkpoint as {folder}: it is the current folder, or around it")
    if not replace:
        raise FileExistsError(f"{folder} was written meanwhile: does another run save into {folder.parent}?")
    known = {MANIFEST, *files}
    with suppress(CheckpointError):
        known.update(_entries(folder))
    others = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if others:
        shown = ", ".join(others[:5]) + ", …" * (len(others) > 5)
        raise FileExistsError(
            f"can't save a checkpoint as {folder}: other files in it would be deleted ({shown}); name a "
            "folder for the checkpoint alone"
        )


def _replace(partial: Path, folder: Path) -> None:
    """Renames to `folder`; meanwhile an existing one is .previous, where `read` finds it."""
    previous = _previous(folder)
    if folder.exists():
        if previous.exists():
            shutil.rmtree(previous)
        os.rename(folder, previous)
    os.rename(partial, folder)
    _flush(folder.parent)
    shutil.rmtree(previous, ignore_errors=True)


def _previous(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.previous")


def read(folder: Path) -> dict[str, Any]:
    """Returns the objects in a checkpoint by file name, after a check of all bytes against the manifest.

    Raises:
        CheckpointError: a file is missing, truncated, altered or isn't what `save_state` writes; the message
            names it and a good checkpoint.
        MemoryError: a tensor doesn't fit in memory.
    """
    while True:
        found = _present(folder)
        stamp = _stamp(found)
        try:
            return _read(found)
        except CheckpointError as error:
            if _stamp(_present(folder)) != stamp:
                continue  # another process has replaced it meanwhile
            good = next((other for other in _others(found) if not find_problem(other)), None)
            hint = f"; the last good checkpoint is {good}" if good else ""
            raise CheckpointError(f"can't load the checkpoint {found}: {error}{hint}") from error


def _stamp(folder: Path) -> tuple | None:
    """Returns what tells a checkpoint from another one of the same name."""
    with suppress(OSError):
        status = os.stat(folder / MANIFEST)
        return folder, status.st_ino, status.st_mtime_ns
    return None


def _read(folder: Path, values: bool = True) -> dict[str, Any]:
    """Returns the objects in a folder; without `values` the tensors are zeros that take no memory."""
    entries = _entries(folder)
    for name in IN_ALL:
        if name not in entries:
            raise CheckpointError(f"{name} is not in {MANIFEST}")
    with suppress(FileNotFoundError):  # another process replaces it: then its files are missing
        for name in sorted(os.listdir(folder)):
            if is_part(name) and name not in entries:
                raise CheckpointError(f"{name} is of another checkpoint: it is not in {MANIFEST}")
    return {name: _read_file(folder / name, *entry, values) for name, entry in entries.items()}


def _read_file(path: Path, expected: int, digest: str, values: bool) -> Any:
    try:
        with open_regular(path) as file:  # one file is hashed and loaded, even if it is replaced meanwhile
            size = os.fstat(file.fileno()).st_size
            if size != expected:
                raise CheckpointError(f"{path.name} has {size:,} bytes instead of {expected:,}")
            if _hash(file) != digest:
                raise CheckpointError(f"{path.name} was altered")
            file.seek(0)
            content = load_open(file, "it", values=values)
        check_part(path.name, content)
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{path.name} can't be read: {error}") from error
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{path.name} is damaged: {error}") from error
    return content


def _present(folder: Path) -> Path:
    """Returns the folder, or .previous if a process was killed between two renames."""
    folder = folder.resolve()
    previous = _previous(folder)
    return folder if (folder / MANIFEST).is_file() or not (previous / MANIFEST).is_file() else previous


def find_problem(folder: Path) -> str:
    """Returns why a checkpoint can't be used, after a check of all its bytes; "" if it can."""
    try:
        _read(folder, values=False)
    except CheckpointError as error:
        return str(error)
    return ""


def _entries(folder: Path) -> dict[str, tuple[int, str]]:
    """Returns the entries of the manifest: {name: (bytes, hash)}.

    Raises:
        CheckpointError: the manifest is missing, damaged, or of another version.
    """
    try:
        manifest = read_json(folder / MANIFEST)
        version, files = manifest["version"], manifest["files"]
        if version != _VERSION:
            raise CheckpointError(f"it has version {version!r}, this mytorch reads version {_VERSION}")
        entries = {name: (entry["bytes"], entry["blake2b"]) for name, entry in files.items()}
    except FileNotFoundError:
        raise CheckpointError(f"{MANIFEST} is missing") from None
    except OSError as error:
        raise CheckpointError(f"{MANIFEST} can't be read: {error}") from error
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{MANIFEST} is damaged: {error!r}") from error
    for name, (size, digest) in entries.items():
        if not is_count(size) or not isinstance(digest, str):
            raise CheckpointError(f"{MANIFEST} is damaged: {name} has {size!r} bytes and hash {digest!r}")
    for name in entries:
        if name != os.path.basename(name) or name in ("", ".", "..", MANIFEST):
            raise CheckpointError(f"{MANIFEST} is damaged: {name!r} is no name of a file in a checkpoint")
    return entries


def _others(folder: Path) -> list[Path]:
    """Returns other checkpoints of the same run, the newest first."""
    siblings = [path for _, path in sorted(numbered(folder.parent).items(), reverse=True)]
    return [path for path in (_previous(folder), *siblings) if path != folder and path.is_dir()]


def candidates(folder: Path) -> list[Path]:
    """Returns the checkpoint that `newest` finds and the others of its run, the newest first."""
    first = newest(folder)
    if first is None:
        return []
    first = _present(first)
    return [first, *(other for other in _others(first) if other != first)]


def last_good(
    folder: Path, found: list[Path] | None = None, problem_of: Callable[[Path], str] = find_problem
) -> Path | None:
    """Returns the first of the `candidates` without a problem, and warns of those before it.

    Args:
        found: the candidates; by default those of the folder.
        problem_of: returns why a checkpoint can't be used; "" if it can.

    Returns:
        None without any checkpoint.

    Raises:
        CheckpointError: all have problems.
    """
    problems = []
    for path in candidates(folder) if found is None else found:
        problem = problem_of(path)
        if not problem:
            for text in problems:
                warnings.warn(f"passed over the checkpoint {text}", stacklevel=2)
            return path
        problems.append(f"{path}: {problem}")
    if problems:
        raise CheckpointError(f"no valid checkpoint found in {folder}: {'; '.join(problems)}")
    return None


def numbered(folder: Path) -> dict[int, Path]:
    """Returns the folders checkpoint_N in a folder, by N."""
    if not folder.is_dir():
        return {}
    found = {path: _NUMBERED.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()}
    return {int(match[1]): path for path, match in found.items() if match}


def next_numbered(folder: Path) -> Path:
    """Returns the folder of the next checkpoint_N.

    Raises:
        FileExistsError: the folder is a checkpoint itself, which `newest` would find first.
    """
    if (folder / MANIFEST).is_file():
        raise FileExistsError(f"can't save several checkpoints in {folder}: it is one itself")
    return folder / f"checkpoint_{max(numbered(folder), default=-1) + 1}"


def newest(folder: Path) -> Path | None:
    """Returns the folder if it is a checkpoint, or else the last one in it; None without one."""
    if (folder / MANIFEST).is_file() or _previous(folder.resolve()).is_dir():
        return folder
    found = numbered(folder)
    if found:
        return found[max(found)]
    return folder if any((folder / name).is_file() for name in IN_ALL) else None  # its manifest is gone


def clean(folder: Path, keep_last: int, written: Path | None = None) -> None:
    """Deletes numbered checkpoints before the last good ones, and files that killed processes left.

    Args:
        keep_last: how many good ones to keep; damaged ones among them stay, but don't count.
        written: the one that was just written, which isn't read again.
    """
    found, good = numbered(folder), 0
    for number in sorted(found, reverse=True):
        if good < keep_last:
            good += found[number] == written or not find_problem(found[number])
            continue
        # Renamed first: a checkpoint that is half deleted must not look like a damaged one.
        doomed = found[number].with_name(f".{found[number].name}.partial")
        with suppress(OSError):
            os.rename(found[number], doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    for path in folder.glob(".checkpoint_*.partial"):
        if not _is_being_written(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_being_written(partial: Path) -> bool:
    try:
        check_regular(partial / MANIFEST)
        with open(partial / MANIFEST, "r+") as manifest:
            return not _lock(manifest)
    except OSError:
        return False


def _lock(file: TextIO) -> bool:
    """Locks a file until the process ends; returns False if another process has the lock."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # systems and file systems without locks
        pass
    return True


def _hash(file: BinaryIO) -> str:
    digest = hashlib.blake2b()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _flush(folder: Path) -> None:
    with suppress(OSError):  # systems that can't flush a folder
        flush(folder)
