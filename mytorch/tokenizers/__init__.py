"""Tokenizers: conversion of text to token ids and back."""

from .char import CharTokenizer

__all__ = ["CharTokenizer"]
