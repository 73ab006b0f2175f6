"""prepare_owt.py on small files: every format, restarts, processes, downloads, errors."""

import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import sys
import threading
import types
from collections import Counter

import numpy as np
import pytest

from mytorch.tokenizers import BPETokenizer, CharTokenizer, load_tokenizer
from mytorch.utils.tokens import load_tokens, size_of_vocabulary
from prepare_data import documents, prepare_owt

END = "<|endoftext|>"
TEXTS = [f"Document {i}: {'αβγ ' * (i % 7)}and\nits {'second ' * (i % 5)}line\n" for i in range(60)]
TEXTS += ["no newline at the end", "\n\n", "🙂", "x" * 700]
FRACTION = ("--val_fraction", 0.3)


def write_parquet(path, texts, rows=5):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    table = pyarrow.table({"id": list(range(len(texts))), "text": texts})
    parquet.write_table(table, path, row_group_size=rows)


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text, "id": 1}) + "\n" for text in texts) + "\n")


def write_text(path, texts):
    path.write_text("<|endoftext|>\n".join(text if text[-1] == "\n" else f"{text}\n" for text in texts))


WRITERS = {"jsonl": write_lines, "parquet": write_parquet, "txt": write_text}


@pytest.fixture
def corpus(tmp_path):
    """A function that writes the texts as a file of a format; the tokenizer is in the same folder."""
    BPETokenizer.train(TEXTS, 300).save(tmp_path / "tokenizer.json")

    def write(kind, texts=TEXTS):
        path = tmp_path / f"corpus.{kind}"
        WRITERS[kind](path, texts)
        return path

    return write


def run(folder, *arguments, out="out"):
    options = ["--path_to_save", folder / out, "--tokenizer", folder, "--num_proc", 1]
    return prepare_owt.main([*map(str, options), *map(str, arguments)])


def bytes_of(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["tokenizer.json", "train.bin", "val.bin"]
    return {split: (folder / f"{split}.bin").read_bytes() for split in ("train", "val")}


def documents_of(folder):
    """The documents of both splits, whose tokens end with the end of text."""
    tokenizer, found = load_tokenizer(folder), {}
    for split, raw in bytes_of(folder).items():
        text = tokenizer.decode(np.frombuffer(raw, np.uint16))
        assert text.endswith(END)
        found[split] = text.split(END)[:-1]
    return found


def expected(kind):
    return [text if text[-1] == "\n" else f"{text}\n" for text in TEXTS] if kind == "txt" else TEXTS


@pytest.mark.parametrize("part_bytes", [1 << 24, 997, 150])
@pytest.mark.parametrize("kind", WRITERS)
def test_every_document_is_in_one_split_once(kind, part_bytes, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "PART_BYTES", part_bytes)
    assert run(tmp_path, "--data_files", corpus(kind), *FRACTION) == 0
    found = documents_of(tmp_path / "out")
    assert Counter(found["train"] + found["val"]) == Counter(expected(kind))
    order = {text: i for i, text in enumerate(expected(kind))}
    for split in found.values():
        assert [order[text] for text in split] == sorted(order[text] for text in split)
    assert 5 < len(found["val"]) < 35
    vocab_size = size_of_vocabulary(tmp_path / "out")
    tokens = load_tokens(tmp_path / "out", "train", 16, vocab_size)
    assert tokens.dtype == np.uint16 and (tokens == 299).sum() == len(found["train"])


@pytest.mark.parametrize("kind", ["jsonl", "txt"])
def test_wherever_the_parts_end(kind, corpus, tmp_path, monkeypatch):
    source = documents.open_file(str(corpus(kind, TEXTS[:9])), "text", tmp_path, 0)
    for part_bytes in range(1, 40):
        monkeypatch.setattr(documents, "PART_BYTES", part_bytes)
        pieces = [piece for begin, end, _ in source.parts() for piece in source.read(begin, end)]
        text = "".join(text + END * is_whole for text, is_whole in pieces)
        assert text == "".join(text + END for text in expected(kind)[:9]), part_bytes


def test_several_files_of_all_formats(corpus, tmp_path):
    files = [corpus(kind) for kind in WRITERS]
    assert run(tmp_path, "--data_files", *files, *FRACTION) == 0
    found = documents_of(tmp_path / "out")
    assert Counter(found["train"] + found["val"]) == Counter([t for kind in WRITERS for t in expected(kind)])


def test_a_long_text_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "PART_BYTES", 100)
    (tmp_path / "a.txt").write_text("A line.\n" * 1000)
    source = documents.open_file(str(tmp_path / "a.txt"), "text", tmp_path, 0)
    pieces = [piece for begin, end, _ in source.parts() for piece in source.read(begin, end)]
    assert "".join(text for text, _ in pieces) == "A line.\n" * 1000
    assert max(len(text) for text, _ in pieces) < 110
    assert [whole for _, whole in pieces] == [False] * (len(pieces) - 1) + [True]


def test_processes_make_the_same_tokens(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "PART_BYTES", 2000)
    path = corpus("jsonl")
    assert run(tmp_path, "--data_files", path, *FRACTION) == 0
    assert run(tmp_path, "--data_files", path, *FRACTION, "--num_proc", 2, out="two") == 0
    assert bytes_of(tmp_path / "two") == bytes_of(tmp_path / "out")


def test_a_second_start_continues(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(documents, "PART_BYTES", 500)
    path, made, make = corpus("jsonl"), [], prepare_owt.make_shard
    assert run(tmp_path, "--data_files", path, *FRACTION) == 0

    def killed(job, settings):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(job.index)
        make(job, settings)

    monkeypatch.setattr(prepare_owt, "make_shard", killed)
    assert run(tmp_path, "--data_files", path, *FRACTION, out="again") == 130
    assert [p.name for p in (tmp_path / "again").iterdir()] == [".shards"]
    assert run(tmp_path, "--data_files", path, "--val_fraction", 0.5, out="again") == 1
    assert "is of a run with other val_fraction: delete it" in capsys.readouterr().err
    monkeypatch.setattr(prepare_owt, "make_shard", lambda job, s: (made.append(job.index), make(job, s)))
    assert run(tmp_path, "--data_files", path, *FRACTION, out="again") == 0
    assert made == list(range(len(made))) and len(made) > 8
    assert bytes_of(tmp_path / "again") == bytes_of(tmp_path / "out")


class Deadly:
    """A source whose reader is killed, as for its memory."""

    name = "deadly"

    def read(self, begin, end):
        os.kill(os.getpid(), 9)


def test_a_killed_process_is_an_error(corpus, tmp_path):
    job = prepare_owt.Job(0, Deadly(), 0, 1, 1)
    settings = prepare_owt.Settings(tmp_path, str(tmp_path), 0.5)
    with pytest.raises(documents.PrepareError, match="a process was killed, .* Run it again to continue"):
        list(prepare_owt.make_shards([job], settings, 2))


class Server(http.server.SimpleHTTPRequestHandler):
    served: list

    def do_GET(self):
        self.served.append(self.path)
        if self.path == "/short.jsonl":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{}")
        else:
            super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """The address of a server of the folder, and the list of what was downloaded."""
    handler = type("Handler", (Server,), {"served": []})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path))
    ) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}", handler.served
        httpd.shutdown()
        thread.join()


def test_files_at_urls(corpus, tmp_path, server, monkeypatch, capsys):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    url, served = server
    for kind in ("jsonl", "parquet"):
        corpus(kind)
    files = [f"{url}/corpus.jsonl?x=1", f"{url}/corpus.parquet"]
    for name, message in [("short.jsonl", "cut short: 2 of 1,000 bytes"), ("no.txt", "HTTP Error 404")]:
        assert run(tmp_path, "--data_files", *files, f"{url}/{name}", *FRACTION) == 1
        assert f"{url}/{name}" in (error := capsys.readouterr().err) and message in error
    assert run(tmp_path, "--data_files", *files, *FRACTION) == 0
    found = documents_of(tmp_path / "out")
    assert Counter(found["train"] + found["val"]) == Counter(TEXTS * 2)
    assert served == ["/corpus.jsonl?x=1", "/corpus.parquet", "/short.jsonl", "/no.txt"]  # each once


def test_a_dataset_of_hugging_face(corpus, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    (tmp_path / "set").mkdir()
    shutil.move(corpus("parquet"), tmp_path / "set/train.parquet")
    monkeypatch.setattr(documents, "PART_BYTES", 999)
    assert run(tmp_path, "--dataset", tmp_path / "set", *FRACTION) == 0
    found = documents_of(tmp_path / "out")
    assert Counter(found["train"] + found["val"]) == Counter(TEXTS)


class Rows(list):
    column_names, data = ["text"], types.SimpleNamespace(nbytes=5000)

    def __getitem__(self, index):
        return {"text": super().__getitem__(index)}


def test_the_parquet_revision_and_offline(corpus, tmp_path, monkeypatch, capsys):
    calls, works = [], ["refs/convert/parquet"]

    def load_dataset(name, split, num_proc, revision):
        calls.append((name, split, num_proc, revision))
        if revision not in works:
            raise RuntimeError("Dataset scripts are no longer supported")
        return Rows(TEXTS)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr(documents, "offline_reason", lambda: None)
    assert run(tmp_path, "--dataset", "owner/set", *FRACTION) == 0
    assert calls == [("owner/set", "train", 1, None), ("owner/set", "train", 1, "refs/convert/parquet")]
    found = documents_of(tmp_path / "out")
    assert Counter(found["train"] + found["val"]) == Counter(TEXTS)
    works.clear()
    assert run(tmp_path, "--dataset", "owner/set", *FRACTION, out="none") == 1
    error = capsys.readouterr().err
    assert "owner/set could not be loaded: RuntimeError: Dataset scripts" in error and "parquet rev" in error
    monkeypatch.undo()
    calls.clear()
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert run(tmp_path, "--dataset", "owner/set", *FRACTION, out="none") == 1
    assert os.environ["HF_HUB_OFFLINE"] == "1" and len(calls) == 1
    error = capsys.readouterr().err
    assert "owner/set is not in the cache, and there is no network: http://127.0.0.1:9: <urlopen" in error
    assert not (tmp_path / "none").exists()


PARQUET = b"PAR1 damaged PAR1"
WRONG = {  # the file, its content, further options: what is said
    "format": ("a.csv", b"a", [], "a.csv: its format is unknown; expected .txt, .jsonl, .parquet"),
    "no file": (None, b"", [], "no such file: .*gone.jsonl"),
    "no JSON": ("a.jsonl", b'{"text": "a"}\n{"text"', [], r"a.jsonl, byte 14: no JSON: "),
    "no object": ("a.jsonl", b"[]", [], "a.jsonl, byte 0: expected a string as 'text', got NoneType"),
    "no string": ("a.jsonl", b'{"text": 3}', [], "expected a string as 'text', got int"),
    "no key": ("a.jsonl", b'{"text": "a"}', ["--text_key", "b"], "expected a string as 'b', got NoneType"),
    "no UTF-8": ("a.txt", b"Document\n\xff\n", [], "a.txt, byte 9: invalid start byte"),
    "no UTF-8 in JSON": ("a.jsonl", b'{"text": "\xff"}', [], "a.jsonl, byte 10: invalid start byte"),
    "no column": ("corpus.parquet", None, ["--text_key", "b"], r"no column 'b' \(--text_key\), but id, text"),
    "no strings": ("corpus.parquet", None, ["--text_key", "id"], "row groups 0 to .*as 'id', got int"),
    "damaged parquet": ("a.parquet", PARQUET, [], "a.parquet is damaged"),
    "surrogate": ("a.jsonl", b'{"text": "\\ud800"}', [], "a.jsonl: the text contains the surrogate"),
    "empty": ("a.jsonl", b"", [], "train.bin would be empty"),
    "no val": ("a.jsonl", b'{"text": "a"}', ["--val_fraction", "1e-9"], "val.bin would be empty; choose"),
    "no tokenizer": ("a.txt", b"a", ["--tokenizer", "none.json"], "--tokenizer none.json: .*no such file"),
    "no processes": ("a.txt", b"a", ["--num_proc", "0"], "--num_proc must be at least 1, got 0"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input(kind, corpus, tmp_path, capsys):
    name, content, options, message = WRONG[kind]
    path = tmp_path / (name or "gone.jsonl")
    if content is None:
        corpus("parquet")
    elif name:
        path.write_bytes(content)
    with contextlib.suppress(SystemExit):
        assert run(tmp_path, "--data_files", path, *options) == 1
    error = capsys.readouterr().err
    last = error.strip().splitlines()[-1]
    assert re.search(message, last) and "Traceback" not in error


def test_a_tokenizer_needs_an_end_of_text(tmp_path, capsys):
    CharTokenizer("abc").save(tmp_path / "tokenizer.json")
    (tmp_path / "a.txt").write_text("abc")
    assert run(tmp_path, "--data_files", tmp_path / "a.txt") == 1
    assert re.search("--tokenizer .*: it has no token for the end of a text", capsys.readouterr().err)


def test_the_disk_is_checked_first(corpus, tmp_path, monkeypatch, capsys):
    usage = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(documents.shutil, "disk_usage", lambda folder: usage)
    assert run(tmp_path, "--data_files", corpus("jsonl"), *FRACTION) == 1
    assert "0.0 GB are needed, " in capsys.readouterr().err
    assert not list((tmp_path / "out/.shards").glob("*.bin"))
    usage.free = 1e10  # less than OpenWebText needs: nothing is loaded
    monkeypatch.setattr(documents, "load_hub_dataset", None)
    assert run(tmp_path) == 1
    assert "36.0 GB are needed" in capsys.readouterr().err
