"""Texts for the tokenizers, and Hugging Face's `tokenizers` as their oracle."""

import json
from functools import cache
from pydoc_data.topics import topics

from hypothesis import strategies as st
from tokenizers import Tokenizer

from mytorch.tokenizers import BPETokenizer

# What is hard: contractions, digits, kinds of white space and of numbers, combining marks, several scripts,
# characters that fold to ASCII, format and private characters.
HARD = (
    "'sStTreVEmlLdD 019 \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2007\u2028\u3000\u200b\u200d\ufeff\0\x7f\x80"
    "ſK²½Ⅷ٣५㊿𝟙𐄇\u0307\u0301\u0308e\u0301ñÑßİıǅªºλΣςЖ中文字仮한ᄒ\u0e01ำ🙂👩‍👧🏽"
    "\ue000\U000f0000\ufffd\uffff_-–—!?¿«€$+<=>^`|~▁Ġ"
)
# Characters that the running Python knows: `tokenizers` has a later version of Unicode.
CHARACTERS = st.characters(exclude_categories=("Cs", "Cn"))
TEXTS = st.one_of(
    st.text(st.sampled_from(HARD), max_size=60),
    st.text(CHARACTERS, max_size=40),
    st.text("ab'sr d1 \n", max_size=40),
)


@cache
def corpus() -> str:
    """A text with words, code and tables, and a few of all the world's characters."""
    letters = "".join(map(chr, range(0x20, 0x2000, 7))).encode(errors="ignore").decode()
    return "".join(topics[name] for name in sorted(topics)[:12]) + letters + "ÄÖÜ äöü ß 中文 🙂🙂 " * 9


@cache
def trained(vocab_size: int = 800) -> BPETokenizer:
    return BPETokenizer.train(corpus(), vocab_size)


def oracle(tokenizer) -> Tokenizer:
    """Hugging Face's tokenizer of the file that `tokenizer.save` writes."""
    return Tokenizer.from_str(json.dumps(tokenizer.to_json()))
