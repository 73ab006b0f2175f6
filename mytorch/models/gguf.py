"""
GGUF files, as llama.cpp reads them: options, tokenizer and (often quantised) weights in one file.

The package gguf parses them; what their blocks mean is in `gguf_blocks`. Names of tensors differ from
Hugging Face's, and the rows of Llama's queries and keys are in another order, in which the two features of a
rotated pair are neighbors.

Source: the format, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mytorch import nn
from mytorch.backends.device import DeviceLike
from mytorch.backends.dtypes import DTypeLike
from mytorch.nn.functional.quantization import FORMATS, Quantized
from mytorch.nn.functional.quantization import quantized as requantized
from mytorch.nn.layers.rotary import rotary_frequencies
from mytorch.nn.quantization import join_projections
from mytorch.utils import gguf_blocks
from mytorch.utils.reading import check_regular

from .config import is_number
from .hugging_face import fill
from .llama_config import LlamaConfig

if TYPE_CHECKING:
    from .llama import Llama

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
NAMES = {  # of a block's tensors, and of the others
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ARCHITECTURES = ("llama", "qwen2", "qwen3")
FIELDS = {  # options of LlamaConfig that have a key of the architecture
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base", "sliding_window": "attention.sliding_window",
}
REQUIRED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
    "rms_norm_eps",
)
# Other keys of the architecture: those that are read where they belong, and those that change no number.
READ = (
    "attention.value_length", "rope.dimension_count", "rope.scale_linear", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
)
HARMLESS = (
    "vocab_size", "tensor_data_layout", "pooling_type", "rope.scaling.finetuned", "quantization_version",
    "file_type",
)
NEUTRAL = {  # the values of other keys that change nothing
    "expert_count": (0,), "expert_used_count": (0,), "attention.causal": (True,),
    "use_parallel_residual": (False,), "logit_scale": (0, 1), "residual_scale": (0, 1),
    "embedding_scale": (0, 1), "attention.scale": (0,), "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,), "attn_logit_softcapping": (0,), "final_logit_softcapping": (0,),
    "rope.scaling.yarn_log_multiplier": (0,), "rope.scaling.yarn_ext_factor": (-1,),
    "rope.scaling.yarn_attn_factor": (1,),
}
_BROKEN = (ValueError, IndexError, KeyError, OverflowError, TypeError)  # what the package raises


class GGUFFile:
    """A GGUF file.

    Attributes:
        metadata: {key: value} of its options.
        tensors: {name: the package's ReaderTensor}.

    Raises:
        OSError: it can't be read.
        ValueError: it is damaged, or no GGUF file.
        ImportError: the package gguf is not installed.
    """

    def __init__(self, path: str | os.PathLike):
        try:
            import gguf
        except ImportError:
            raise ImportError("GGUF files need the package gguf: pip install gguf") from None
        self.path = Path(path)
        check_regular(path)
        try:
            reader = gguf.GGUFReader(path)
            self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        except _BROKEN as error:
            raise ValueError(f"can't load {path}: no GGUF file, or truncated or damaged: {error}") from error
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def get(self, key: str, kind: type | tuple[type, ...], default: object = None) -> Any:
        """Returns an option; raises ValueError if it is missing without default, or of another type."""
        value = self.metadata.get(key, default)
        if not isinstance(value, kind):
            raise ValueError(f"{self.path}: {key} is {value!r}")
        return value

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32.

        Raises:
            ValueError: its type is not supported.
        """
        tensor = self.tensors[name]
        if tensor.tensor_type.name not in TYPES:
            raise ValueError(
                f"{self.path}: tensor {name} is of type {tensor.tensor_type.name}; "
                f"supported are {', '.join(TYPES)}"
            )
        shape = tuple(tensor.shape[::-1].tolist())
        rows = np.ascontiguousarray(tensor.data).view(np.uint8)
        return gguf_blocks.dequantize(rows, tensor.tensor_type.name.lower()).reshape(shape)


def config_of(file: GGUFFile) -> LlamaConfig:
    """Returns the configuration of the model in a file.

    Raises:
        ValueError: it is of another architecture, or an option is missing or not supported.
    """
    kind = file.get("general.architecture", str)
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"{file.path}: architecture {kind} is not supported; supported are {known}")
    if "token_embd.weight" not in file.tensors:
        raise ValueError(f"{file.path} has no tensor token_embd.weight")
    check_keys(file, kind)
    keys = {field: f"{kind}.{key}" for field, key in FIELDS.items()}
    if missing := [keys[field] for field in REQUIRED if keys[field] not in file.metadata]:
        raise ValueError(f"{file.path} has no {', '.join(missing)}")
    options = {field: file.metadata[key] for field, key in keys.items() if key in file.metadata}
    window, length = options.pop("sliding_window", 0), options.get("max_position_embeddings", math.inf)
    if not is_number(window) or 0 < window < length:  # of these architectures llama.cpp reads none
        raise ValueError(f"{file.path}: {keys['sliding_window']} is {window!r:.60}, which is not supported")
    options["vocab_size"] = int(file.tensors["token_embd.weight"].shape[-1])
    options["tie_word_embeddings"] = "output.weight" not in file.tensors
    options["qkv_bias"] = "blk.0.attn_q.bias" in file.tensors
    options["o_bias"] = "blk.0.attn_output.bias" in file.tensors
    options["qk_norm"] = "blk.0.attn_q_norm.weight" in file.tensors
    config = LlamaConfig.from_dict(options, file.path)
    for key in ("rope.dimension_count", "attention.value_length"):
        if (size := file.metadata.get(f"{kind}.{key}", config.head_dim)) != config.head_dim:
            raise ValueError(f"{file.path}: {kind}.{key} is {size!r:.60}, a head has {config.head_dim}")
    config.rope_scaling = _scaling(file, f"{kind}.rope.", config)
    return config


def check_keys(file: GGUFFile, kind: str) -> None:
    """Raises ValueError for a key of the model that isn't known: it might change the model's numbers."""
    known = {f"{kind}.{key}" for key in (*FIELDS.values(), *READ, *HARMLESS)}
    for name, value in file.metadata.items():
        key = name.removeprefix(f"{kind}.")
        is_of_model = key != name or key.startswith(("rope.", "attention.")) or key in NEUTRAL
        if is_of_model and name not in known and value not in NEUTRAL.get(key, ()):
            raise ValueError(f"{file.path}: {name} is {value!r:.60}, which is not supported")


def _scaling(file: GGUFFile, prefix: str, config: LlamaConfig) -> dict[str, object] | None:
    """Returns the scaling of the rotary embedding, as llama.cpp has it: without a type it is linear, and a
    factor of 0 is none."""

    def number(key: str, default: float) -> float:
        value = file.metadata.get(prefix + key, default)
        if not is_number(value) or value < 0:
            raise ValueError(f"{file.path}: {prefix}{key} is {value!r:.60}")
        return value

    kind = file.get(f"{prefix}scaling.type", str, "linear")
    if kind not in ("none", "linear", "yarn"):
        raise ValueError(f"{file.path}: {prefix}scaling.type {kind} is not supported")
    factor = number("scaling.factor", number("scale_linear", 0)) or 1.0
    length = number("scaling.original_context_length", 0)
    attention = number("scaling.attn_factor", 1.0)  # of cos and sin, in addition to YaRN's own
    if attention != 1 and kind != "yarn":
        raise ValueError(f"{file.path}: {prefix}scaling.attn_factor {attention} is supported with yarn only")
    if "rope_freqs.weight" in file.tensors:
        if factor != 1 and kind != "none" or kind == "yarn":
            raise ValueError(f"{file.path}: rope_freqs.weight with {prefix}scaling.* is not supported")
        return _llama3(file, config, length or 8192)
    if kind == "none" or (kind == "linear" and factor == 1):
        return None
    if kind == "linear":
        return {"rope_type": kind, "factor": factor}
    if factor < 1:
        raise ValueError(f"{file.path}: {prefix}scaling.factor {factor} is not supported with yarn")
    return {
        "rope_type": kind, "factor": factor,
        "original_max_position_embeddings": length or config.max_position_embeddings,
        "attention_factor": attention * (1 + 0.1 * math.log(factor)),
        "beta_fast": number("scaling.yarn_beta_fast", 32), "beta_slow": number("scaling.yarn_beta_slow", 1),
    }


def _llama3(file: GGUFFile, config: LlamaConfig, length: float) -> dict[str, object]:
    """Returns the scaling that a file has as the divisors of Llama 3's frequencies."""
    divisors = file.read("rope_freqs.weight")
    scaling = {
        "rope_type": "llama3", "factor": float(divisors.max()), "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": length,
    }
    plain, _ = rotary_frequencies(config.head_dim, config.rope_theta, {})
    scaled, _ = rotary_frequencies(config.head_dim, config.rope_theta, scaling)
    if divisors.shape != plain.shape or not np.allclose(plain / scaled, divisors, rtol=1e-3):
        raise ValueError(f"{file.path}: the divisors of the rotary frequencies are not those of Llama 3")
    return scaling


def names_of(file: GGUFFile) -> dict[str, str]:
    """Returns Hugging Face's name of each tensor of a file."""
    found = {}
    for name in file.tensors:
        outer, _, end = name.rpartition(".")
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)", outer)
        if outer in OUTER_NAMES:
            found[name] = f"{OUTER_NAMES[outer]}.{end}"
        elif block and block[2] in NAMES:
            found[name] = f"model.layers.{block[1]}.{NAMES[block[2]]}.{end}"
        elif name != "rope_freqs.weight":
            found[name] = name
    return found


def heads_of(file: GGUFFile, name: str, config: LlamaConfig) -> int:
    """Returns the heads of a tensor of queries or keys whose rows are in pairs; 0 for other tensors."""
    if file.metadata["general.architecture"] != "llama":
        return 0
    kind = name.split(".")[-2]
    return {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(kind, 0)


def rows_in_halves(array: np.ndarray, heads: int) -> np.ndarray:
    """Returns the rows of each head with the first features of all pairs before the second ones."""
    if not heads:
        return array
    if array.shape[0] % (2 * heads):
        raise ValueError(f"a tensor of {array.shape[0]} rows has no {heads} heads of pairs")
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def blocks_of(file: GGUFFile, name: str, heads: int) -> tuple[str, Quantized] | None:
    """Returns the format and the arrays of a quantised weight; None for one that isn't quantised."""
    tensor = file.tensors[name]
    kind = tensor.tensor_type.name.lower()
    if kind in FORMATS:
        arrays = gguf_blocks.split(np.ascontiguousarray(tensor.data), kind)
    elif kind in ("q4_k", "q6_k"):
        kind, arrays = "q8_0", requantized(file.read(name), "q8_0")
    else:
        return None
    return kind, Quantized(*[None if a is None else rows_in_halves(a, heads) for a in arrays])


def keep_blocks(model: Llama, file: GGUFFile) -> set[str]:
    """Replaces the linear layers whose weights are quantised in the file; returns the names of these."""
    kept, modules = set(), dict(model.named_modules())
    for name, theirs in names_of(file).items():
        outer = theirs.removesuffix(".weight")
        is_table = outer == "model.embed_tokens"
        if is_table and not model.config.tie_word_embeddings:
            continue  # rows are looked up, which is cheap
        module = model.lm_head if is_table else modules.get(outer)
        found = blocks_of(file, name, heads_of(file, name, model.config))
        if not isinstance(module, nn.Linear) or theirs.endswith(".bias") or found is None:
            continue
        layer = nn.QuantizedLinear(module.in_features, module.out_features, False, found[0])
        layer.set_weight(found[1])
        layer.bias = module.bias
        _replace(model, "lm_head" if is_table else outer, layer)
        if is_table:
            table = nn.QuantizedEmbedding(module.out_features, module.in_features, found[0])
            table.set_weight(found[1])
            _replace(model, outer, table)
        kept.add(name)
    return kept


def _replace(model: Llama, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def load(
    kind: type[Llama], path: str | os.PathLike, dtype: DTypeLike = "float32", device: DeviceLike = None,
    quantized: bool = False,
) -> Llama:
    """Returns the model in a GGUF file, in evaluation mode.

    Args:
        kind: the class of the model.
        quantized: keep quantised weights as `nn.QuantizedLinear`: those of Q4_K and Q6_K as Q8_0, the others
            as they are. Otherwise all weights are dequantised.

    Raises:
        OSError: the file can't be read.
        ValueError: it is damaged, or something in it is not supported.
        ImportError: the package gguf is not installed.
    """
    file = GGUFFile(path)
    config = config_of(file)
    with nn.init.skipped():
        model = kind(config)
    try:
        kept = keep_blocks(model, file) if quantized else set()
        model.to(dtype=dtype, device=device)
        names = {name: theirs for name, theirs in names_of(file).items() if name not in kept}
        weights = (
            (theirs, rows_in_halves(file.read(name), heads_of(file, name, config)))
            for name, theirs in names.items()
        )
        fill(model, weights, file.path)
        join_projections(model)
    except ValueError as error:
        raise ValueError(str(error) if str(file.path) in str(error) else f"{file.path}: {error}") from error
    return model.eval()
