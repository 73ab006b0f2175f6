"""Helpers for training: clipping gradients, parameters as one vector, normalized weights."""

import importlib

from . import rnn
from .clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "rnn", "vector_to_parameters",
]  # fmt: skip

_LATER = {
    **dict.fromkeys(
        ("remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"), "normalized_weights"
    ),
    **dict.fromkeys(("add_lora", "lora_state_dict", "merge_lora"), "lora"),
    **dict.fromkeys(("parametrizations", "parametrize", "prune")),
}


def __getattr__(name: str):
    """Imports at its first use what few programs need."""
    if name not in _LATER:
        raise AttributeError(f"module 'mytorch.nn.utils' has no attribute {name!r}")
    module = importlib.import_module(f".{_LATER[name] or name}", __name__)
    return getattr(module, name) if _LATER[name] else module
