"""The configuration of BERT."""

from __future__ import annotations

from dataclasses import dataclass

from .config import ModelConfig

SIZES = {  # layers, heads, features
    "mini-lm": (6, 12, 384),  # all-MiniLM-L6-v2, 23 M
    "base": (12, 12, 768),  # bert-base-uncased, 109 M
    "large": (24, 16, 1024),  # bert-large-uncased, 335 M
}


@dataclass
class BertConfig(ModelConfig):
    """The configuration of a BERT; the names are Hugging Face's.

    Args:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: embedding dimension.
        num_hidden_layers: number of layers.
        num_attention_heads: number of attention heads per layer.
        intermediate_size: hidden features of the MLPs.
        max_position_embeddings: maximum sequence length, in tokens.
        type_vocab_size: number of token types, that is of texts in a sequence.
        hidden_dropout_prob, attention_probs_dropout_prob: dropout probabilities.
        layer_norm_eps: epsilon of the norms.
        initializer_range: standard deviation of new weights.
        pooler: whether there is a linear layer for the first token, which some files lack.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pooler: bool = False

    file_names = {name: name for name in (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "max_position_embeddings", "type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob",
        "layer_norm_eps", "initializer_range",
    )}
    file_options = {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu",
        "position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False,
    }

    def __post_init__(self):
        self.check_positive(
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "type_vocab_size",
        )
        self.check_divisible("hidden_size", "num_attention_heads")
        self.check_number("layer_norm_eps", positive=False)

    @property
    def context_length(self) -> int:
        return self.max_position_embeddings

    @classmethod
    def of_size(cls, size: str, **changes) -> BertConfig:
        """Returns the configuration mini-lm (all-MiniLM-L6-v2), base or large (bert-large-uncased)."""
        if size not in SIZES:
            raise ValueError(f"model size {size!r} is unknown; the sizes are {', '.join(SIZES)}")
        layers, heads, features = SIZES[size]
        sizes = {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": features}
        return cls(**{**sizes, "intermediate_size": 4 * features, **changes})
