"""Tokenizers: conversion of text to token ids and back."""

from .bpe import BPETokenizer
from .char import CharTokenizer
from .gguf import from_gguf
from .gpt2 import from_gpt2_files, gpt2_tokenizer
from .load import load_tokenizer
from .sentencepiece_bpe import SentencePieceBPE
from .tokenizer_json import from_tokenizer_json
from .wordpiece import WordPieceTokenizer

__all__ = [
    "BPETokenizer", "CharTokenizer", "SentencePieceBPE", "WordPieceTokenizer", "from_gguf", "from_gpt2_files",
    "from_tokenizer_json", "gpt2_tokenizer", "load_tokenizer",
]
