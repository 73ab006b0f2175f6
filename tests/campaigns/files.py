"""
Fuzzing: valid files are damaged, and read.

A reader returns a right result, or raises the kind of error that its docstring promises and names the file.
It doesn't end the process, run out of memory or time, nor fail in its inside.
"""

import os
import random
import resource
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

from tests.campaigns import doors
from tests.campaigns.launchers import readers
from tests.campaigns.mutations import damaged, restructured
from tests.campaigns.readers import READERS, Reader, a_line, whole

DEADLINE = 120  # seconds
TRIES = 300
MEMORY = 1 << 30  # bytes more than there are: for files of some kilobytes
KNOWN = {}

READERS = {**READERS, **readers(Reader, a_line), **doors.readers(Reader, whole)}


def draw(random):
    return random.choice(list(READERS)), random.randrange(1 << 40)


@cache
def valid(name):
    """The files that a reader likes: {path in the folder: bytes}."""
    limit_memory()
    with tempfile.TemporaryDirectory() as folder:
        READERS[name].make(Path(folder))
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        return {path.relative_to(folder): path.read_bytes() for path in paths}


@cache
def limit_memory():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")


def check(folder, name, seed):
    reader, draw = READERS[name], random.Random(seed)
    files = dict(valid(name))
    chosen = draw.choice([path for path in files if path.name.endswith(reader.suffixes)])
    data = files[chosen]
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        if reader.edits and draw.random() < 0.7:
            data = draw.choice(reader.edits)(draw, data, lambda text: restructured(draw, text))
        else:
            data = damaged(draw, data)
    files[chosen] = data
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    errors = reader.errors
    if reader.is_named and draw.random() < 0.05:
        errors = (*errors, OSError)
        swap(draw, folder / chosen)
    try:
        reader.read(folder)
    except errors as error:
        text = str(error)
        if not isinstance(error, reader.nameless) and chosen.name not in text and str(folder) not in text:
            raise AssertionError(f"{where(error)}\n(names no file) {shown(chosen, data)}") from error
    except BaseException as error:
        raise AssertionError(f"{where(error)}\n{shown(chosen, data)}") from error


def swap(draw, path):
    """Puts something else in the place of a file: reading it would wait forever, or never end."""
    path.unlink()
    draw.choice([os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])(path)


def where(error):
    """The error, the line of code that raised it, and that of this package, or its tests, above it."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    root = os.getcwd()
    own = [frame for frame in frames if frame.startswith(root)]
    return f"{type(error).__name__} at {own[-1].removeprefix(root)}, in {frames[-1]}: {error!s:.300}"


def shown(path, data):
    return f"{path}: {data[:400]!r}{'…' * (len(data) > 400)}"


sys.setrecursionlimit(1000)
