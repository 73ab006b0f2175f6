"""Helpers for training: clipping gradients, parameters as one vector, normalized weights."""

from ...aliases import lazily as _lazily
from . import rnn
from .clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
    "rnn", "vector_to_parameters",
]

_NORMALIZED = ("remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm")
__getattr__, __dir__ = _lazily(globals(), {
    **dict.fromkeys(_NORMALIZED, "nn.utils.normalized_weights"),
    **dict.fromkeys(("add_lora", "lora_state_dict", "merge_lora"), "nn.utils.lora"),
    **dict.fromkeys(("parametrizations", "parametrize", "prune")),
})
