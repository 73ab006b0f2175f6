"""Talking to a language model: `python -m mytorch.chat smollm2`, or `Chat.load("smollm2")` in Python."""

from .conversation import Chat
from .template import ChatTemplate

__all__ = ["Chat", "ChatTemplate"]
