"""
Chat templates: how a conversation is written as one text for a model.

    [{"role": "user", "content": "Hello"}]  →  "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

A model comes with its template, a program in the language Jinja, in tokenizer_config.json, in
chat_template.jinja or in its GGUF file. It is run in Jinja's sandbox: it can read the messages, and nothing
else.

Source: https://huggingface.co/docs/transformers/chat_templating
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mytorch.utils.reading import read_json, read_text

Message = dict[str, str]  # {"role": "system", "user" or "assistant", "content": text}
PLAIN = (
    "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
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

    def __init__(self, source: str | None, tokens: dict[str, str] | None = None):
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise ImportError("chat templates need the package jinja2: pip install jinja2") from None
        self.stop_strings = ("\nUser:",) if source is None else ()
        self.tokens, self._error = dict(tokens or {}), TemplateError
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = self._refuse
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        try:
            self._template = environment.from_string(PLAIN if source is None else source)
        except TemplateError as error:
            raise ValueError(f"the chat template is damaged: {error}") from error

    def _refuse(self, message: str) -> None:
        """What a template calls for messages that it can't write."""
        raise self._error(message)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """Returns the text of a conversation.

        Args:
            messages: from the oldest to the newest.
            add_generation_prompt: end with the beginning of an answer.

        Raises:
            ValueError: the template refuses these messages.
        """
        try:
            options = {"add_generation_prompt": add_generation_prompt, **self.tokens}
            return self._template.render(messages=list(messages), **options)
        except (self._error, TypeError) as error:
            raise ValueError(f"the chat template refuses these messages: {error}") from error

    @classmethod
    def of_folder(cls, folder: Path) -> ChatTemplate:
        """Returns the template in a folder of Hugging Face's layout, or the plain one if there is none.

        Raises:
            OSError, ValueError: a file can't be read or is damaged.
        """
        config: Any = {}
        if (folder / "tokenizer_config.json").exists():
            config = read_json(folder / "tokenizer_config.json")
            if not isinstance(config, dict):
                raise ValueError(f"{folder / 'tokenizer_config.json'} is damaged: expected a JSON object")
        source = config.get("chat_template")
        if (folder / "chat_template.jinja").exists():
            source = read_text(folder / "chat_template.jinja")
        if isinstance(source, list):  # several, with names
            named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = named.get("default")
        if source is not None and not isinstance(source, str):
            raise ValueError(f"{folder / 'tokenizer_config.json'}: chat_template is no text")
        tokens = {name: config.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
        texts = {
            name: token.get("content", "") if isinstance(token, dict) else token
            for name, token in tokens.items()
        }
        return cls(source, {name: text for name, text in texts.items() if text})
