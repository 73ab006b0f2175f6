"""Every reader of files: valid files for it, and what it may raise."""

import contextlib
import io
import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import mytorch
from mytorch.accelerate import CheckpointError, checkpoint
from mytorch.accelerate.tracking import JsonlTracker
from mytorch.cli import settings
from mytorch.distributed import flight_recorder
from mytorch.models import GPT2, GPT2Config
from mytorch.tokenizers import BPETokenizer, CharTokenizer, load_tokenizer
from mytorch.utils.tokens import TokenWindows, size_of_vocabulary
from run_folder import draw_loss_curve
from tests.accelerate import train_and_save


def whole(random, data, change):
    return _encoded(change(data.decode(errors="surrogateescape")))


def a_line(random, data, change):
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = whole(random, lines[at], change)
    return b"\n".join(lines)


def header(random, data, change):
    """Of a safetensors file: its tensors by name."""
    size = int.from_bytes(data[:8], "little")
    text = _encoded(change(data[8 : 8 + size].decode(errors="surrogateescape")))
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def structure(random, data, change):
    """Of a safetensors file: the object that `mytorch.save` keeps in the header."""

    def inside(text):
        try:
            content = json.loads(text)
            content["__metadata__"]["mytorch"] = change(content["__metadata__"]["mytorch"])
            return json.dumps(content)
        except (ValueError, KeyError, TypeError, RecursionError):  # damaged already
            return text

    return header(random, data, inside)


def _encoded(text):
    """Surrogates that stand for a byte become it, the others three bytes that are no UTF-8."""
    kinds = {char: "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass" for char in {*text}}
    return b"".join([char.encode(errors=kinds[char]) for char in text])


@dataclass
class Reader:
    """A reader.

    Args:
        make: writes valid files into a folder.
        read: reads them; it asserts what must hold of the result.
        errors: what it may raise; the message names the damaged file, or the folder.
        edits: where JSON is in a file.
        suffixes: of the files that are damaged.
        nameless: errors that needn't name the file: it has been read, and doesn't fit.
        is_named: users name the file, which may be a FIFO, a folder or a device; that is an OSError.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    errors: tuple = (ValueError,)
    edits: tuple = (whole,)
    suffixes: tuple = ("",)
    nameless: tuple = ()
    is_named: bool = True


def everything():
    return {
        "model": {"w": mytorch.ones(3, 2), "tied": mytorch.zeros(2, dtype=mytorch.int64)},
        "list": [1, 2.5, None, True, "é", float("nan"), 1 + 2j, (1, (2,))],
        3: {"numpy": np.arange(4, dtype=np.float16), "scalar": np.float32(2), "empty": np.zeros((0, 3))},
    }


def load_twice(folder):
    """What was loaded can be saved, and is the same then."""
    loaded = mytorch.load(folder / "x.bin")
    mytorch.save(loaded, folder / "y.bin")
    again = mytorch.load(folder / "y.bin")
    assert repr(loaded) == repr(again), f"{loaded!r:.300}\nis saved and loaded\n{again!r:.300}"


def of_others(folder):
    from safetensors.numpy import save_file

    arrays = {"a": np.ones((2, 3), np.float32), "b.c": np.arange(5), "d": np.zeros(0, np.uint8)}
    save_file(arrays, folder / "x.bin", {"format": "pt", "tied": "a"})


def read_checkpoint(folder):
    problem = checkpoint.find_problem(folder / "checkpoint_0")
    assert isinstance(problem, str)
    assert isinstance(checkpoint.read(folder / "checkpoint_0"), dict)


@cache
def accelerator():
    prepared = train_and_save.parts()[0]
    prepared.register_for_checkpointing(train_and_save.Counter())
    return prepared


def save_state(folder):
    accelerator().save_state(folder / "checkpoint_0")


def load_parts(folder):
    """Whoever damages a part may also write its hash."""
    path = folder / "checkpoint_0" / checkpoint.MANIFEST
    manifest = json.loads(path.read_text())
    for name, entry in manifest["files"].items():
        with open(path.parent / name, "rb") as part:
            entry |= {"bytes": os.fstat(part.fileno()).st_size, "blake2b": checkpoint._hash(part)}
    path.write_text(json.dumps(manifest))
    accelerator().load_state(folder / "checkpoint_0")


def read_tokenizer(folder):
    tokenizer = CharTokenizer.load(folder / "tokenizer.json")
    text = tokenizer.characters
    assert tokenizer.decode(tokenizer.encode(text)) == text


def save_subword_tokenizer(folder):
    BPETokenizer.train("low lower lowest, low lower", 262).save(folder / "tokenizer.json")


def read_subword_tokenizer(folder):
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    with contextlib.suppress(ValueError):  # a byte that was removed from the vocabulary
        text = "lowest<|endoftext|>"  # without a space, which a damaged lstrip rightly takes
        assert tokenizer.decode(tokenizer.encode(text)) == text


def make_settings(folder):
    settings.write(folder / "s.yaml", {"nnodes": 2, "master_addr": "10.0.0.5", "num_processes": 4})


def read_settings(folder):
    for name, value in settings.read(folder / "s.yaml").items():
        assert value is None or isinstance(value, settings.BY_NAME[name].type | int), (name, value)


METRICS = [{"iteration": 0, "val_loss": 4.2}, *({"iteration": i, "loss": 4.0 / i} for i in range(1, 6))]


def make_metrics(folder):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in METRICS))


def resume_metrics(folder):
    JsonlTracker("metrics", folder, "iteration", start=3).finish()


def draw_metrics(folder):
    draw_loss_curve(folder / "metrics.jsonl", folder / "x.png")


def make_tokens(folder):
    np.random.default_rng(0).integers(0, 60, 300).astype(np.uint16).tofile(folder / "train.bin")


def read_tokens(folder):
    windows = TokenWindows(folder, "train", 16)
    assert windows[len(windows) - 1].shape == (17,) and windows[0].dtype == np.int64


def make_model(folder):
    """What train_gpt2.py leaves for inference_gpt2.py."""
    config = GPT2Config(vocab_size=4, context_length=8, n_layer=1, n_head=1, n_embd=4)
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    mytorch.save(GPT2(config).state_dict(), folder / "model.safetensors")
    CharTokenizer("abcd").save(folder / "tokenizer.json")


def generate(folder):
    import inference_gpt2

    sys.argv = ["inference_gpt2.py", str(folder), "--prompt", "ab", "--max_new_tokens", "2"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        inference_gpt2.main()


def make_flight(folder):
    flight = flight_recorder.FlightRecorder(1, folder)
    for i in range(70):
        flight.end(flight.begin(i, "WORLD", "all_reduce", "(3,)", "float32", "x.py:3"))


def read_flight(folder):
    for flight in flight_recorder.read_all(folder).values():
        assert len(flight.records) <= 64


def save_tokenizer(folder):
    CharTokenizer("abc déf\n").save(folder / "tokenizer.json")


REFUSED = (ValueError, RuntimeError)
IN_PARTS = {"edits": (header, structure), "suffixes": (".bin", ".safetensors")}
READERS = {
    "load": Reader(lambda folder: mytorch.save(everything(), folder / "x.bin"), load_twice, **IN_PARTS),
    "load, of others": Reader(of_others, load_twice, **IN_PARTS),
    "checkpoint": Reader(save_state, read_checkpoint, (CheckpointError,), (whole,)),
    "load_state": Reader(save_state, load_parts, REFUSED, nameless=REFUSED, is_named=False, **IN_PARTS),
    "tokenizer": Reader(save_tokenizer, read_tokenizer),
    "subword tokenizer": Reader(save_subword_tokenizer, read_subword_tokenizer),
    "size_of_vocabulary": Reader(save_tokenizer, size_of_vocabulary),
    "settings": Reader(make_settings, read_settings, (settings.SettingsError,)),
    "loss curve": Reader(make_metrics, draw_metrics, edits=(a_line,)),
    "metrics": Reader(make_metrics, resume_metrics, edits=(a_line,)),
    "tokens": Reader(make_tokens, read_tokens, edits=()),
    "inference_gpt2.py": Reader(make_model, generate, (ValueError, RuntimeError, SystemExit, MemoryError),
                                nameless=(RuntimeError, SystemExit, MemoryError), suffixes=(".json",)),
    "flight recorder": Reader(make_flight, read_flight, (), edits=(), is_named=False),
}
