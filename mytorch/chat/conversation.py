"""A conversation with a language model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import mytorch
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike
from mytorch.models import GPT2, Llama
from mytorch.models.generation import stream_text
from mytorch.models.gguf import GGUFFile
from mytorch.models.hugging_face import find
from mytorch.models.language_model import LanguageModel
from mytorch.tokenizers import from_gguf, load_tokenizer
from mytorch.utils.reading import is_count, read_json

from .template import ChatTemplate, Message

NAMES = {  # short names of models on the Hugging Face Hub
    "smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "smollm2-360m": "HuggingFaceTB/SmolLM2-360M-Instruct",
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
}
END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>")  # of an answer


class Chat:
    """A conversation with a language model.

    Args:
        model: the model, in evaluation mode.
        tokenizer: its tokenizer.
        template: its chat template.
        stop_tokens: tokens that end an answer.
        system: text of a first message that says how to answer.
        allowed_special: special tokens that a message may spell, or "all", as transformers allows unless it
            is told otherwise. In other messages text that looks like a special token stays text: it can't end
            the message, nor begin one of another role.

    Attributes:
        messages: the conversation so far. When it doesn't fit the context, the oldest question and its
            answer are left out.

        chat = Chat.load("smollm2")
        print(chat("What is a tensor?"))
    """

    def __init__(
        self, model: LanguageModel, tokenizer: Any, template: ChatTemplate | None = None,
        stop_tokens: Sequence[int] = (), system: str | None = None,
        allowed_special: Collection[str] | str = (),
    ):
        self.model, self.tokenizer = model, tokenizer
        self.template = template or ChatTemplate(None)
        self.stop_tokens, self.allowed_special = list(stop_tokens), allowed_special
        self.messages: list[Message] = [{"role": "system", "content": system}] if system else []

    @classmethod
    def load(
        cls, name_or_path: str | os.PathLike, system: str | None = None, dtype: DTypeLike = "float32",
        device: DeviceLike = None, quantize: str | None = None,
        allowed_special: Collection[str] | str = (),
    ) -> Chat:
        """Returns a conversation with a pretrained model.

        Args:
            name_or_path: a folder of Hugging Face's layout with tokenizer.json, a GGUF file, a short name
                (smollm2, smollm2-360m, qwen2.5-0.5b), or a name on the Hugging Face Hub.
            system: text of a first message that says how to answer.
            dtype, device: of the model's parameters.
            quantize: "q8_0", "q4_0" or "q4_1" quantises the weights of a folder by `mytorch.quantize`; those
                of a GGUF file stay as they are.
            allowed_special: special tokens that a message may spell, or "all".

        Raises:
            OSError: a file is missing or can't be read.
            ValueError: a file is damaged, or something in it is not supported.
            ImportError: a package is missing: huggingface_hub for names, gguf for GGUF files, jinja2.
        """
        path = find(NAMES.get(os.fspath(name_or_path), name_or_path))
        if path.suffix == ".gguf":
            if quantize is not None:
                raise ValueError(f"{path}: the weights of a GGUF file stay as they are, not {quantize}")
            return cls._of_gguf(path, system, dtype, device, allowed_special)
        folder = path if path.is_dir() else path.parent
        content = read_json(folder / "config.json")
        is_gpt2 = isinstance(content, dict) and content.get("model_type", "gpt2") == "gpt2"
        model = (GPT2 if is_gpt2 else Llama).from_pretrained(path, dtype, device)
        if quantize is not None:
            mytorch.quantize(model, quantize)
        tokenizer = load_tokenizer(folder)
        ends = end_tokens(tokenizer, *[folder / name for name in ("config.json", "generation_config.json")])
        return cls(model, tokenizer, ChatTemplate.of_folder(folder), ends, system, allowed_special)

    @classmethod
    def _of_gguf(
        cls, path: Path, system: str | None, dtype: DTypeLike, device: DeviceLike,
        allowed_special: Collection[str] | str,
    ) -> Chat:
        file = GGUFFile(path)
        tokenizer = from_gguf(file.metadata, str(path))
        source = file.metadata.get("tokenizer.chat_template")
        tokens = {
            name: tokenizer.id_to_token(getattr(tokenizer, f"{name}_id"))
            for name in ("bos_token", "eos_token")
            if getattr(tokenizer, f"{name}_id") is not None
        }
        ends = [file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom")]
        return cls(
            Llama.from_pretrained(path, dtype, device, quantized=True), tokenizer,
            ChatTemplate(source, tokens), end_tokens(tokenizer, ends=ends), system, allowed_special,
        )

    def __call__(self, text: str, max_new_tokens: int = 512, **options: object) -> str:
        """Returns the answer to a message; the arguments are those of `stream`."""
        return "".join(self.stream(text, max_new_tokens, **options))

    def stream(self, text: str, max_new_tokens: int = 512, **options: object) -> Iterator[str]:
        """Yields the answer to a message in pieces, as they are generated.

        Args:
            text: the message.
            max_new_tokens: number of tokens after which the answer ends, finished or not.
            **options: temperature, top_p, …; see `LanguageModel.stream`.

        Raises:
            ValueError: the message is longer than the context, or the tokenizer is another model's.
        """
        self.messages.append({"role": "user", "content": text})
        answer = ""
        try:
            for piece in stream_text(
                self.model, self.tokenizer, self._prompt(max_new_tokens), max_new_tokens,
                self.template.stop_strings, self.stop_tokens, **options,
            ):
                answer += piece
                yield piece
        finally:  # also if the caller wants no more of it
            if answer:
                self.messages.append({"role": "assistant", "content": answer})
            else:
                self.messages.pop()

    def _prompt(self, max_new_tokens: int) -> list[int]:
        """Returns the tokens of the conversation, without the oldest messages if there are too many."""
        context, messages = self.model.config.context_length, list(self.messages)
        first = int(messages[0]["role"] == "system")
        while True:
            prompt = self.encode(self.template.render(messages, allowed_special=self.allowed_special))
            if len(prompt) + max_new_tokens <= context or len(messages) - first <= 1:
                break
            del messages[first : first + 2]
        if len(prompt) > context:
            raise ValueError(f"a message of {len(prompt)} tokens exceeds the context of {context}")
        if max(prompt, default=0) >= self.model.config.vocab_size:
            raise ValueError(
                f"the tokenizer is of another model: the message has token {max(prompt)}, the model "
                f"{self.model.config.vocab_size} tokens"
            )
        self.messages = messages
        return prompt

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a rendered conversation, whose special tokens are meant as such: in what
        `template.render` returns, those that the template itself wrote."""
        if getattr(self.tokenizer, "type", "") == "char":
            return self.tokenizer.encode(text)
        ids = self.tokenizer.encode(text, allowed_special="all")
        first = getattr(self.tokenizer, "prefix_ids", [])
        return ids if ids[: len(first)] == first else [*first, *ids]


def end_tokens(tokenizer: Any, *paths: Path, ends: Sequence[object] = ()) -> list[int]:
    """Returns the tokens that end an answer: those of the files' `eos_token_id`, and those of usual names.

    Raises:
        OSError: a file can't be read.
        ValueError: it is damaged, or its `eos_token_id` is no token.
    """
    found = [getattr(tokenizer, "eos_token_id", None), *ends]
    for path in paths:
        content = read_json(path) if path.exists() else {}
        ids = content.get("eos_token_id") if isinstance(content, dict) else [content]
        ids = ids if isinstance(ids, list) else [ids]
        if not all(i is None or is_count(i) for i in ids):
            raise ValueError(f"{path} is damaged: eos_token_id is {ids!r:.60}")
        found += ids
    if hasattr(tokenizer, "token_to_id"):
        found += [tokenizer.token_to_id(token) for token in END_TOKENS]
    return sorted({token for token in found if is_count(token) and token < tokenizer.vocab_size})
