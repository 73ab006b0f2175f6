"""Pre-tokenizers: a text is split into words before byte pair encoding, which never merges across words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace("{1,3}", "")  # each digit is a word

# The patterns that are applied in turn, by the name that GGUF's key tokenizer.ggml.pre has for them.
PATTERNS = {
    "gpt-2": (GPT2_PATTERN,),
    "smollm": (r"\p{N}", GPT2_PATTERN),
    "llama-bpe": (LLAMA3_PATTERN,),
    "qwen2": (QWEN2_PATTERN,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"),
}

SPACE = "▁"  # U+2581, how tokens of SentencePiece spell a space
WHITE_SPACE = (  # the code points with Unicode's property White_Space; str.isspace has four more
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
# The standard library's `re` has no \p{…}. Outside ASCII a class is represented by one of its characters, so
# that a few ranges describe it: ª for letters, ² for numbers, ¡ for punctuation, ¬ for other characters, and
# \x85 for white space. ſ remains, because it is an s where case is ignored.
_REPRESENTATIVE = {"L": "ª", "N": "²", "P": "¡"}
_CLASSES = {
    r"\p{L}": "A-Za-zªſ",
    r"\p{N}": "0-9²",
    r"\p{P}": r"!-#%-*,-/:;?@\[-\]_{}¡",
    r"\s": r"\t\n\v\f\r \x85",
}
_SYNTAX = re.compile(r"\\p\{\w+\}|\\.|\[\^?|\]|[^\[\]\\]", re.DOTALL)


class _Representatives(dict):
    """Maps code points to representatives for `str.translate`; filled as characters occur."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if code < 128 or char == "ſ":
            found = char
        elif char in WHITE_SPACE:
            found = "\x85"
        else:
            found = _REPRESENTATIVE.get(unicodedata.category(char)[0], "¬")
        self[code] = found
        return found


_representatives = _Representatives()


class PreTokenizer:
    r"""Splits texts into words by regular expressions.

    The first pattern splits the text, the next one each of its parts, and so on. Matches are words, and so is
    what lies between two matches: the words joined are the text again.

    Args:
        patterns: regular expressions as in a `tokenizer.json`, in the syntax of `re` and with `\p{L}`
            (letters), `\p{N}` (numbers), `\p{P}` (punctuation); `\s` is Unicode's White_Space. Other classes
            and characters outside ASCII are not supported. The classes are those of the running Python's
            `unicodedata`: characters of later versions of Unicode are neither letters nor numbers.

    Raises:
        ValueError: a pattern is not supported.

    >>> from mytorch.tokenizers.pre_tokenizer import PATTERNS, PreTokenizer
    >>> PreTokenizer(PATTERNS["gpt-2"]).split("It's 1999,  isn't it?")
    ['It', "'s", ' 1999', ',', ' ', ' isn', "'t", ' it', '?']
    >>> PreTokenizer(PATTERNS["llama-bpe"]).split("IT'S 1999")
    ['IT', "'S", ' ', '199', '9']
    """

    def __init__(self, patterns: Sequence[str]):
        self.patterns = tuple(patterns)
        self._regexes = [_compile(pattern) for pattern in self.patterns]

    def split(self, text: str) -> list[str]:
        """Returns the words of `text`."""
        words = [text] if text else []
        for regex in self._regexes:
            words = [word for part in words for word in _isolate(regex, part)]
        return words


def _isolate(regex: re.Pattern, text: str) -> Iterator[str]:
    """Yields the matches in `text`, and what lies between them."""
    end = 0
    for match in regex.finditer(text if text.isascii() else text.translate(_representatives)):
        start, stop = match.span()
        if start > end:
            yield text[end:start]
        if stop > start:
            yield text[start:stop]
        end = stop
    if end < len(text):
        yield text[end:]


def _compile(pattern: str) -> re.Pattern:
    """Returns the regular expression that matches the representatives as `pattern` the characters."""
    in_brackets = False

    def translate(match: re.Match) -> str:
        nonlocal in_brackets
        part = match[0]
        if part in _CLASSES:
            return _CLASSES[part] if in_brackets else f"[{_CLASSES[part]}]"
        if part == r"\S" and not in_brackets:
            return rf"[^{_CLASSES[chr(92) + 's']}]"
        if part[0] == "\\" and part[1:].isalnum() and part not in (r"\r", r"\n", r"\t") or part[:2] == r"\p":
            raise ValueError(f"the pattern {pattern!r} is not supported: it contains {part}")
        if part[0] in "[]":
            in_brackets = part[0] == "[" or (in_brackets and part[0] != "]")
        return part

    if not pattern.isascii():
        raise ValueError(f"the pattern {pattern!r} is not supported: it contains characters outside ASCII")
    try:
        return re.compile(_SYNTAX.sub(translate, pattern))
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is not supported: {error}") from None
