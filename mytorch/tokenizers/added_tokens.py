"""Added tokens: strings with an id of their own, which are cut out of a text before the rest is encoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from .pre_tokenizer import WHITE_SPACE

Piece = str | int  # text that is still to be encoded, or an id


@dataclass(frozen=True)
class AddedToken:
    """A token beside those that were learned.

    Args:
        special: it controls the model, as `<|endoftext|>` does: it is found in a text only where that is
            allowed. Other added tokens always are, but for those of a chat template in a message.
        lstrip: white space to its left belongs to it; rstrip: to its right.
        normalized: it is normalized and searched in the normalized text.
    """

    content: str
    id: int
    special: bool = True
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


class AddedTokens:
    """Finds added tokens in texts: the leftmost, and of those that begin there the longest.

    Args:
        normalize: normalizer of the text between those that aren't `normalized`.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalize: Callable[[str], str]):
        self.tokens = tuple(tokens)
        self.special = frozenset(token.content for token in tokens if token.special)
        self._others = frozenset(token.content for token in tokens if not token.special)
        self._normalize = normalize
        self._matchers: dict[tuple[frozenset[str], str, frozenset[str]], tuple[_Matcher, _Matcher]] = {}

    def split(self, text: str, allowed_special: Collection[str] | str) -> Iterator[Piece]:
        """Yields the ids of the added tokens in `text`, and the normalized text between them.

        Raises:
            ValueError: a name in `allowed_special` isn't that of a special token.
        """
        allowed = self.special if allowed_special == "all" else frozenset(allowed_special)
        if not allowed <= self.special:
            raise ValueError(f"no special token: {', '.join(map(repr, sorted(allowed - self.special)))}")
        mark, control = "", frozenset()
        if hasattr(text, "marked"):  # a conversation marks what its messages spell
            text, mark, control = text.marked(allowed, self._others)
        key = allowed, mark, control
        if key not in self._matchers:
            usable = [token for token in self.tokens if not token.special or token.content in allowed]
            self._matchers[key] = (
                _Matcher([token for token in usable if not token.normalized], str, mark, control),
                _Matcher([token for token in usable if token.normalized], self._normalize, mark, control),
            )
        raw, normalized = self._matchers[key]
        for part in raw.split(text):
            for piece in [part] if isinstance(part, int) else normalized.split(self._normalize(part)):
                yield piece.replace(mark, "") if mark and isinstance(piece, str) else piece


class _Matcher:
    """A regular expression with one group a token. Special and control tokens aren't matched after a mark."""

    def __init__(
        self, tokens: Sequence[AddedToken], normalize: Callable[[str], str], mark: str,
        control: Collection[str],
    ):
        named = sorted(((normalize(t.content), t) for t in tokens), key=lambda item: -len(item[0]))
        self._ids = [token.id for _, token in named]
        space = f"[{WHITE_SPACE}]*"

        def pattern(text: str, token: AddedToken) -> str:
            if mark and (token.special or token.content in control):
                spelled = f"(?<!{mark})({re.escape(text)})"
            elif mark:
                spelled = f"{mark}?({f'{mark}?'.join(map(re.escape, text))})"
            else:
                spelled = f"({re.escape(text)})"
            return f"{space * token.lstrip}{spelled}{space * token.rstrip}"

        self._regex = re.compile("|".join(pattern(text, token) for text, token in named))

    def split(self, text: str) -> Iterator[Piece]:
        end = 0
        for match in self._regex.finditer(text) if self._ids else ():
            if match.start() > end:
                yield text[end : match.start()]
            yield self._ids[match.lastindex - 1]
            end = match.end()
        if end < len(text):
            yield text[end:]
