"""The configuration of GPT-2."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

from .config import ModelConfig

SIZES = {  # layers, heads, features
    "nano": (4, 4, 128),  # nanoGPT's Shakespeare run on a CPU
    "small": (6, 6, 384),  # nanoGPT's Shakespeare run on a GPU
    "base": (12, 12, 768),  # GPT-2, 124 M
    "medium": (24, 16, 1024),
    "large": (36, 20, 1280),
    "xl": (48, 25, 1600),
}
SECOND_NAMES = {  # in config.json
    "hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


@dataclass
class GPT2Config(ModelConfig):
    """The configuration of a GPT-2.

    Args:
        vocab_size: number of tokens in the vocabulary.
        context_length: maximum sequence length, in tokens.
        n_layer: number of blocks.
        n_head: number of attention heads per block.
        n_embd: embedding dimension.
        dropout_p: dropout probability.
        bias: whether linear layers and layer norms have a bias; False is slightly faster and better.
        activation: of the MLP, "gelu" or, as in the published models, "gelu_new", its approximation by tanh.
    """

    file_names = {
        "vocab_size": "vocab_size", "context_length": "n_positions", "n_layer": "n_layer", "n_head": "n_head",
        "n_embd": "n_embd", "dropout_p": "resid_pdrop", "activation": "activation_function",
    }
    file_options = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "layer_norm_epsilon": 1e-5,
        "n_inner": None, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
        "tie_word_embeddings": True,
    }

    vocab_size: int = 50257
    context_length: int = 1024
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout_p: float = 0.0
    bias: bool = True
    activation: str = "gelu"

    def __post_init__(self):
        self.check_positive("vocab_size", "context_length", "n_layer", "n_head", "n_embd")
        if not isinstance(self.dropout_p, (int, float)) or not 0 <= self.dropout_p <= 1:
            raise ValueError(f"dropout_p must be a number between 0 and 1, got {self.dropout_p!r}")
        if self.activation not in ("gelu", "gelu_new"):
            raise ValueError(f"activation must be 'gelu' or 'gelu_new', got {self.activation!r}")
        self.check_divisible("n_embd", "n_head")

    @classmethod
    def from_hugging_face(cls, content: dict[str, Any], path: str | PathLike) -> GPT2Config:
        if isinstance(content, dict):  # other names, and another default, than here
            renamed = {ours: content[name] for name, ours in SECOND_NAMES.items() if name in content}
            content = {"activation_function": "gelu_new", **renamed, **content}
        return super().from_hugging_face(content, path)

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        return self.n_layer, self.n_head, self.n_embd // self.n_head

    @classmethod
    def of_size(cls, size: str, **changes) -> GPT2Config:
        """Returns the configuration nano, small, base (GPT-2 with 124 M parameters), medium, large or xl; the
        last four are gpt2, gpt2-medium, gpt2-large and gpt2-xl, too."""
        name = {"gpt2": "base"}.get(size, size.removeprefix("gpt2-"))
        if name not in SIZES:
            raise ValueError(f"model size {size!r} is unknown; the sizes are {', '.join(SIZES)}")
        n_layer, n_head, n_embd = SIZES[name]
        return cls(**{"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, **changes})
