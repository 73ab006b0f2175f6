"""What all language models have in common: forward, generating, counting operations, saving memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mytorch
from mytorch import Tensor, nn
from mytorch.nn import functional as F
from mytorch.optim.param_groups import ParamGroup
from mytorch.utils.checkpoint import checkpoint

from . import generation
from .beam import beam_search
from .cache import KVCache
from .generation import Prompts, Tokenizer
from .pretrained import PretrainedModel
from .sampling import Sampler


class LanguageModel(PretrainedModel):
    """The base of language models, which have `embed`, `blocks`, `normalize`, `lm_head` and a `config`.

        tokens → embed → blocks → normalize → lm_head → logits

    Attributes:
        gradient_checkpointing: whether, in training, a block's activations are computed again in the
            backward pass instead of kept.
    """

    gradient_checkpointing = False
    lm_head: nn.Module

    def embed(self, idx: Tensor, positions: slice | Tensor) -> tuple[Any, ...]:
        """Returns the input (B, T, C) of the first block for tokens (B, T), and what each block takes beside
        its input; `positions` are those of the tokens, an index of a table with a row per position."""
        raise NotImplementedError

    def blocks(self) -> nn.ModuleList:
        """Returns the blocks."""
        raise NotImplementedError

    def normalize(self, x: Any) -> Tensor:
        """Returns the norm (B, T, C) of what the last block returned."""
        raise NotImplementedError

    def forward(
        self, idx: Tensor, targets: Tensor | None = None, cache: KVCache | None = None,
        return_logits: bool = True,
    ):
        """Returns the logits, and the loss if targets are given.

        Args:
            idx: (B, T) int64 tokens.
            targets: (B, T) int64, the next token of each token; -1 is ignored by the loss.
            cache: keys and values of the previous tokens; those of `idx` are appended.
            return_logits: False returns None in place of logits beside a loss. Mixed precision would cast
                them, the largest tensor of a step, to float32.

        Returns:
            logits (B, T, vocab_size); with targets (logits, loss), where the loss is the mean cross entropy
            in nats, float32 for every dtype of the model.

        Raises:
            ValueError: the sequence is longer than `context_length`.
        """
        logits = self.lm_head(self.features(idx, cache))
        if targets is None:
            return logits
        rows = logits.view(-1, logits.shape[-1])
        # In float16 the loss would have three digits, and overflow when it is scaled.
        loss = F.cross_entropy(rows, targets.reshape(-1), ignore_index=-1, dtype=mytorch.float32)
        return logits if return_logits else None, loss

    def features(self, idx: Tensor, cache: KVCache | None = None) -> Tensor:
        """Returns the input (B, T, C) of `lm_head` for tokens (B, T); errors: see `forward`."""
        T, past = idx.shape[1], cache.length if cache is not None else 0
        if past + T > self.config.context_length:
            raise ValueError(f"{past + T} tokens exceed the context length of {self.config.context_length}")
        x, *others = self.embed(idx, cache.positions(T) if cache is not None else slice(T))
        x = self.run(x, *others, cache=cache)
        if cache is not None:
            cache.length += T
        return self.normalize(x)

    def run(self, x: Tensor, *others: object, cache: KVCache | None) -> Any:
        """Returns what the last block returns."""
        saving = self.gradient_checkpointing and self.training and cache is None
        for block in self.blocks():
            x = checkpoint(block, x, *others) if saving else block(x, *others, cache)
        return x

    def gradient_checkpointing_enable(self) -> None:
        """Saves memory in training: only the inputs of each block are kept for the backward pass, which runs
        each block a second time, with the same random numbers. The gradients are the same.

        Source: Chen, Xu, Zhang & Guestrin, 2016, https://arxiv.org/abs/1604.06174
        """
        self.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        """Keeps all activations for the backward pass again."""
        self.gradient_checkpointing = False

    def flops_per_token(self, length: int | None = None) -> int:
        """Returns the floating-point operations of a forward and backward pass for each token.

        6 for each weight that is multiplied, and 12 L C T for attention, with L layers, C features in all
        heads and T tokens; causal masks are not counted as savings.

        Args:
            length: T, the length of the sequences; the context length by default.
        Source: Chowdhery et al., "PaLM", 2022, https://arxiv.org/abs/2204.02311, appendix B.
        """
        linear = (nn.Linear, nn.QuantizedLinear)
        matrices = sum(m.in_features * m.out_features for m in self.modules() if isinstance(m, linear))
        layers, features = self.attention_sizes()
        return 6 * matrices + 12 * layers * features * (length or self.config.context_length)

    def attention_sizes(self) -> tuple[int, int]:
        """Returns the number of layers, and of features in all heads of a layer."""
        raise NotImplementedError

    def parameter_groups(self, weight_decay: float) -> list[ParamGroup]:
        """Returns parameter groups for an optimizer: weight decay for matrices, none for vectors.

        Frozen parameters, those without `requires_grad`, are in none.
        """
        trained = [p for p in self.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim >= 2]
        vectors = [p for p in trained if p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        return [g for g in groups if g["params"]]

    def new_cache(
        self, batch_size: int = 1, capacity: int | None = None, padding: Sequence[int] | None = None
    ) -> KVCache:
        """Returns an empty cache for this model; the arguments are those of `KVCache`."""
        weight = next(self.parameters())
        return KVCache(self.config, batch_size, weight.dtype, weight.device, capacity, padding)

    def stream(
        self, prompts: Prompts, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None,
        generator: mytorch.Generator | None = None, use_cache: bool = True, *, top_p: float | None = None,
        min_p: float | None = None, repetition_penalty: float = 1.0, stop_tokens: Sequence[int] = (),
        stop_strings: Sequence[str] = (), tokenizer: Tokenizer | None = None, seed: int | None = None,
    ) -> Iterator[Tensor]:
        """Yields new tokens (B, 1), one at a time, until all rows have ended.

        Args:
            prompts: (B, T) tokens, or lists of tokens of different lengths, at least one token each. When
                the context is full, its first token leaves it, and all positions change.
            max_new_tokens: number of tokens to generate.
            temperature, top_k, top_p, min_p, repetition_penalty: see `Sampler`.
            generator: random number generator.
            use_cache: cache keys and values; False is slower and yields the same tokens.
            stop_tokens: a row ends with one of them; further tokens of it are the first of them.
            stop_strings: a row ends when its new text has one of them, too.
            tokenizer: decodes the tokens, for `stop_strings`.
            seed: of a new generator.

        Raises:
            ValueError: a prompt is empty or longer than the context length, or an option is out of range.
        """
        if seed is not None:
            if generator is not None:
                raise ValueError("give either a generator or a seed")
            generator = mytorch.Generator(device=self.device).manual_seed(seed)
        sampler = Sampler(temperature, top_k, top_p, min_p, repetition_penalty)
        return generation.stream(
            self, prompts, max_new_tokens, sampler, stop_tokens, stop_strings, tokenizer, generator, use_cache
        )

    def generate(
        self, prompts: Prompts, max_new_tokens: int, *args: object, num_beams: int = 1,
        length_penalty: float = 1.0, **options: object,
    ) -> Tensor | list[list[int]]:
        """Returns the prompts and their new tokens.

        Args:
            prompts, max_new_tokens, **options: see `stream`.
            num_beams: with 2 or more the result of a search for the most probable text; see `beam_search`.
            length_penalty: the power of the length by which the search divides log probabilities.

        Returns:
            Of a tensor (B, T): (B, T + new tokens), where rows that have ended are filled with the stop
            token. Of lists: lists, each up to its own end.
        """
        if num_beams > 1:
            return beam_search(self, prompts, max_new_tokens, num_beams, length_penalty, *args, **options)
        idx, padding = generation.pad_left(prompts, self.device)
        rows = mytorch.cat([idx, *self.stream(prompts, max_new_tokens, *args, **options)], dim=1)
        if isinstance(prompts, Tensor):
            return rows
        return [
            prompt_and_new(row[n:], idx.shape[1] - n, options)
            for row, n in zip(rows.tolist(), padding, strict=True)
        ]


def prompt_and_new(row: list[int], prompt: int, options: dict[str, object]) -> list[int]:
    """Returns a row of tokens up to the stop token or string with which it ended."""
    stop_tokens, stop_strings = options.get("stop_tokens", ()), options.get("stop_strings", ())
    for end in range(prompt + 1, len(row) + 1):
        new = row[prompt:end]
        if new[-1] in stop_tokens or generation.ends_with_any(new, stop_strings, options.get("tokenizer")):
            return row[:end]
    return row
