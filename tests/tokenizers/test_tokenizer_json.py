"""Hugging Face's tokenizer.json, as its libraries write it."""

import json
import re

import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from mytorch.tokenizers import BPETokenizer, SentencePieceBPE, WordPieceTokenizer, from_tokenizer_json
from tests.tokenizers.test_sentencepiece_bpe import trained as sentencepiece
from tests.tokenizers.texts import HARD, corpus, trained

TEXT = corpus()[:3000] + HARD + "<|endoftext|>x</s> a <s>"


def byte_level(**changes):
    """A byte-level tokenizer, with other components where `changes` has some."""
    ours = trained()
    merges = changes.pop("merges", ours.merges)
    vocab = changes.pop("vocab", {token: i for token, i in ours.vocab.items() if i < 799})
    made = tokenizers.Tokenizer(models.BPE(vocab, merges, **changes.pop("model", {})))
    made.add_special_tokens(["<|endoftext|>"])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    for name, component in changes.items():
        setattr(made, name, component)
    return made


def llama(**changes):
    vocab, merges = sentencepiece()
    made = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    for name, component in changes.items():
        setattr(made, name, component)
    return made


split, regex, digits = pre_tokenizers.Split, tokenizers.Regex, pre_tokenizers.Digits
plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BOS = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 799)])
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FILES = {
    "gpt-2": byte_level(),
    "llama 3": byte_level(
        model={"ignore_merges": True},
        pre_tokenizer=pre_tokenizers.Sequence(
            [split(regex(LLAMA3), "isolated"), plain]
        ),
        post_processor=processors.Sequence([processors.ByteLevel(trim_offsets=False), BOS]),
    ),
    "smollm": byte_level(
        pre_tokenizer=pre_tokenizers.Sequence(
            [digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "runs of digits": byte_level(pre_tokenizer=pre_tokenizers.Sequence([digits(False), plain])),
    "a string": byte_level(pre_tokenizer=pre_tokenizers.Sequence([split(" ", "isolated"), plain])),
    "normal form": byte_level(normalizer=normalizers.Sequence([normalizers.NFKC()])),
    "roberta's end": byte_level(
        post_processor=processors.RobertaProcessing(("<|endoftext|>", 799), ("<|endoftext|>", 799))
    ),
    "llama 2": llama(),
    "mistral": llama(
        normalizer=None, pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    ),
    "metaspace": llama(normalizer=None, pre_tokenizer=pre_tokenizers.Metaspace()),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_the_tokenizers_library(tmp_path, name):
    theirs = FILES[name]
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = from_tokenizer_json(tmp_path / "tokenizer.json")
    ids = ours.encode(TEXT, allowed_special="all", add_special_tokens=True)
    assert ids == theirs.encode(TEXT).ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    assert ours.encode("a") == theirs.encode("a", add_special_tokens=False).ids
    assert ours.vocab == theirs.get_vocab() and ours.vocab_size == theirs.get_vocab_size()


def test_a_file_of_the_first_format(tmp_path):
    """Merges are strings, and the model has no type."""
    content = json.loads(FILES["gpt-2"].to_str())
    del content["model"]["type"], content["model"]["ignore_merges"], content["pre_tokenizer"]["use_regex"]
    content["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert from_tokenizer_json(tmp_path).encode(TEXT) == trained().encode(TEXT)


@pytest.mark.parametrize("key, value", [("split", False), ("split", True), ("prepend_scheme", "first")])
def test_what_metaspace_is_without_a_key(tmp_path, key, value):
    """As the library reads it: a word begins with each space, and one is put before each text."""
    vocab = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", "▁", "a", "a▁", "▁a"])}
    metaspace = pre_tokenizers.Metaspace(**{"prepend_scheme": "always", "split": True} | {key: value})
    made = llama(model=models.BPE(vocab, [("a", "▁"), ("▁", "a")], unk_token="<unk>"), normalizer=None)
    made.pre_tokenizer = metaspace
    content, found = json.loads(made.to_str()), []
    for _ in range(2):
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
        found.append(from_tokenizer_json(tmp_path).encode("a a</s>a", "all"))
        assert found[-1] == theirs.encode("a a</s>a", add_special_tokens=False).ids
        content["pre_tokenizer"].pop(key, None)
    assert (found[0] == found[1]) == (value is True)


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "def"]
FAMILIES = {
    "GPT2Tokenizer": (trained().vocab, trained().merges, BPETokenizer),
    "Qwen2Tokenizer": (trained().vocab, trained().merges, BPETokenizer),
    "LlamaTokenizer": (*sentencepiece(), SentencePieceBPE),
    "BertTokenizer": ({token: i for i, token in enumerate(BERT)}, None, WordPieceTokenizer),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_as_transformers_saves_them(tmp_path, name):
    vocab, merges, kind = FAMILIES[name]
    theirs = getattr(transformers, name)(vocab=dict(vocab), **({"merges": list(merges)} if merges else {}))
    theirs.save_pretrained(tmp_path)
    ours = from_tokenizer_json(tmp_path)
    assert type(ours) is kind and kind.load(tmp_path).vocab == ours.vocab
    ids = ours.encode(TEXT, allowed_special="all", add_special_tokens=True)
    assert ids == theirs.encode(TEXT)
    if kind is not WordPieceTokenizer:
        assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)


@pytest.mark.parametrize("key", ["lowercase", "strip_accents", "clean_text", "handle_chinese_chars"])
def test_options_of_bert_that_are_not_given(tmp_path, key):
    """A key that isn't there is as true; null is, too, of accents where the text becomes lower case."""
    vocab = {t: i for i, t in enumerate([*BERT, "é", "##é", "É", "中", "##中", "中a", "e", "E"])}
    theirs = transformers.BertTokenizer(vocab=vocab)
    theirs.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    expected = from_tokenizer_json(tmp_path).encode("É中a \x01a")
    content["normalizer"][key] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    other = from_tokenizer_json(tmp_path).encode("É中a \x01a")
    oracle = tokenizers.Tokenizer.from_str(json.dumps(content))
    assert other == oracle.encode("É中a \x01a", add_special_tokens=False).ids != expected
    del content["normalizer"][key]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert from_tokenizer_json(tmp_path).encode("É中a \x01a") == expected


def test_the_configuration_beside_the_file(tmp_path):
    FILES["llama 2"].save(str(tmp_path / "tokenizer.json"))
    assert from_tokenizer_json(tmp_path).encode("a", add_special_tokens=True)[0] == 1
    config = {"add_bos_token": False, "eos_token": {"content": "<s>"}, "bos_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = from_tokenizer_json(tmp_path)
    assert ours.encode("a", add_special_tokens=True) == ours.encode("a")
    assert (ours.bos_token_id, ours.eos_token_id) == (1, 1)
    for content in ('{"eos_token": "<nothing>"}', '{"eos_token": 3}', "[]", "{"):
        (tmp_path / "tokenizer_config.json").write_text(content)
        with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + ".*tokenizer_config.json"):
            from_tokenizer_json(tmp_path)


def changed(name, path, value):
    """The content of a file, with another value under a key."""
    content = json.loads(FILES[name].to_str())
    *path, last = path.split(".")
    inner = content
    for key in path:
        inner = inner[int(key) if key.isdigit() else key]
    inner[last] = value
    return content


DAMAGED = [
    (lambda: [], "expected a JSON object, got list"),
    (lambda: {}, "model: expected dict, got None"),
    (lambda: changed("gpt-2", "model", []), "model: expected dict"),
    (lambda: changed("gpt-2", "model.type", "Unigram"), "model.type: 'Unigram' is not supported"),
    (lambda: changed("gpt-2", "model.vocab", None), "model.vocab: expected dict, got None"),
    (lambda: changed("gpt-2", "model.vocab.a", -1), r"model.vocab\['a'\]: expected an id, got -1"),
    (lambda: changed("gpt-2", "model.vocab.a", "b"), r"model.vocab\['a'\]: expected an id, got 'b'"),
    (lambda: changed("gpt-2", "model.vocab.a", 2**40), "expected an id"),
    (lambda: changed("gpt-2", "model.vocab.a", 7), "two tokens have the id 7"),
    (lambda: changed("gpt-2", "model.merges", {}), "model.merges: expected list"),
    (lambda: changed("gpt-2", "model.merges", ["ab"]), r"model.merges\[0\]: expected two tokens"),
    (lambda: changed("gpt-2", "model.merges", [["a", 3]]), r"model.merges\[0\]: expected two tokens"),
    (lambda: changed("gpt-2", "model.merges", ["中 文"]), "merge 0, '中' and '文': '中' is not in the vocab"),
    (lambda: changed("gpt-2", "model.dropout", 0.1), "model.dropout: 0.1 is not supported"),
    (lambda: changed("gpt-2", "model.end_of_word_suffix", "</w>"), "model.end_of_word_suffix: '</w>' is not"),
    (lambda: changed("gpt-2", "normalizer", {"type": "Lowercase"}), "normalizer: Lowercase not supported"),
    (lambda: changed("gpt-2", "normalizer", {}), "normalizer.type: expected str, got None"),
    (lambda: changed("gpt-2", "normalizer", 3), "normalizer.type: expected str"),
    (lambda: changed("gpt-2", "normalizer", {"type": "Sequence"}), "normalizer: a Sequence without a list"),
    (lambda: changed("gpt-2", "pre_tokenizer", None), "pre_tokenizer, decoder: both must end with ByteLevel"),
    (lambda: changed("gpt-2", "decoder", None), "pre_tokenizer, decoder: both must end with ByteLevel"),
    (
        lambda: changed("gpt-2", "pre_tokenizer.add_prefix_space", True),
        "pre_tokenizer: not supported: {'type'",
    ),
    (
        lambda: changed("llama 3", "pre_tokenizer.pretokenizers.0.behavior", "Removed"),
        "pre_tokenizer: not supp",
    ),
    (
        lambda: changed("llama 3", "pre_tokenizer.pretokenizers.0.pattern", "x"),
        "pre_tokenizer.pattern: expected",
    ),
    (lambda: changed("llama 3", "pre_tokenizer.pretokenizers.0.pattern", {"Regex": r"\d"}), r"contains \\d"),
    (lambda: changed("gpt-2", "post_processor", {"type": "X"}), "post_processor.type: 'X' is not supported"),
    (lambda: changed("llama 2", "post_processor.single", 3), "post_processor.single: expected list"),
    (
        lambda: changed("llama 2", "post_processor.single", [{}]),
        "post_processor.single.SpecialToken.id: expected",
    ),
    (lambda: changed("llama 2", "post_processor.single", [3]), "post_processor.single"),
    (
        lambda: changed("llama 2", "post_processor.special_tokens", {}),
        r"post_processor.special_tokens\['<s>'\].ids: expected list",
    ),
    (lambda: changed("roberta's end", "post_processor.cls", "x"), "post_processor.cls: expected"),
    (lambda: changed("gpt-2", "added_tokens", 3), "added_tokens: expected list"),
    (lambda: changed("gpt-2", "added_tokens", [3]), r"added_tokens\[0\]"),
    (lambda: changed("gpt-2", "added_tokens.0.id", 3), "two tokens have the id 3: '\\$'"),
    (lambda: changed("gpt-2", "added_tokens.0.content", None), r"added_tokens\[0\].content: expected str"),
    (lambda: changed("gpt-2", "added_tokens.0.content", ""), "the added token '' has the id 799"),
    (
        lambda: changed("gpt-2", "added_tokens.0.single_word", True),
        r"added_tokens\[0\].single_word is not supp",
    ),
    (lambda: changed("llama 2", "normalizer", None), r"normalizer, pre_tokenizer: not supported: \[\] with"),
    (
        lambda: changed("llama 2", "decoder", None),
        "decoder: expected Replace, ByteFallback, Fuse, Strip, got",
    ),
    (lambda: changed("llama 2", "model.unk_token", "<x>"), "model.unk_token: '<x>' is not in the vocabulary"),
    (lambda: changed("llama 2", "model.unk_token", []), "model.unk_token"),
    (lambda: changed("llama 2", "model.byte_fallback", False), "model.byte_fallback: false is not supported"),
    (lambda: changed("llama 2", "model.ignore_merges", True), "model.ignore_merges is not supported without"),
    (lambda: changed("mistral", "pre_tokenizer.replacement", "_"), "pre_tokenizer.replacement: '_' is not"),
    (
        lambda: changed("mistral", "pre_tokenizer.prepend_scheme", "last"),
        "prepend_scheme: 'last' is not supp",
    ),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_damaged_files(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content()))
    with pytest.raises(ValueError, match=message) as error:
        from_tokenizer_json(path)
    assert str(path) in str(error.value)


def test_a_file_of_another_kind(tmp_path):
    path = tmp_path / "tokenizer.json"
    trained().save(path)
    with pytest.raises(ValueError, match=f"{path} is a tokenizer of type 'bpe', not 'wordpiece'"):
        WordPieceTokenizer.load(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        from_tokenizer_json(tmp_path / "other.json")


@pytest.mark.parametrize(("path", "value", "message"), [
    (("model", "ignore_merges"), "false", "ignore_merges: expected true or false, got 'false'"),
    (("added_tokens", 0, "special"), 1, "special: expected true or false, got 1"),
    (("pre_tokenizer", "pretokenizers", 0, "invert"), [], "invert: expected true or false"),
    (("pre_tokenizer", "pretokenizers", 0, "pattern"), {"String": 3}, "pattern.String: expected str, got 3"),
    (("post_processor",), {"type": "BertProcessing", "cls": [], "sep": []}, "cls: expected an id"),
])
def test_values_of_another_type(path, value, message, tmp_path):
    content = BPETokenizer.train("hello world " * 5, 260).to_json()
    outer = content
    for key in path[:-1]:
        outer = outer[key]
    outer[path[-1]] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=re.escape(message)):
        from_tokenizer_json(tmp_path)
