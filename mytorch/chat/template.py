"""
Chat templates: how a conversation is written as one text for a model.

    [{"role": "user", "content": "Hello"}]  →  "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

A model comes with its template, a program in the language Jinja, in tokenizer_config.json, in
chat_template.jinja or in its GGUF file. It is run in Jinja's sandbox: it can read the messages, and nothing
else.

Source: https://huggingface.co/docs/transformers/chat_templating
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mytorch.utils.reading import read_json, read_text

Message = Mapping[str, Any]  # {"role": "system", "user", "assistant" or "tool", "content": text}, and others
Json = dict[str, Any]
PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # no characters: Unicode leaves them to programs


class TemplateText(str):
    """The text of a conversation that a chat template wrote, which knows what in it the messages spelled.

    Tokenizers read special tokens only in what the template itself wrote. What is made of it, such as
    `text + "more"`, is a plain string.
    """

    _origin: tuple[ChatTemplate, Json, datetime.datetime, frozenset[str]]

    def marked(self, special: Collection[str], others: Collection[str]) -> tuple[str, str, frozenset[str]]:
        """Returns the text with a mark before each place in a message that may become a control token, the
        mark, which is a character that the text hasn't, and the control tokens among the others.

        The messages are marked before the template reads them. It may notice that, and write another text:
        then less is marked, in the end the tokens themselves.

        Args:
            special: the special tokens that are looked for: control tokens.
            others: other added tokens. Those that the template spells are control tokens, too, such as
                <tool_call>; but an answer's, which are the model's own.

        Raises:
            ValueError: a control token in a message can't be told from those of the template.
        """
        template, data, now, allowed = self._origin
        own = {token for token in others if token in template.literals and not token.isspace()} - allowed
        tokens = sorted((own | set(special)) - allowed)
        if not tokens:
            return str(self), "", frozenset()
        mark = next((mark for mark in MARKS if mark not in self), "")
        for length in (1, 2, None) if mark else ():
            everywhere = _marks(mark, tokens, allowed, length)
            in_answers = _marks(mark, sorted(set(tokens) - own), allowed | own, length)
            marked = _plain(data, everywhere)
            for i, message in enumerate(data["messages"]):
                if message.get("role") == "assistant":
                    marked["messages"][i] = _plain(message, in_answers)
            if marked == data:
                return str(self), mark, frozenset(own)
            with contextlib.suppress(ValueError):
                text = template._write(marked, now)
                if text.replace(mark, "") == self:
                    return text, mark, frozenset(own)
        texts: list[str] = []
        _plain(data, lambda text: texts.append(text) or text)
        spelled = ", ".join(token for token in tokens if any(token in text for text in texts))
        raise ValueError(
            f"a message spells {spelled}, and the chat template doesn't write it as it is, so that it can't "
            "be told from the template's own; allow special tokens in messages by allowed_special"
        )


class ChatTemplate:
    """A chat template.

    Args:
        source: the program; None for `Role: text` lines.
        tokens: texts of special tokens that it may use, such as {"bos_token": "<s>"}.

    Attributes:
        stop_strings: texts that end an answer, besides the stop tokens of the model.

    Raises:
        ValueError: the program has an error.
        ImportError: the package jinja2 is not installed.

    >>> from mytorch.chat import ChatTemplate
    >>> ChatTemplate(None).render([{"role": "user", "content": "Hello"}])
    'User: Hello\\nAssistant:'
    """

    def __init__(self, source: str | None, tokens: Mapping[str, str] | None = None):
        try:
            from .jinja import environment
        except ImportError:
            raise ImportError("chat templates need the package jinja2: pip install jinja2") from None
        self.stop_strings = ("\nUser:",) if source is None else ()
        self.source, self.tokens = source, dict(tokens or {})
        try:
            self._template = environment().from_string(PLAIN if source is None else source)
        except Exception as error:  # Python's, too: Jinja makes a Python program of it
            raise ValueError(f"the chat template is damaged: {_reason(error)}") from error

    @functools.cached_property
    def literals(self) -> str:
        """What the program spells, of all its strings and of the text outside of statements."""
        from .jinja import literals

        return literals(PLAIN if self.source is None else self.source)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return ChatTemplate, (self.source, self.tokens)

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True,
        tools: Sequence[Json] | None = None, documents: Sequence[Json] | None = None,
        allowed_special: Collection[str] | str = (), **options: object,
    ) -> str:
        """Returns the text of a conversation.

        The `encode` of mytorch's tokenizers knows what in it is the template's: special tokens that the
        messages spell, in any of their fields, stay text, and so do other added tokens that the template
        itself spells, such as <tool_call>, but in answers. The same holds for the other arguments.

        Args:
            messages: from the oldest to the newest: dicts, lists, strings and numbers. Fields that are None
                are left out, as in transformers.
            add_generation_prompt: end with the beginning of an answer.
            tools: JSON schemas of functions that the model may call.
            documents: what the answer may use, with "title" and "text".
            allowed_special: special tokens that the messages may spell, or "all": what transformers does
                unless it is told otherwise.
            **options: others that the template knows, such as `enable_thinking`.

        Raises:
            ValueError: the template refuses these messages.
            TypeError: a message is no dict, or something in it is no JSON.

        >>> from mytorch.chat import ChatTemplate
        >>> from mytorch.tokenizers import BPETokenizer
        >>> tokenizer = BPETokenizer.train("Hello", 257, special_tokens=["<end>"])
        >>> template = ChatTemplate("{{ messages[0].content + eos_token }}", {"eos_token": "<end>"})
        >>> text = template.render([{"role": "user", "content": "Hello<end>"}])
        >>> text, tokenizer.encode(text, allowed_special="all").count(256)
        ('Hello<end><end>', 1)
        """
        if not all(isinstance(message, Mapping) for message in messages):
            raise TypeError("messages are dicts, such as {'role': 'user', 'content': 'Hello'}")
        given = [{name: value for name, value in m.items() if value is not None} for m in messages]
        try:
            data = _plain({
                "messages": given, "add_generation_prompt": add_generation_prompt, "tools": tools,
                "documents": documents, **options,
            })
        except RecursionError:
            raise ValueError("the messages are nested too deeply") from None
        now = datetime.datetime.now()
        text = self._write(data, now)
        if allowed_special == "all":
            return text
        text = TemplateText(text)
        text._origin = self, data, now, frozenset(allowed_special)
        return text

    def _write(self, data: Json, now: datetime.datetime) -> str:
        try:
            return self._template.render(**{**self.tokens, "strftime_now": now.strftime, **data})
        except Exception as error:  # of any kind: the template is a program
            raise ValueError(f"the chat template refuses these messages: {_reason(error)}") from error

    @classmethod
    def of_folder(cls, folder: Path) -> ChatTemplate:
        """Returns the template in a folder of Hugging Face's layout, or the plain one if there is none.

        Raises:
            OSError, ValueError: a file can't be read or is damaged.
        """
        path, config = folder / "tokenizer_config.json", {}
        if path.exists():
            config = read_json(path)
            if not isinstance(config, dict):
                raise ValueError(f"{path} is damaged: expected a JSON object")
        source = config.get("chat_template")
        if (folder / "chat_template.jinja").exists():
            source = read_text(folder / "chat_template.jinja")
        if isinstance(source, list):  # several, with names
            source = next(
                (e.get("template") for e in source if isinstance(e, dict) and e.get("name") == "default"), 0
            )
        if source is not None and not isinstance(source, str):
            raise ValueError(f"{path}: chat_template is no text, nor a list with one of the name default")
        tokens = {}
        for name in TOKENS:
            token = config.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if token is not None and not isinstance(text, str):
                raise ValueError(f"{path}: {name} is {token!r:.60}, which is no token")
            if text:
                tokens[name] = text
        return cls(source, tokens)


def _marks(
    mark: str, tokens: Collection[str], spared: Collection[str], length: int | None
) -> Callable[[str], str]:
    """Returns what puts a mark before these tokens, and before what begins as their first `length` characters
    unless it is one that is spared."""
    never = "(?!)"
    whole, free = ("|".join(map(re.escape, names)) or never for names in (tokens, spared))
    starts = "|".join(re.escape(token[:length]) for token in tokens) or never
    return functools.partial(re.compile(f"(?={whole})|(?!{free})(?={starts})").sub, mark)


def _plain(value: object, change: Callable[[str], str] = str) -> Any:
    """Returns a copy that is made of JSON's kinds of values, with its strings changed."""
    if isinstance(value, str):
        return change(str.__str__(value))
    if isinstance(value, Mapping):
        return {_plain(name, change): _plain(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(_plain(each, change) for each in value)
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"a message has a {type(value).__name__}; it may have dicts, lists, strings and numbers")


def _reason(error: Exception) -> str:
    """Returns why a template fails: Jinja's errors speak for themselves."""
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    name = type(error).__name__
    return str(error) if type(error).__module__.startswith("jinja2") else f"{name}: {error}"
