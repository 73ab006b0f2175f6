"""Writing `tokenizer.json`, the file of Hugging Face's `tokenizers`; see tokenizer_json.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .pre_tokenizer import SPACE

if TYPE_CHECKING:
    from .bpe import BPETokenizer
    from .sentencepiece_bpe import SentencePieceBPE
    from .subword import SubwordTokenizer
    from .wordpiece import WordPieceTokenizer

Json = dict[str, Any]


def tokenizer_json(tokenizer: SubwordTokenizer) -> Json:
    """Returns the file's content."""
    writers: dict[str, Callable[..., Json]] = {
        "bpe": _byte_level, "sentencepiece": _sentencepiece, "wordpiece": _word_piece,
    }
    if getattr(tokenizer, "type", None) not in writers:
        raise TypeError(f"a {type(tokenizer).__name__} can't be saved as tokenizer.json")
    return writers[tokenizer.type](tokenizer)


def _byte_level(tokenizer: BPETokenizer) -> Json:
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in tokenizer.pre_tokenizer.patterns
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return _file(
        tokenizer,
        _bpe(tokenizer, tokenizer.merges, ignore_merges=tokenizer.ignore_merges),
        normalizer=None if tokenizer.normalizer is None else {"type": tokenizer.normalizer},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [*splits, byte_level]},
        decoder=byte_level,
    )


def _sentencepiece(tokenizer: SentencePieceBPE) -> Json:
    prefix = tokenizer.prefix
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    decoders: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    normalizer: Json | None = None
    pre_tokenizer: Json | None = None
    if prefix == "every":
        normalizer = {"type": "Sequence", "normalizers": [prepend, replace]}
    else:
        scheme = {"missing": "always", "start": "first", "never": "never"}[prefix]
        pre_tokenizer = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme}
        pre_tokenizer["split"] = tokenizer.split_words
    spelled = tokenizer.id_to_token
    pairs = sorted(tokenizer.table, key=tokenizer.table.__getitem__)  # by rank
    merges = [(spelled(a), spelled(b)) for a, b in pairs]
    unk = None if tokenizer.unk_token_id is None else spelled(tokenizer.unk_token_id)
    return _file(
        tokenizer,
        _bpe(tokenizer, merges, unk_token=unk, fuse_unk=tokenizer.fuse_unk, byte_fallback=True),
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        decoder={"type": "Sequence", "decoders": decoders[:-1] if prefix == "never" else decoders},
    )


def _word_piece(tokenizer: WordPieceTokenizer) -> Json:
    model = {
        "type": "WordPiece",
        "unk_token": tokenizer.unk_token,
        "continuing_subword_prefix": tokenizer.continuation,
        "max_input_chars_per_word": tokenizer.max_chars,
        "vocab": tokenizer.vocab,
    }
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": tokenizer.clean_text,
        "handle_chinese_chars": tokenizer.split_chinese,
        "strip_accents": tokenizer.strip_accents,
        "lowercase": tokenizer.lowercase,
    }
    decoder = {"type": "WordPiece", "prefix": tokenizer.continuation, "cleanup": True}
    return _file(tokenizer, model, normalizer, {"type": "BertPreTokenizer"}, decoder)


def _bpe(tokenizer: SubwordTokenizer, merges: list[tuple[str, str]], **options: object) -> Json:
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
    }
    return model | options | {"vocab": tokenizer.vocab, "merges": merges}


def _file(
    tokenizer: SubwordTokenizer, model: Json, normalizer: Json | None, pre_tokenizer: Json | None,
    decoder: Json,
) -> Json:
    added = [asdict(token) | {"single_word": False} for token in tokenizer.added_tokens.tokens]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _template(tokenizer),
        "decoder": decoder,
        "model": model,
    }


def _template(tokenizer: SubwordTokenizer) -> Json | None:
    """Returns the template that puts the prefix and the suffix around a text."""
    if not tokenizer.prefix_ids and not tokenizer.suffix_ids:
        return None

    def specials(ids: list[int], type_id: int) -> list[Json]:
        return [{"SpecialToken": {"id": tokenizer.id_to_token(i), "type_id": type_id}} for i in ids]

    before, after = specials(tokenizer.prefix_ids, 0), specials(tokenizer.suffix_ids, 0)
    single = [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after]
    names = {tokenizer.id_to_token(i): i for i in (*tokenizer.prefix_ids, *tokenizer.suffix_ids)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, *specials(tokenizer.suffix_ids, 1)],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in names.items()},
    }
