"""Whole models, written with the public names of mytorch only."""

from .gpt2 import GPT2, GPT2Config, KVCache

__all__ = ["GPT2", "GPT2Config", "KVCache"]
