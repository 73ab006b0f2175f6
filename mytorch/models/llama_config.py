"""The configuration of Llama and its relatives, and what Hugging Face's config.json says of each."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

from mytorch.utils.reading import is_count

from .config import ModelConfig, is_number

SIZES = {  # of published models
    "15m": dict(vocab_size=32000, hidden_size=288, intermediate_size=768, num_hidden_layers=6,
                num_attention_heads=6, max_position_embeddings=256, tie_word_embeddings=True),  # stories15M
    "135m": dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                 num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
                 rope_theta=1e5, tie_word_embeddings=True),  # SmolLM2
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
               num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072,
               rope_theta=5e5, tie_word_embeddings=True,
               rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                 original_max_position_embeddings=8192)),  # Llama 3.2
    "7b": dict(vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
               num_attention_heads=32, max_position_embeddings=4096),  # Llama 2
}
ROPE_OPTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # required and other options, by kind
    "default": ((), ()), "linear": (("factor",), ()), "ntk": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "yarn": (("factor", "original_max_position_embeddings"),
             ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")),
}


@dataclass
class LlamaConfig(ModelConfig):
    """The configuration of a Llama.

    Args:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: embedding dimension.
        intermediate_size: hidden features of the MLPs.
        num_hidden_layers: number of blocks.
        num_attention_heads: number of heads of the queries.
        num_key_value_heads: number of heads of keys and values; as many by default.
        head_dim: features of a head; hidden_size / num_attention_heads by default.
        max_position_embeddings: maximum sequence length, in tokens.
        rms_norm_eps: epsilon of the norms.
        rope_theta, rope_scaling: base and scaling of `nn.RotaryEmbedding`.
        sliding_window: a token attends to this many tokens; None for all.
        qkv_bias, o_bias, mlp_bias: whether these linear layers have biases.
        qk_norm: whether the queries and keys of a head are normalized.
        tie_word_embeddings: whether the output layer shares its weight with the token embedding.
        initializer_range: standard deviation of new weights.
    """

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    sliding_window: int | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02

    def __post_init__(self):
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        self.check_positive(
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "max_position_embeddings",
        )
        if self.head_dim is None:
            self.check_divisible("hidden_size", "num_attention_heads")
            self.head_dim = self.hidden_size // self.num_attention_heads
        self.check_divisible("num_attention_heads", "num_key_value_heads")
        self.check_positive("head_dim", *(["sliding_window"] if self.sliding_window is not None else []))
        self.check_number("rms_norm_eps", positive=False)
        self.check_number("rope_theta")
        self.check_rope_scaling()

    def check_rope_scaling(self) -> None:
        """Raises ValueError if the scaling is unknown, or has an option that is unknown or no number."""
        options = dict(self.rope_scaling or {})
        kind = options.pop("type", "default")
        kind = options.pop("rope_type", kind)
        if not isinstance(kind, str) or kind not in ROPE_OPTIONS:
            raise ValueError(f"rotary scaling {kind!r} is unknown; the kinds are {', '.join(ROPE_OPTIONS)}")
        required, others = ROPE_OPTIONS[kind]
        if unknown := [name for name in options if name not in required + others]:
            raise ValueError(f"rotary scaling {kind!r} has no option {', '.join(map(repr, unknown))}")
        for name in required:
            if name not in options:
                raise ValueError(f"rotary scaling {kind!r} lacks {name!r}")
        for name, value in options.items():
            optional = value is None and name in others
            fits = isinstance(value, bool) if name == "truncate" else is_number(value) and value >= 0
            if not (fits or optional) or (name in required and value == 0):
                raise ValueError(f"rotary scaling {kind!r}: {name} is {value!r:.60}")
        if kind == "llama3" and options["low_freq_factor"] >= options["high_freq_factor"]:
            raise ValueError(f"rotary scaling 'llama3': high_freq_factor must be the larger one: {options}")

    file_names = {name: name for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta",
        "rope_scaling", "sliding_window", "mlp_bias", "tie_word_embeddings", "initializer_range",
    )}
    file_options = {"hidden_act": "silu"}

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        return self.num_hidden_layers, self.num_key_value_heads, self.head_dim

    @property
    def context_length(self) -> int:
        return self.max_position_embeddings

    @classmethod
    def of_size(cls, size: str, **changes) -> LlamaConfig:
        """Returns the configuration 15m (stories15M), 135m (SmolLM2), 1b (Llama 3.2) or 7b (Llama 2)."""
        if size not in SIZES:
            raise ValueError(f"model size {size!r} is unknown; the sizes are {', '.join(SIZES)}")
        return cls(**{"rms_norm_eps": 1e-5, **SIZES[size], **changes})

    @classmethod
    def from_hugging_face(cls, content: dict[str, Any], path: str | PathLike) -> LlamaConfig:
        kind = content.get("model_type") if isinstance(content, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"{path}: model_type is {kind!r}; a Llama is one of {', '.join(KINDS)}")
        content = {**KINDS[kind], **content}
        for name in ("attention_bias", "use_sliding_window"):
            if not isinstance(content.get(name, False), bool | None):
                raise ValueError(f"{path}: {name} is {content[name]!r:.60}, it must be a bool")
        biases = bool(content.get("attention_bias"))
        content["rope_theta"], content["rope_scaling"] = _rope(content, path)
        content["sliding_window"] = _window(content, path)
        config = super().from_hugging_face(content, path)
        config.qkv_bias, config.o_bias = biases or kind == "qwen2", biases
        config.qk_norm = kind == "qwen3"
        return config

    def to_hugging_face(self) -> dict[str, object]:
        """Returns the content of Hugging Face's config.json.

        Raises:
            ValueError: no kind of model there has these options.
        """
        kind = "llama" if self.sliding_window is None else "mistral"
        if self.qk_norm:
            kind = "qwen3"
        elif self.qkv_bias and not self.o_bias:
            kind = "qwen2"
        options = (self.qkv_bias, self.o_bias, self.mlp_bias)
        if options not in {"llama": [(b, b, m) for b in (True, False) for m in (True, False)],
                           "mistral": [(False,) * 3], "qwen2": [(True, False, False)],
                           "qwen3": [(b, b, False) for b in (True, False)]}[kind]:
            raise ValueError(f"no kind of Hugging Face's models has the options of {self}")
        content = super().to_hugging_face()
        scaling = content.pop("rope_scaling") or {"rope_type": "default"}
        content["rope_parameters"] = {"rope_theta": content.pop("rope_theta"), **scaling}
        windows = {"use_sliding_window": self.sliding_window is not None, "max_window_layers": 0}
        return {
            "architectures": [f"{kind.capitalize()}ForCausalLM"], "model_type": kind, **content,
            **(windows if kind.startswith("qwen") else {}), "attention_bias": self.o_bias,
        }


KINDS = {  # defaults of Hugging Face's kinds of models, where they differ from those above
    "llama": {},
    "mistral": {"sliding_window": 4096, "intermediate_size": 14336, "num_key_value_heads": 8,
                "max_position_embeddings": 131072},
    "qwen2": {"vocab_size": 151936, "intermediate_size": 22016, "max_position_embeddings": 32768,
              "num_key_value_heads": 32},
    "qwen3": {"vocab_size": 151936, "intermediate_size": 22016, "max_position_embeddings": 32768,
              "num_key_value_heads": 32, "head_dim": 128},
}


def _rope(content: dict[str, Any], path: str | PathLike) -> tuple[object, dict[str, object] | None]:
    """Returns the base and the scaling of the rotary embedding; `LlamaConfig` checks them."""
    rope = content.get("rope_scaling") or content.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"{path}: rope_parameters is {rope!r:.60}, it must be a JSON object")
    rope, length = dict(rope), "original_max_position_embeddings"
    kind = rope.pop("type", "default")
    kind, theta = rope.pop("rope_type", kind), rope.pop("rope_theta", content.get("rope_theta", 10000.0))
    rope.pop("finetuned", None)  # how the model was trained
    if rope.pop("partial_rotary_factor", None) not in (None, 1):
        raise ValueError(f"{path}: partial_rotary_factor is not supported: all of a head is rotated")
    if kind in ("yarn", "llama3"):
        rope[length] = content.get(length, rope.get(length, content.get("max_position_embeddings", 2048)))
    else:
        rope.pop(length, None)
    if kind == "dynamic":  # changes angles beyond max_position_embeddings, which is the end here
        rope.pop("factor", None)
        kind = "default"
    return theta, None if kind == "default" and not rope else {"rope_type": kind, **rope}


def _window(content: dict[str, Any], path: str | PathLike) -> int | None:
    """Returns the sliding window of all layers; raises ValueError if layers differ."""
    layers, kinds = content.get("num_hidden_layers", 32), content.get("layer_types") or []
    if not isinstance(kinds, list) or not all(isinstance(each, str) for each in kinds):
        raise ValueError(f"{path}: layer_types is {kinds!r:.60}, it must be a list of names")
    if content["model_type"].startswith("qwen"):
        if not content.get("use_sliding_window"):
            return None
        first = content.get("max_window_layers", 28)
        if not is_count(first) or not is_count(layers):
            raise ValueError(f"{path}: max_window_layers is {first!r:.60} of {layers!r:.60} layers")
        kinds = kinds or ["full_attention"] * (first > 0) + ["sliding_attention"] * (layers > first)
    if len(set(kinds)) > 1:
        raise ValueError(f"{path}: layers of different windows are not supported, layer_types is {kinds}")
    # A model of the kind llama has no window, whatever else its file says.
    is_full = content["model_type"] == "llama" or "full_attention" in kinds
    return None if is_full else content.get("sliding_window")
