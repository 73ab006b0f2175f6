"""The functions behind the layers, as in `F.gelu(x)`; how their variants are chosen is in `composite`."""

from .activations import relu, sigmoid, silu, tanh
from .attention import scaled_dot_product_attention
from .composite import REGISTRY, Composite, use_fused
from .cross_entropy import cross_entropy, nll_loss
from .dropout import dropout
from .embedding import embedding
from .gelu import gelu
from .linear import linear
from .loss import mse_loss
from .normalization import layer_norm
from .softmax import log_softmax, softmax

__all__ = [
    "REGISTRY", "Composite", "cross_entropy", "dropout", "embedding", "gelu", "layer_norm", "linear",
    "log_softmax", "mse_loss", "nll_loss", "relu", "scaled_dot_product_attention", "sigmoid", "silu",
    "softmax", "tanh", "use_fused",
]  # fmt: skip
