"""
Checkpoints: folders that are whole or not there.

    model.safetensors  optimizer.bin  mp_config.bin  scheduler.bin  sampler.bin  random_states.bin
    manifest.json

Everything but the manifest is a safetensors file (see `serialization`), whatever its name: nothing is
pickled. A checkpoint is written into a folder of another name, flushed to the disk, and renamed; its manifest
holds size and hash of each file. So a kill at any moment leaves the last good one, and damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..serialization import load, save

MANIFEST = "manifest.json"
_VERSION = 1
_NUMBERED = re.compile(r"checkpoint_(\d+)")


class CheckpointError(ValueError):
    """A checkpoint is not there, not whole, or was changed."""


def write(folder: Path, files: dict[str, Any]) -> None:
    """Write objects into the files of a checkpoint; what was there before stays until it is whole.

    Args:
        files: what `serialization.save` takes, by name.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.partial")
    partial.mkdir()
    try:
        entries = {}
        for name, obj in files.items():
            save(obj, partial / name)  # waits for the disk
            entries[name] = {"bytes": (partial / name).stat().st_size, "blake2b": _hash(partial / name)}
        with open(partial / MANIFEST, "w", encoding="utf-8") as file:
            json.dump({"version": _VERSION, "files": entries}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        _flush(partial)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(partial: Path, folder: Path) -> None:
    """Rename to `folder`; one that is there already waits as .previous, where `read` finds it."""
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
    """The objects in a checkpoint, by the names of its files; every byte was compared with the manifest.

    Raises:
        CheckpointError: a file is missing, truncated or altered; it says which, and which checkpoint is good.
    """
    found = folder
    if not (folder / MANIFEST).is_file() and (_previous(folder) / MANIFEST).is_file():
        found = _previous(folder)  # the process was killed between two renames
    problem = what_is_wrong(found)
    if problem:
        good = next((other for other in _others(folder) if not what_is_wrong(other)), None)
        hint = f"; the last good checkpoint is {good}" if good else ""
        raise CheckpointError(f"can't load the checkpoint {found}: {problem}{hint}")
    names = json.loads((found / MANIFEST).read_text(encoding="utf-8"))["files"]
    return {name: load(found / name) for name in names}


def what_is_wrong(folder: Path) -> str:
    """Why a checkpoint can't be used; "" if it can."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version, files = manifest["version"], manifest["files"]
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} is damaged: {error!r}"
    if version != _VERSION:
        return f"it has version {version!r}, this mytorch reads version {_VERSION}"
    for name, entry in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        size = path.stat().st_size
        if size != entry["bytes"]:
            return f"{name} has {size:,} bytes instead of {entry['bytes']:,}"
        if _hash(path) != entry["blake2b"]:
            return f"{name} was altered"
    return ""


def _others(folder: Path) -> list[Path]:
    """Other checkpoints of the same run, the newest first."""
    siblings = sorted(numbered(folder.parent).items(), reverse=True)
    match = _NUMBERED.fullmatch(folder.name)
    before = [path for number, path in siblings if match is None or number != int(match[1])]
    return [_previous(folder), *before]


def numbered(folder: Path) -> dict[int, Path]:
    """The folders checkpoint_N in a folder, by N."""
    if not folder.is_dir():
        return {}
    found = {path: _NUMBERED.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()}
    return {int(match[1]): path for path, match in found.items() if match}


def next_numbered(folder: Path) -> Path:
    """The folder of the next checkpoint in a row."""
    return folder / f"checkpoint_{max(numbered(folder), default=-1) + 1}"


def newest(folder: Path) -> Path:
    """The checkpoint that a folder is, or the last one in it.

    Raises:
        CheckpointError: there is none.
    """
    if (folder / MANIFEST).is_file() or _previous(folder).is_dir():
        return folder
    found = numbered(folder)
    if found:
        return found[max(found)]
    if folder.is_dir() and any(path.is_file() for path in folder.iterdir()):
        return folder  # where `read` says what is missing
    raise CheckpointError(f"there is no checkpoint in {folder}")


def clean(folder: Path, keep_last: int) -> None:
    """Delete all but the last checkpoints in a row, and what killed processes left behind."""
    found = numbered(folder)
    for number in sorted(found)[:-keep_last]:
        # Renamed first: a checkpoint that is half deleted must not look like a damaged one.
        doomed = found[number].with_name(f".{found[number].name}.partial")
        with suppress(OSError):
            os.rename(found[number], doomed)
        shutil.rmtree(doomed, ignore_errors=True)
    for path in folder.glob(".checkpoint_*.partial"):
        shutil.rmtree(path, ignore_errors=True)


def _hash(path: Path) -> str:
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _flush(folder: Path) -> None:
    with suppress(OSError):  # not every system can flush a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
