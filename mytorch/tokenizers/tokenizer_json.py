"""Reading `tokenizer.json`, the file of Hugging Face's `tokenizers`.

Source: the components of the file, https://huggingface.co/docs/tokenizers/components
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..utils.reading import is_count, read_json
from .added_tokens import AddedToken
from .bpe import NORMAL_FORMS, BPETokenizer
from .merges import merge_table
from .pre_tokenizer import GPT2_PATTERN, SPACE
from .sentencepiece_bpe import SentencePieceBPE
from .subword import SubwordTokenizer
from .wordpiece import WordPieceTokenizer

MAX_ID = 2**31 - 1
Json = dict[str, Any]


def from_tokenizer_json(path: str | Path) -> SubwordTokenizer:
    """Returns the tokenizer of a `tokenizer.json`: byte-level BPE, SentencePiece's BPE or WordPiece.

    Which tokens begin and end a text, and whether one is put before it, is read from `tokenizer_config.json`
    in the same folder, if there is one. Truncation and padding are left to the caller.

    Args:
        path: the file, or its folder.

    Raises:
        OSError: it can't be read.
        ValueError: it is damaged, or needs something that is not supported; the message names the file and
            the key.
    """
    path = Path(path)
    path = path / "tokenizer.json" if path.is_dir() else path
    content, config_path = read_json(path), path.with_name("tokenizer_config.json")
    config = read_json(config_path) if config_path.exists() else {}
    try:
        given = _common(content)
        return _build(content, given | _ends(config, given["added_tokens"]))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


SubwordTokenizer._read = staticmethod(from_tokenizer_json)


def _build(content: Json, given: Json) -> SubwordTokenizer:
    model = field(content, "model", dict)
    kind = model.get("type", "BPE" if "merges" in model else None)  # the first files had no type
    if kind == "WordPiece":
        return _word_piece(content, given)
    if kind != "BPE":
        raise ValueError(f"model.type: {kind!r} is not supported, only BPE and WordPiece are")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise ValueError(f"model.{name}: {model[name]!r} is not supported")
    steps = [*_steps(content, "pre_tokenizer"), *_steps(content, "decoder")]
    is_byte_level = any(step["type"] == "ByteLevel" for step in steps)
    return (_byte_level if is_byte_level else _sentencepiece)(content, given)


def _byte_level(content: Json, given: Json) -> BPETokenizer:
    forms = [step["type"] for step in _steps(content, "normalizer")]
    if len(forms) > 1 or not set(forms) <= set(NORMAL_FORMS):
        raise ValueError(f"normalizer: {' and '.join(forms)} not supported, only one of {NORMAL_FORMS}")
    ends = [step["type"] for step in _steps(content, "pre_tokenizer")][-1:], _types(content, "decoder")
    if ends != (["ByteLevel"], ["ByteLevel"]):
        raise ValueError(f"pre_tokenizer, decoder: both must end with ByteLevel, got {ends[0]} and {ends[1]}")
    return BPETokenizer(
        _vocab(content),
        _merges(content),
        patterns=[pattern for step in _steps(content, "pre_tokenizer") for pattern in _patterns(step)],
        normalizer=forms[0] if forms else None,
        ignore_merges=_flag(content["model"], "ignore_merges"),
        **given,
    )


def _patterns(step: Json) -> Iterator[str]:
    """Yields the patterns of a pre-tokenizer."""
    if step["type"] == "ByteLevel" and not _flag(step, "add_prefix_space"):
        if _flag(step, "use_regex", True):
            yield GPT2_PATTERN
    elif step["type"] == "Digits":
        yield r"\p{N}" if _flag(step, "individual_digits") else r"\p{N}+"
    elif step["type"] == "Split" and step.get("behavior") == "Isolated" and not _flag(step, "invert"):
        pattern = field(step, "pattern", dict, "pre_tokenizer.")
        if "String" in pattern:
            yield re.escape(field(pattern, "String", str, "pre_tokenizer.pattern."))
        else:
            yield field(pattern, "Regex", str, "pre_tokenizer.pattern.")
    else:
        raise ValueError(f"pre_tokenizer: not supported: {step}")


def _sentencepiece(content: Json, given: Json) -> SentencePieceBPE:
    model, vocab = content["model"], _vocab(content)
    if _flag(model, "ignore_merges"):
        raise ValueError("model.ignore_merges is not supported without ByteLevel")
    if not _flag(model, "byte_fallback") and "<0x00>" in vocab:
        raise ValueError("model.byte_fallback: false is not supported in a vocabulary with bytes")
    unk = model.get("unk_token")
    if unk is not None and field(model, "unk_token", str, "model.") not in vocab:
        raise ValueError(f"model.unk_token: {unk!r} is not in the vocabulary")
    prefix, split_words = _metaspace(content)
    decoders = ["Replace", "ByteFallback", "Fuse", "Strip"][: 3 if prefix == "never" else 4]
    if _types(content, "decoder") != decoders:
        raise ValueError(f"decoder: expected {', '.join(decoders)}, got {_types(content, 'decoder')}")
    return SentencePieceBPE(
        vocab,
        merge_table(vocab, _merges(content)),
        prefix=prefix,
        split_words=split_words,
        unk_token_id=None if unk is None else vocab[unk],
        fuse_unk=_flag(model, "fuse_unk"),
        **given,
    )


def _metaspace(content: Json) -> tuple[str, bool]:
    """Returns where a space is put before the text, and whether each ▁ begins a word."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Prepend", "prepend": SPACE}
    normalizers, pre = _steps(content, "normalizer"), _steps(content, "pre_tokenizer")
    if normalizers == [prepend, replace] and not pre:
        return "every", False
    if normalizers == [replace] and not pre:
        return "never", False
    if not normalizers and [step["type"] for step in pre] == ["Metaspace"]:
        if pre[0].get("replacement") != SPACE:
            raise ValueError(f"pre_tokenizer.replacement: {pre[0].get('replacement')!r} is not supported")
        return _scheme(pre[0]), _flag(pre[0], "split", True)
    raise ValueError(f"normalizer, pre_tokenizer: not supported: {normalizers} with {pre}")


def _scheme(step: Json) -> str:
    scheme = step.get("prepend_scheme", "always" if _flag(step, "add_prefix_space", True) else "never")
    if scheme not in ("always", "first", "never"):
        raise ValueError(f"prepend_scheme: {scheme!r} is not supported")
    return {"always": "missing", "first": "start", "never": "never"}[scheme]


def _word_piece(content: Json, given: Json) -> WordPieceTokenizer:
    model, (normalizer, *more) = content["model"], _steps(content, "normalizer") or [{"type": None}]
    if normalizer["type"] != "BertNormalizer" or more:
        raise ValueError(f"normalizer: only a BertNormalizer is supported, got {normalizer['type']!r}")
    if _types(content, "pre_tokenizer") != ["BertPreTokenizer"]:
        raise ValueError("pre_tokenizer: only a BertPreTokenizer is supported")
    lowercase = _flag(normalizer, "lowercase", True)
    return WordPieceTokenizer(
        _vocab(content),
        lowercase=lowercase,
        strip_accents=_flag(normalizer, "strip_accents", lowercase),
        clean_text=_flag(normalizer, "clean_text", True),
        split_chinese=_flag(normalizer, "handle_chinese_chars", True),
        unk_token=field(model, "unk_token", str, "model."),
        continuation=field(model, "continuing_subword_prefix", str, "model."),
        max_chars=field(model, "max_input_chars_per_word", int, "model."),
        **given,
    )


def _common(content: object) -> Json:
    """Returns the arguments that all tokenizers have: added tokens, and what is put around the ids."""
    prefix, suffix = [], []
    for step in _steps(content, "post_processor"):
        if step["type"] == "TemplateProcessing":
            prefix, suffix = _template(step)
        elif step["type"] in ("BertProcessing", "RobertaProcessing"):
            prefix, suffix = (
                [_id(([None] + field(step, name, list, "post_processor."))[-1], f"post_processor.{name}")]
                for name in ("cls", "sep")
            )
        elif step["type"] != "ByteLevel":
            raise ValueError(f"post_processor.type: {step['type']!r} is not supported")
    return {"added_tokens": list(_added_tokens(content)), "prefix_ids": prefix, "suffix_ids": suffix}


def _template(step: Json) -> tuple[list[int], list[int]]:
    """Returns the ids before and after a text in the template of a single one."""
    around: tuple[list[int], list[int]] = ([], [])
    is_after = False
    for part in field(step, "single", list, "post_processor."):
        if isinstance(part, dict) and "Sequence" in part:
            is_after = True
        else:
            name = field(part, "SpecialToken.id", str, "post_processor.single.")
            special = field(step, "special_tokens", dict, "post_processor.").get(name)
            here = f"post_processor.special_tokens[{name!r}]."
            around[is_after].extend(_id(i, f"{here}ids") for i in field(special, "ids", list, here))
    return around


def _added_tokens(content: Json) -> Iterator[AddedToken]:
    for i, token in enumerate(field({"added_tokens": [], **content}, "added_tokens", list)):
        here = f"added_tokens[{i}]."
        text = field(token, "content", str, here)
        if _flag(token, "single_word"):
            raise ValueError(f"{here}single_word is not supported")
        flags = {name: _flag(token, name) for name in ("special", "lstrip", "rstrip", "normalized")}
        yield AddedToken(text, _id(token.get("id"), f"{here}id"), **flags)


def _ends(config: object, added_tokens: list[AddedToken]) -> Json:
    """Returns what `tokenizer_config.json` says of the first and the last token of a text."""
    if not isinstance(config, dict):
        raise ValueError(f"tokenizer_config.json: expected a JSON object, got {type(config).__name__}")
    found: Json = {}
    for name in ("bos_token", "eos_token"):
        text = config.get(name)
        text = text.get("content") if isinstance(text, dict) else text
        if text is not None:
            ids = [token.id for token in added_tokens if token.content == text]
            if not ids:
                raise ValueError(f"tokenizer_config.json: {name}: {text!r} is not an added token")
            found[f"{name}_id"] = ids[0]
    if not _flag(config, "add_bos_token", True, "tokenizer_config.json: "):
        found["prefix_ids"] = []
    return found


def _vocab(content: Json) -> dict[str, int]:
    vocab = field(content, "model.vocab", dict)
    for token, i in vocab.items():
        _id(i, f"model.vocab[{token!r}]")
    return vocab


def _merges(content: Json) -> list[tuple[str, str]]:
    merges = []
    for i, pair in enumerate(field(content, "model.merges", list)):
        pair = pair.split(" ") if isinstance(pair, str) else pair
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ValueError(f"model.merges[{i}]: expected two tokens, got {pair!r}")
        merges.append((pair[0], pair[1]))
    return merges


def _types(content: Json, key: str) -> list[str]:
    return [step["type"] for step in _steps(content, key)]


def _steps(content: object, key: str) -> list[Json]:
    """Returns the components under `key`, those of sequences one by one."""
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, got {type(content).__name__}")
    step = content.get(key)
    if step is None:
        return []
    if field(step, "type", str, f"{key}.") != "Sequence":
        return [step]
    parts = next((value for name, value in step.items() if name != "type"), None)
    if not isinstance(parts, list):
        raise ValueError(f"{key}: a Sequence without a list")
    return [found for part in parts for found in _steps({key: part}, key)]


def field(content: object, key: str, kind: type, where: str = "") -> Any:
    """Returns the value under a key, "model.vocab" for example; raises ValueError if it isn't a `kind`."""
    value = content
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, kind):
        raise ValueError(f"{where}{key}: expected {kind.__name__}, got {value!r:.60}")
    return value


def _flag(content: Json, key: str, default: bool = False, where: str = "") -> bool:
    """Returns a bool; raises ValueError if it is something else. null is the default."""
    value = content.get(key)
    if not isinstance(value, bool | None):
        raise ValueError(f"{where}{key}: expected true or false, got {value!r:.60}")
    return default if value is None else value


def _id(value: object, key: str) -> int:
    if not is_count(value) or value > MAX_ID:
        raise ValueError(f"{key}: expected an id, got {value!r:.60}")
    return value
