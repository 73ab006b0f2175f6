"""GPT-2's files: from a folder, from the cache, by tiktoken's download; with tiktoken and without."""

import hashlib
import json
import pickle
import sys

import pytest
import tiktoken.load
from hypothesis import given
from hypothesis import strategies as st

from mytorch.tokenizers import BPETokenizer, gpt2, gpt2_tokenizer
from tests.tokenizers.texts import TEXTS, corpus, trained


def files():
    """Of another vocabulary, in the form of GPT-2's."""
    ours = trained()
    merges = "".join(f"{a} {b}\n" for a, b in ours.merges)
    return {"encoder.json": json.dumps(ours.vocab), "vocab.bpe": f"#version: 0.2\n{merges}"}


@pytest.fixture
def folder(tmp_path):
    for name, content in files().items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mytorch" / "gpt2"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    for name, content in files().items():
        (folder / name).write_text(content, encoding="utf-8")
    return gpt2_tokenizer(folder), trained()


@given(TEXTS)
def test_tiktokens_ids_are_ours(both, text):
    fast, ours = both
    assert fast._encoding is not None
    for allowed in ((), "all"):
        assert fast.encode(text, allowed) == ours.encode(text, allowed)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_utf8(both, raw):
    assert both[0].encode_bytes(raw) == both[1].encode_bytes(raw)


def test_long_texts(both):
    fast, ours = both
    for text in (corpus(), " " * 20_000 + "x", "x" * 10**5, "a<|endoftext|>b"):
        assert fast.encode(text) == ours.encode(text)
    again = pickle.loads(pickle.dumps(fast))
    assert again.encode(corpus()[:999], "all") == fast.encode(corpus()[:999]) and again.eos_token_id == 799


def test_without_tiktoken(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    plain = gpt2_tokenizer(folder)
    assert isinstance(plain, BPETokenizer) and plain._encoding is None and plain.vocab_size == 800
    assert plain.encode(corpus()[:999]) == trained().encode(corpus()[:999])


def test_a_vocabulary_that_is_not_by_rank(folder):
    """For tiktoken an id is a rank: here two ids are swapped."""
    vocab = dict(trained().vocab)
    a, b = (next(t for t, i in vocab.items() if i == k) for k in (300, 301))
    vocab[a], vocab[b] = 301, 300
    (folder / "encoder.json").write_text(json.dumps(vocab))
    ours = gpt2_tokenizer(folder)
    swap = {300: 301, 301: 300}
    assert ours.encode(corpus()) == [swap.get(i, i) for i in trained().encode(corpus())]


def test_names_of_hugging_face(folder):
    (folder / "encoder.json").rename(folder / "vocab.json")
    (folder / "vocab.bpe").rename(folder / "merges.txt")
    assert gpt2_tokenizer(folder).vocab == trained().vocab
    (folder / "merges.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match="contains neither encoder.json and vocab.bpe nor vocab.json and"
    ):
        gpt2_tokenizer(folder)


@pytest.fixture
def server(monkeypatch):
    """tiktoken's download, from a dict."""
    served, asked = dict(files()), []

    def read_file_cached(url, digest):
        asked.append(url)
        return served[url.removeprefix(gpt2.URL)].encode()

    digests = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in served.items()}
    monkeypatch.setattr(gpt2, "SHA256", digests)
    monkeypatch.setattr(tiktoken.load, "read_file_cached", read_file_cached)
    return served, asked


def test_the_first_use_downloads(cache, server, monkeypatch):
    _, asked = server
    assert gpt2_tokenizer().vocab == trained().vocab and len(asked) == 2
    assert sorted(path.name for path in cache.iterdir()) == ["encoder.json", "vocab.bpe"]
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert gpt2_tokenizer().encode("a") == trained().encode("a") and len(asked) == 2


def test_a_damaged_download(cache, server):
    server[0]["vocab.bpe"] += "x"
    with pytest.raises(ValueError, match="vocab.bpe was truncated or changed: its sha256 isn't"):
        gpt2_tokenizer()
    assert not (cache / "vocab.bpe").exists()


def test_the_urls_and_hashes_are_tiktokens(monkeypatch):
    from tiktoken_ext import openai_public

    seen = {}
    monkeypatch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda **given: seen.update(given))
    openai_public.gpt2()
    for name, key in (("encoder.json", "encoder_json"), ("vocab.bpe", "vocab_bpe")):
        assert (seen[f"{key}_file"], seen[f"{key}_hash"]) == (gpt2.URL + name, gpt2.SHA256[name])


def test_no_files_and_no_tiktoken(cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setitem(sys.modules, "tiktoken.load", None)
    with pytest.raises(
        FileNotFoundError, match="encoder.json and vocab.bpe: pass their folder, .*pip install tik"
    ):
        gpt2_tokenizer()
    assert not cache.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("encoder.json", "{", "encoder.json is damaged"),
        ("encoder.json", "[]", "encoder.json is damaged: expected the ids of tokens"),
        ("encoder.json", '{"a": -1}', "encoder.json is damaged: expected the ids of tokens"),
        ("encoder.json", '{"a": 0}', "encoder.json and .*vocab.bpe don't fit: merge 0"),
        ("vocab.bpe", "#version\na b\nab\n", "vocab.bpe, line 3, is damaged: expected two tokens, got 'ab'"),
        ("vocab.bpe", "a b c\n", "vocab.bpe, line 1, is damaged: expected two tokens, got 'a b c'"),
        ("vocab.bpe", b"\xff", "vocab.bpe is not UTF-8"),
    ],
)
def test_damaged_files(folder, name, content, message):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as error:
        gpt2_tokenizer(folder)
    assert str(folder / name) in str(error.value)
