"""Compiled functions: captured when they are called, split where they can't be, and run as programs."""

from .compile import compile

__all__ = ["compile"]
